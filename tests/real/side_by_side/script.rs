//! The parts of a script, and constructors of its answers.

use serde_json::{Value, json};

/// A model's part in a conversation.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) name: &'static str,
    pub(super) setting: Setting,
    /// The answers to the first call, the second and so on. The last one repeats.
    pub(super) answers: Vec<Answer>,
    /// A shell command that succeeds if the work is done.
    pub(super) check: String,
}

/// The agent's options, by the names of Terminus-2's class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    Json,
    Xml,
    /// A context of a few thousand tokens, with a summary before it is full.
    SmallContext,
    /// A limit with enough turns to wait for a program.
    FullScreen,
}

impl Setting {
    pub(super) const ALL: [Self; 4] = [Self::Json, Self::Xml, Self::SmallContext, Self::FullScreen];

    pub(super) fn options(self) -> Value {
        match self {
            Self::Json => json!({"max_turns": 8}),
            Self::Xml => json!({"max_turns": 8, "parser_name": "xml"}),
            Self::SmallContext => json!({
                "max_turns": 8, "model_info": {"max_input_tokens": 20000}, "proactive_summarization_threshold": 17000,
            }),
            Self::FullScreen => json!({"max_turns": 100}),
        }
    }
}

/// The model's answer to one call.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Replies(String),
    /// The same, but cut off by the token limit.
    IsCutOff(String),
    Refuses(u16, &'static str),
    /// Waits until the terminal shows the first text, and then answers with the second.
    Once(&'static str, String),
}

impl Script {
    pub(super) fn json(name: &'static str, check: impl Into<String>, answers: Vec<Answer>) -> Self {
        Self { name, setting: Setting::Json, answers, check: check.into() }
    }

    pub(super) fn xml(name: &'static str, check: impl Into<String>, answers: Vec<Answer>) -> Self {
        Self { name, setting: Setting::Xml, answers, check: check.into() }
    }

    /// Returns an instruction that is not part of any other script's. Helpers of a summary get it too.
    pub(super) fn instruction(&self) -> String {
        format!("Play the script ({}).", self.name)
    }
}

/// Returns a check that succeeds if `out` has these words, one per line.
pub(super) fn left(words: &str) -> String {
    format!("test \"$(cat out | xargs)\" = '{words}'")
}

/// Returns an answer with any text.
pub(super) fn replies(text: impl Into<String>) -> Answer {
    Answer::Replies(text.into())
}

/// Returns a valid answer with these keystrokes, each with its duration.
pub(super) fn types(commands: &[(&str, f64)]) -> Answer {
    replies(text(commands, None))
}

/// Returns the text of a valid answer that writes this word to `out`.
pub(super) fn echoes(word: &str) -> String {
    text(&[(&format!("echo {word} >> out\n"), 0.1)], None)
}

/// Returns a valid answer without commands that completes the task.
pub(super) fn done() -> Answer {
    done_as(json!(true))
}

/// Returns the same answer with this value for the flag.
pub(super) fn done_as(flag: Value) -> Answer {
    replies(text(&[], Some(flag)))
}

/// Returns the text of a valid answer.
pub(super) fn text(commands: &[(&str, f64)], task_complete: Option<Value>) -> String {
    let commands: Vec<_> =
        commands.iter().map(|(keys, wait)| json!({"keystrokes": keys, "duration": wait})).collect();
    let mut answer = json!({"analysis": "Seen.", "plan": "On.", "commands": commands});
    if let Some(flag) = task_complete {
        answer["task_complete"] = flag;
    }
    answer.to_string()
}

/// Returns an answer that is invalid only in its commands.
pub(super) fn with_commands(commands: &Value) -> Answer {
    replies(json!({"analysis": "Seen.", "plan": "On.", "commands": commands}).to_string())
}
