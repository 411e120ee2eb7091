//! The agent's messages to the model during its work.

pub(crate) mod summarize;

use std::fmt::Write as _;

use crate::answer::{AnswerError, AnswerFormat};
use crate::terminal::Observation;

/// Returns the first message: the rules, the task, and the terminal.
pub fn first(format: AnswerFormat, instruction: &str, observation: &Observation) -> String {
    format!("{}\n# Task\n\n{instruction}\n\n{}", rules(format), terminal(observation))
}

fn rules(format: AnswerFormat) -> String {
    let (answers, wait) = match format {
        AnswerFormat::Json => (JSON, "send empty \"keystrokes\" with a duration"),
        AnswerFormat::Xml => (XML, "send <keystrokes duration=\"10.0\"></keystrokes>"),
    };
    format!("{GAME}{answers}{TYPING}  To wait longer, {wait}{LOOKING}")
}

const GAME: &str = "You work alone at a Linux terminal and solve the task below by typing into it. Nobody can answer questions.\n\n";

const JSON: &str = r#"Each of your answers is one JSON object and nothing else:

{
  "analysis": "The build failed: make is not installed.",
  "plan": "Install make, then build again.",
  "commands": [
    {"keystrokes": "apt-get install -y make\n", "duration": 20.0},
    {"keystrokes": "make\n", "duration": 5.0}
  ],
  "task_complete": false
}

- "analysis" (required): what the terminal shows, what is done, what is left.
- "plan" (required): what you do next, and why.
- "commands" (required, may be empty): typed one after the other. A shell runs a line only when you end it with "\n".
- "task_complete" (optional, default false): true once the task is solved and you have checked it.
"#;

const XML: &str = r#"Each of your answers is one <response> and nothing else:

<response>
<analysis>The build failed: make is not installed.</analysis>
<plan>Install make, then build again.</plan>
<commands>
<keystrokes duration="20.0">apt-get install -y make
</keystrokes>
<keystrokes duration="5.0">make
</keystrokes>
</commands>
<task_complete>false</task_complete>
</response>

- <analysis> (required): what the terminal shows, what is done, what is left.
- <plan> (required): what you do next, and why.
- <commands> (required, may be empty): typed one after the other. A shell runs a line only when you end it with a line
  break. Everything between <keystrokes ...> and </keystrokes> counts, spaces too. It is not XML: write <, > and & as
  they are, never as &lt;, &gt; and &amp;.
- <task_complete> (optional, default false): true once the task is solved and you have checked it.
"#;

const TYPING: &str = r#"
How commands are typed:

- The keystrokes are typed exactly as written. If they are the name of a key and nothing else, that key is pressed: C-c
  and C-d (and other letters), Enter, Escape, Tab, Space, BSpace, Up, Down, Left, Right, Home, End, PageUp, PageDown, F1
  and so on.
- The duration (seconds, default 1.0, at most 60) is how long to wait before the next keystrokes, or before you see the
  terminal again. Use 0.1 for commands that are done at once (cd, ls, echo), more for slow ones.
"#;

const LOOKING: &str = " and look again.

You then see what the terminal printed since your last answer, or its screen if nothing new came. Of very long output
only the beginning and the end are shown, so write it to a file and look at the parts you need. Commands must not wait
for input that you do not type.
";

/// Returns the message after executed commands.
pub fn after_commands(observation: &Observation, warnings: &[String]) -> String {
    format!("{}{}", remarks(warnings), terminal(observation))
}

/// Returns the message after the first answer that declares the task complete.
pub fn confirm_completion(format: AnswerFormat, observation: &Observation, warnings: &[String]) -> String {
    let (complete, incomplete) = match format {
        AnswerFormat::Json => ("\"task_complete\": true", "\"task_complete\": false"),
        AnswerFormat::Xml => ("<task_complete>true</task_complete>", "<task_complete>false</task_complete>"),
    };
    format!(
        "{}{}\nYou said that the task is complete. Your work will be judged as it is now, and you cannot change it \
         afterwards. If you are sure, answer once more with {complete}. If anything is left to do or to check, go on \
         with {incomplete}.\n",
        remarks(warnings),
        terminal(observation)
    )
}

/// Returns the message after an unreadable answer.
pub fn unreadable(format: AnswerFormat, error: &AnswerError) -> String {
    let wanted = match format {
        AnswerFormat::Json => "one JSON object that has \"analysis\", \"plan\" and \"commands\"",
        AnswerFormat::Xml => "one <response> that has <analysis>, <plan> and <commands>",
    };
    format!(
        "Your answer could not be read, and nothing was typed. {}\n{}Answer again with {wanted}.\n",
        error.problem,
        remarks(&error.warnings)
    )
}

/// Returns the message after an answer that the token limit truncated.
pub(crate) fn cut_off(warnings: &[String]) -> String {
    format!(
        "{}Your answer was longer than allowed and was cut off, and nothing was typed. Answer again in fewer words; do \
         long work, such as a large file, in several answers.\n",
        remarks(warnings)
    )
}

fn remarks(warnings: &[String]) -> String {
    let mut text = String::new();
    if !warnings.is_empty() {
        text.push_str("About your last answer:\n");
        for warning in warnings {
            let written = writeln!(text, "- {warning}");
            debug_assert!(written.is_ok(), "writing to a String cannot fail");
        }
        text.push('\n');
    }
    text
}

fn terminal(observation: &Observation) -> String {
    match observation {
        Observation::NewOutput(text) => format!("New terminal output:\n\n{text}\n"),
        Observation::Screen(text) => format!("Terminal screen:\n\n{text}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_in_the_rules_keeps_the_rules() {
        for format in [AnswerFormat::Json, AnswerFormat::Xml] {
            let rules = rules(format);
            let (begin, end) = match format {
                AnswerFormat::Json => ("{\n", "\n}\n"),
                AnswerFormat::Xml => ("<response>\n", "</response>\n"),
            };
            let example = &rules[rules.find(begin).unwrap()..];
            let answer = format.parse(&example[..example.find(end).unwrap() + end.len()]).unwrap();
            assert_eq!(answer.commands.len(), 2);
            assert_eq!(answer.warnings, Vec::<String>::new());
        }
    }

    #[test]
    fn warnings_come_before_the_terminal() {
        let text = after_commands(&Observation::NewOutput("$ ls".into()), &["Be brief.".into()]);
        assert_eq!(text, "About your last answer:\n- Be brief.\n\nNew terminal output:\n\n$ ls\n");
        assert_eq!(after_commands(&Observation::Screen("$".into()), &[]), "Terminal screen:\n\n$\n");
    }
}
