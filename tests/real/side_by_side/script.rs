//! What a script is, and how its answers are written down.

use serde_json::{Value, json};

/// A model's part in a conversation.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) name: &'static str,
    pub(super) setting: Setting,
    /// To the first call, the second and so on; the last one repeats.
    pub(super) answers: Vec<Answer>,
    /// A shell command that succeeds where the work is done.
    pub(super) check: String,
}

/// How the agent is set up, by the options of Terminus-2's class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    Json,
    Xml,
    /// A few thousand tokens, and the conversation is summed up ahead.
    SmallContext,
    /// With turns enough to wait for a program.
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

/// What the model does with one call.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Says(String),
    /// The same, but the limit on tokens ended it.
    IsCutOff(String),
    Refuses(u16, &'static str),
    /// Waits until the terminal shows this, and says that.
    Once(&'static str, String),
}

impl Script {
    pub(super) fn json(name: &'static str, check: impl Into<String>, answers: Vec<Answer>) -> Self {
        Self { name, setting: Setting::Json, answers, check: check.into() }
    }

    pub(super) fn xml(name: &'static str, check: impl Into<String>, answers: Vec<Answer>) -> Self {
        Self { name, setting: Setting::Xml, answers, check: check.into() }
    }

    /// No script's instruction is part of another's, and helpers of a summary are told it too.
    pub(super) fn instruction(&self) -> String {
        format!("Play the script ({}).", self.name)
    }
}

/// Succeeds where `out` has these words, a line each.
pub(super) fn left(words: &str) -> String {
    format!("test \"$(cat out | xargs)\" = '{words}'")
}

/// Any text.
pub(super) fn says(text: impl Into<String>) -> Answer {
    Answer::Says(text.into())
}

/// A faultless answer with these keystrokes, each with its duration.
pub(super) fn types(commands: &[(&str, f64)]) -> Answer {
    says(text(commands, None))
}

/// A faultless answer that leaves this word in `out`.
pub(super) fn echoes(word: &str) -> String {
    text(&[(&format!("echo {word} >> out\n"), 0.1)], None)
}

/// A faultless answer without commands that says that the task is complete.
pub(super) fn done() -> Answer {
    done_as(json!(true))
}

/// The same, with this for the flag.
pub(super) fn done_as(flag: Value) -> Answer {
    says(text(&[], Some(flag)))
}

/// A faultless answer's text.
pub(super) fn text(commands: &[(&str, f64)], task_complete: Option<Value>) -> String {
    let commands: Vec<_> =
        commands.iter().map(|(keys, wait)| json!({"keystrokes": keys, "duration": wait})).collect();
    let mut answer = json!({"analysis": "Seen.", "plan": "On.", "commands": commands});
    if let Some(flag) = task_complete {
        answer["task_complete"] = flag;
    }
    answer.to_string()
}

/// An answer whose only fault is in its commands.
pub(super) fn with_commands(commands: &Value) -> Answer {
    says(json!({"analysis": "Seen.", "plan": "On.", "commands": commands}).to_string())
}
