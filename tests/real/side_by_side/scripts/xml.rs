//! Scripts of answers in XML.

use crate::side_by_side::script::{Answer, Script, left, replies};

/// Returns a valid answer with this text inside `commands`.
fn with_commands(inside: &str) -> String {
    format!(
        "<response>\n<analysis>Seen.</analysis>\n<plan>On.</plan>\n<commands>\n{inside}\n</commands>\n</response>"
    )
}

/// Returns a valid answer that writes a line to `out`.
fn echoes(word: &str) -> String {
    with_commands(&echo(word))
}

fn echo(word: &str) -> String {
    format!("<keystrokes duration=\"0.1\">echo {word} >> out\n</keystrokes>")
}

fn done() -> Answer {
    replies(
        "<response>\n<analysis>Seen.</analysis>\n<plan>None.</plan>\n<commands></commands>\n\
         <task_complete>true</task_complete>\n</response>",
    )
}

pub(super) fn scripts() -> Vec<Script> {
    vec![
        Script::xml(
            "xml-plain",
            left("one two three"),
            vec![
                replies(echoes("one")),
                replies(with_commands(&format!("{}{}", echo("two"), echo("three")))),
                done(),
                done(),
            ],
        ),
        Script::xml(
            "xml-around",
            left("one two"),
            vec![
                replies(format!("I will do it.\n{}\nThat should do.", echoes("one"))),
                replies(format!("{}\n{}", echoes("two"), echoes("no"))),
                done(),
                done(),
            ],
        ),
        Script::xml(
            "xml-unclosed",
            left("one two"),
            vec![
                replies(echoes("one").trim_end_matches("</response>")),
                replies(echoes("no").trim_end_matches("\n</commands>\n</response>")),
                replies(echoes("two")),
                done(),
                done(),
            ],
        ),
        Script::xml(
            "xml-whole-before-the-cut",
            left("one"),
            vec![Answer::IsCutOff(format!("{}\nAnd now I would", echoes("one"))), done(), done()],
        ),
        Script::xml(
            "xml-cut-off",
            left("two"),
            vec![
                Answer::IsCutOff(echoes("no").trim_end_matches("</commands>\n</response>").to_owned()),
                replies(echoes("two")),
                done(),
                done(),
            ],
        ),
        Script::xml(
            "xml-no-response",
            left("one"),
            vec![
                replies("I would rather talk about it."),
                replies("<analysis>Seen.</analysis><commands></commands>"),
                replies(r#"{"analysis": "", "plan": "", "commands": []}"#),
                replies(echoes("one")),
                done(),
                done(),
            ],
        ),
        Script::xml(
            "xml-sections",
            left("order missing"),
            vec![
                replies(format!(
                    "<response><commands>{}</commands><plan/><analysis/></response>",
                    echo("order")
                )),
                replies(format!("<response><commands>{}</commands></response>", echo("missing"))),
                replies("<response><analysis/><plan/></response>"),
                replies("<response><analysis/><plan/><commands/></response>"),
                replies("<response><analysis/><plan/><mood>1</mood><commands></commands></response>"),
                done(),
                done(),
            ],
        ),
        Script::xml(
            "xml-attributes",
            left("missing word bare single other negative"),
            vec![
                replies(with_commands(
                    "<keystrokes>echo missing >> out\n</keystrokes><keystrokes duration=\"soon\">echo word >> out\n</keystrokes>",
                )),
                replies(with_commands(
                    "<keystrokes duration=0.1>echo bare >> out\n</keystrokes>\
                 <keystrokes duration='0.1'>echo single >> out\n</keystrokes>\
                 <keystrokes duration=\"0.1\" wait=\"1\">echo other >> out\n</keystrokes>\
                 <keystrokes duration=\"-1\">echo negative >> out\n</keystrokes>",
                )),
                done(),
                done(),
            ],
        ),
        Script::xml(
            "xml-raw-text",
            "test \"$(cat out)\" = 'a &amp; b <c>'",
            vec![
                replies(with_commands(
                    "<keystrokes duration=\"0.2\">echo 'a &amp; b <c>' > out\n</keystrokes>",
                )),
                done(),
                done(),
            ],
        ),
        Script::xml(
            "xml-complete-in-keystrokes",
            "grep -q task_complete out",
            vec![
                replies(with_commands(
                    "<keystrokes duration=\"0.2\">echo '<task_complete>true</task_complete>' >> out\n</keystrokes>",
                )),
                done(),
                done(),
            ],
        ),
        Script::xml(
            "xml-closed-keystrokes",
            left("one"),
            vec![
                replies(with_commands(&format!("<keystrokes duration=\"0.1\"/>{}", echo("one")))),
                done(),
                done(),
            ],
        ),
        Script::xml(
            "xml-complete",
            left("one"),
            vec![
                replies(echoes("one")),
                replies(
                    "<response><analysis/><plan/><commands/><task_complete> TRUE </task_complete></response>",
                ),
                replies(
                    "<response><analysis/><plan/><commands/><task_complete>yes</task_complete></response>",
                ),
                replies("<response><task_complete>true</task_complete></response>"),
                replies("<response><task_complete>true</task_complete></response>"),
            ],
        ),
    ]
}
