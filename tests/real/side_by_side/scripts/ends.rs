//! Completions, other ends of a run, and a model without complete answers.

use serde_json::json;

use crate::side_by_side::script::{Answer, Script, done, done_as, echoes, left, replies, text, types};

pub(super) fn scripts() -> Vec<Script> {
    [completions(), endings(), troubles()].concat()
}

fn completions() -> Vec<Script> {
    let done_with = |keys: &str| replies(text(&[(keys, 0.2)], Some(json!(true))));
    let one = || replies(echoes("one"));
    let flags =
        |flags: &[serde_json::Value]| [vec![one()], flags.iter().cloned().map(done_as).collect()].concat();
    let faulty = |commands: &str| {
        replies(format!(r#"{{"analysis": "", "plan": "", "commands": {commands}, "task_complete": true}}"#))
    };
    let bad_commands = vec![one(), faulty(r#"["echo no >> out\n"]"#), faulty(r#"[{"duration": 1}]"#)];
    let numbers = [json!(1), json!(0), json!(2), json!([1])];
    vec![
        Script::json(
            "complete-with-commands",
            left("one two"),
            vec![done_with("echo one >> out\n"), done_with("echo two >> out\n")],
        ),
        Script::json("complete-then-not", left("one"), vec![done(), one(), done(), done()]),
        Script::json(
            "complete-around-an-error",
            left("one"),
            vec![one(), done(), replies("Yes, I am sure."), done()],
        ),
        Script::json(
            "complete-in-words",
            left("one"),
            flags(&["yes", "no", "TRUE", "1"].map(|word| json!(word))),
        ),
        Script::json("complete-in-numbers", left("one"), flags(&numbers)),
        Script::json("complete-with-bad-commands", left("one"), bad_commands),
        Script::json("complete-without-a-list", left("one"), vec![one(), faulty("\"none\""), done(), done()]),
    ]
}

fn endings() -> Vec<Script> {
    let exits = [("echo one >> out\n", 0.2), ("exit\n", 1.0)];
    let goes_on = [("echo one >> out; exit\n", 1.0), ("echo two >> out\n", 0.2)];
    vec![
        Script::json("too-many-turns", left("a a a a a a a a"), vec![replies(echoes("a"))]),
        Script::json("shell-exits", left("one"), vec![types(&exits), done(), done()]),
        Script::json("keys-after-the-exit", left("one"), vec![types(&goes_on), done(), done()]),
    ]
}

fn troubles() -> Vec<Script> {
    let cut_off = || Answer::IsCutOff(echoes("no"));
    let half = Answer::IsCutOff("{\"analysis\": \"Long".to_owned());
    let again = replies(echoes("a"));
    // An answer that was cut off does not count as a turn.
    let cut_in_last_turn = [vec![cut_off()], vec![again.clone(); 7], vec![cut_off(), again]].concat();
    let busy = vec![
        Answer::Refuses(503, "overloaded"),
        replies(echoes("one")),
        Answer::Refuses(429, "slow down"),
        done(),
        done(),
    ];
    vec![
        Script::json("cut-off", left("one"), vec![cut_off(), half, replies(echoes("one")), done(), done()]),
        Script::json("cut-off-in-the-last-turn", left("a a a a a a a a"), cut_in_last_turn),
        Script::json("busy-model", left("one"), busy),
    ]
}
