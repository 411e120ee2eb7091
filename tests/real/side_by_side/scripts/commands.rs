//! Lists of commands, their durations and errors, and keystrokes other than plain lines.

use serde_json::json;

use crate::side_by_side::script::{Answer, Script, done, echoes, left, replies, text, types, with_commands};

pub(super) fn scripts() -> Vec<Script> {
    [lists(), durations(), keys()].concat()
}

/// Returns a script that ends with a completion.
fn script(name: &'static str, check: impl Into<String>, answers: &[Answer]) -> Script {
    Script::json(name, check, [answers, &[done(), done()]].concat())
}

fn lists() -> Vec<Script> {
    let several = types(&[
        ("echo one >> out\n", 0.1),
        ("echo two >> out\n", 0.0),
        ("", 0.1),
        ("echo three >> out\n", 0.1),
    ]);
    let no = json!({"keystrokes": "echo no >> out\n", "duration": 0.1});
    // If one command is unreadable, none of them runs.
    let bad = [
        with_commands(&json!([no, "echo no >> out\n"])),
        with_commands(&json!([no, {"duration": 0.1}])),
        with_commands(&json!([no, {"keystrokes": 7}])),
        replies(echoes("one")),
    ];
    let none = [types(&[]), replies(echoes("one")), types(&[("", 0.2)])];
    let one_line = types(&[("echo one two", 0.1), (" three >> out\n", 0.1)]);
    vec![
        script("several-commands", left("one two three"), &[several]),
        script("no-line-break", left("one two three"), &[one_line]),
        script("bad-commands", left("one"), &bad),
        script("no-commands", left("one"), &none),
    ]
}

fn durations() -> Vec<Script> {
    let odd = [
        with_commands(&json!([
            {"keystrokes": "echo missing >> out\n"},
            {"keystrokes": "echo word >> out\n", "duration": "0.1"},
        ])),
        with_commands(&json!([
            {"keystrokes": "echo null >> out\n", "duration": null},
            {"keystrokes": "echo true >> out\n", "duration": true},
            {"keystrokes": "echo negative >> out\n", "duration": -5},
        ])),
    ];
    let nan =
        r#"{"analysis": "", "plan": "", "commands": [{"keystrokes": "echo nan >> out\n", "duration": NaN}]}"#;
    vec![
        script("durations", left("missing word null true negative"), &odd),
        script("duration-not-a-number", left("nan"), &[replies(nan)]),
    ]
}

fn keys() -> Vec<Script> {
    let interrupted = [types(&[("sleep 1000\n", 1.0)]), types(&[("C-c", 0.5), ("echo one >> out\n", 0.1)])];
    let end_of_file = [
        types(&[("cat > out\n", 1.0)]),
        types(&[("typed\n", 0.2), ("C-d", 0.5), ("echo one >> out\n", 0.1)]),
    ];
    let arrows = [
        types(&[("echo one >> out\n", 0.5), ("Up", 0.2), ("Enter", 0.5)]),
        types(&[
            ("echo tow >> out", 0.2),
            ("C-a", 0.1),
            ("C-k", 0.2),
            ("echo two >> out", 0.1),
            ("Enter", 0.2),
        ]),
    ];
    let lower_case = [types(&[("echo one >> out", 0.2), ("enter", 0.5)]), types(&[("C-u", 0.2)])];
    let semicolon = types(&[("echo one >> out;", 0.2), (" echo two >> out\n", 0.5)]);
    let letters = types(&[("echo 'it'\\''s \"é日\" $HOME' > out\n", 0.3)]);
    let many = format!("{}\n", "x".repeat(99)).repeat(200);
    let many = [
        types(&[("stty -echo; cat > out\n", 1.0)]),
        types(&[(&many, 1.5), ("C-d", 0.5)]),
        types(&[("stty echo\n", 0.3)]),
    ];
    let long_output = [replies(text(&[("seq -w 1 20000\n", 2.0)], None)), replies(echoes("one"))];
    vec![
        script("control-c", left("one"), &interrupted),
        script("control-d", left("typed one"), &end_of_file),
        script("arrows", left("one one two"), &arrows),
        script("names-in-lower-case", left("one"), &lower_case),
        script("semicolon-at-the-end", left("one two"), &[semicolon]),
        script("quotes-and-letters", r#"test "$(cat out)" = "it's \"é日\" \$HOME""#, &[letters]),
        script("twenty-thousand-keys", r#"test "$(wc -c < out)" = 20000"#, &many),
        script("long-output", left("one"), &long_output),
    ]
}
