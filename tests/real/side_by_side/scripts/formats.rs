//! Answers in JSON: text around the object, missing keys, and invalid values.

use crate::side_by_side::script::{Script, done, echoes, left, replies};

pub(super) fn scripts() -> Vec<Script> {
    [around(), lacking(), wrong()].concat()
}

fn around() -> Vec<Script> {
    let several = [
        replies(format!("{} {}", echoes("first"), echoes("second"))),
        replies(format!("{{\"note\": 1}} {}", echoes("other"))),
        replies(echoes("third")),
    ];
    let prose = [
        replies(format!("I will do it.\n{}", echoes("before"))),
        replies(format!("{}\nThat should do.", echoes("after"))),
        replies(format!("```json\n{}\n```", echoes("fence"))),
        replies(format!("Mind {{braces}} and ${{HOME}}: {}", echoes("braces"))),
    ];
    let plain = [replies(echoes("one")), replies(echoes("two"))];
    let ends = [done(), done()];
    vec![
        Script::json("plain", left("one two"), [&plain[..], &ends].concat()),
        Script::json("prose-around", left("before after fence braces"), [&prose[..], &ends].concat()),
        Script::json("several-objects", left("first third"), [&several[..], &ends].concat()),
    ]
}

fn lacking() -> Vec<Script> {
    let one_open =
        r#"{"analysis": "", "plan": "", "commands": [{"keystrokes": "echo one >> out\n", "duration": 0.1"#;
    let missing_brace = vec![replies(echoes("one").trim_end_matches('}')), done(), done()];
    let missing_brackets =
        vec![replies(one_open), replies(format!("{one_open}}}")), replies(echoes("two")), done(), done()];
    let in_a_string = r#"{"analysis": "", "plan": "", "commands": [{"keystrokes": "echo no"#;
    let nothing = ["I would rather talk about it.", "", "[1, 2]", "{not json}"].map(replies);
    let fields = [
        r#"{"commands": [{"keystrokes": "echo no >> out\n", "duration": 0.1}]}"#,
        r#"{"analysis": "", "plan": ""}"#,
        "{}",
    ];
    let recovers = [replies(echoes("one")), done(), done()];
    vec![
        Script::json("missing-brace", left("one"), missing_brace),
        Script::json("missing-brackets", left("two"), missing_brackets),
        Script::json("cut-in-a-string", left("one"), [&[replies(in_a_string)][..], &recovers].concat()),
        Script::json("no-json", left("one"), [&nothing[..], &recovers].concat()),
        Script::json("missing-fields", left("one"), [&fields.map(replies)[..], &recovers].concat()),
    ]
}

fn wrong() -> Vec<Script> {
    let order =
        r#"{"commands": [{"keystrokes": "echo one >> out\n", "duration": 0.1}], "plan": "", "analysis": ""}"#;
    let no_texts = r#"{"analysis": 1, "plan": ["x"], "commands": [{"keystrokes": "echo one >> out\n", "duration": 0.1}]}"#;
    let no_lists = [
        r#"{"analysis": "", "plan": "", "commands": "echo no >> out\n"}"#,
        r#"{"analysis": "", "plan": "", "commands": null}"#,
    ];
    let types = [&[replies(no_texts)][..], &no_lists.map(replies), &[replies(echoes("two")), done(), done()]]
        .concat();
    let unknown = r#"{"analysis": "", "plan": "", "mood": 1, "commands": [{"keystrokes": "echo one >> out\n", "duration": 0.1, "is_blocking": true}]}"#;
    // A line break within a string is invalid JSON, and one between values is valid.
    let breaks = vec![
        replies(echoes("no").replace("\\n", "\n")),
        replies(echoes("one").replace(',', ",\n\t")),
        done(),
        done(),
    ];
    vec![
        Script::json("wrong-order", left("one"), vec![replies(order), done(), done()]),
        Script::json("wrong-types", left("one two"), types),
        Script::json("unknown-fields", left("one"), vec![replies(unknown), done(), done()]),
        Script::json("raw-line-breaks", left("one"), breaks),
    ]
}
