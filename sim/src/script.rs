//! The scripted answers of the simulator, from a TOML file. [`super`] describes the format.

mod file;

use std::time::Duration;

use http::StatusCode;

use self::file::ScriptFile;
use super::random::Random;

/// The scripted conversations.
#[derive(Clone, Debug)]
pub struct Script {
    conversations: Vec<ScriptedConversation>,
}

/// The reason why a script was refused. The message names the location in the terms of the file.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The text is not TOML, or has an unknown key or a value of the wrong type.
    #[error("script {origin}: {source}")]
    Syntax {
        /// The file, or another origin of the text.
        origin: String,
        /// The parser's error, with line and column.
        source: Box<toml::de::Error>,
    },
    /// A value is not allowed.
    #[error("script {origin}: {place}: {message}")]
    Content {
        /// The file, or another origin of the text.
        origin: String,
        /// The conversation, turn and answer, counted from 1.
        place: String,
        /// The defect and its remedy.
        message: String,
    },
}

#[derive(Clone, Debug)]
struct ScriptedConversation {
    matches: Option<String>,
    turns: Vec<Vec<WeightedAnswer>>,
}

#[derive(Clone, Debug)]
struct WeightedAnswer {
    weight: f64,
    act: Act,
}

/// The script's reaction to a request.
#[derive(Clone, Debug)]
pub(super) enum Act {
    /// Answers the request.
    Reply(Reply),
    /// Refuses the request after a delay.
    Refuse {
        /// The status of the refusal.
        status: StatusCode,
        /// The message of the refusal.
        message: String,
        /// The delay before the refusal.
        delay: Duration,
    },
}

/// A scripted answer.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub(super) content: String,
    pub(super) reasoning: Option<String>,
    pub(super) tool_calls: Vec<ScriptedToolCall>,
    pub(super) finish_reason: Option<String>,
    pub(super) delay: Duration,
    pub(super) token_delay: Option<Duration>,
    pub(super) fault: Option<Fault>,
}

/// A scripted tool call.
#[derive(Clone, Debug)]
pub(super) struct ScriptedToolCall {
    pub(super) name: String,
    /// Usually JSON. The text is sent as the script has it.
    pub(super) arguments: String,
}

/// The fault of an answer, with the number of tokens before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The connection is cut.
    Break(u32),
    /// Nothing more is sent, and the connection stays open.
    Stall(u32),
}

impl Fault {
    /// Returns the number of tokens before the fault.
    pub(super) fn after(self) -> u32 {
        match self {
            Self::Break(tokens) | Self::Stall(tokens) => tokens,
        }
    }
}

impl Script {
    /// Reads a script. `origin` names the file in errors.
    ///
    /// # Errors
    /// The text is not TOML, has unknown keys (the error lists the known ones), or has values that are not allowed.
    pub fn from_toml(text: &str, origin: &str) -> Result<Self, ScriptError> {
        let file: ScriptFile = toml::from_str(text)
            .map_err(|source| ScriptError::Syntax { origin: origin.to_owned(), source: Box::new(source) })?;
        let wrong = |place: String, message: String| ScriptError::Content {
            origin: origin.to_owned(),
            place,
            message,
        };
        if file.conversation.is_empty() {
            return Err(wrong(
                "the file".to_owned(),
                "has no [[conversation]]; write one, or leave the script out".to_owned(),
            ));
        }
        let mut conversations = Vec::with_capacity(file.conversation.len());
        for (c, conversation) in (1..).zip(file.conversation) {
            let place = format!("conversation {c}");
            if conversation.turn.is_empty() {
                return Err(wrong(place, "has no [[conversation.turn]]".to_owned()));
            }
            let mut turns = Vec::with_capacity(conversation.turn.len());
            for (t, turn) in (1..).zip(conversation.turn) {
                let place = format!("{place}, turn {t}");
                if turn.answer.is_empty() {
                    return Err(wrong(place, "has no [[conversation.turn.answer]]".to_owned()));
                }
                let choices = (1..).zip(turn.answer).map(|(a, answer)| {
                    WeightedAnswer::try_from(answer)
                        .map_err(|message| wrong(format!("{place}, answer {a}"), message))
                });
                turns.push(choices.collect::<Result<Vec<_>, _>>()?);
            }
            conversations.push(ScriptedConversation { matches: conversation.matches, turns });
        }
        Ok(Self { conversations })
    }

    /// Returns the reaction to a request, by its first user message and the number of its assistant messages. `None` if
    /// no conversation matches.
    pub(super) fn act(
        &self,
        first_user: &str,
        assistant_messages: usize,
        random: &mut Random,
    ) -> Option<&Act> {
        let fits = |conversation: &&ScriptedConversation| {
            conversation.matches.as_ref().is_none_or(|text| first_user.contains(text.as_str()))
        };
        let turns = &self.conversations.iter().find(fits)?.turns;
        // The last turn repeats.
        let choices = turns.get(assistant_messages).or(turns.last())?;
        let mut left = random.unit() * choices.iter().map(|choice| choice.weight).sum::<f64>();
        let chosen = choices.iter().find(|choice| {
            left -= choice.weight;
            left <= 0.0
        });
        // Rounding may leave a small remainder: then choose the last answer.
        chosen.or(choices.last()).map(|choice| &choice.act)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn refused(text: &str) -> String {
        Script::from_toml(text, "talk.toml").unwrap_err().to_string()
    }

    #[test]
    fn the_example_of_the_crates_page_is_a_script() {
        let page = include_str!("lib.rs").split_once("//! ```toml\n").unwrap().1;
        let example = page.split_once("//! ```\n").unwrap().0.replace("//!", "");
        assert!(example.contains("[[conversation]]"));
        Script::from_toml(&example, "example").unwrap();
    }

    #[test]
    fn the_first_match_speaks_and_the_last_turn_repeats() {
        let script = Script::from_toml(
            r#"
            [[conversation]]
            match = "hello"
            [[conversation.turn]]
            [[conversation.turn.answer]]
            content = "one"
            [[conversation.turn]]
            [[conversation.turn.answer]]
            tool_calls = [{ name = "bash", arguments = { command = "ls" } }, { name = "raw", arguments = "{not json" }]
            "#,
            "talk.toml",
        )
        .unwrap();
        let act = |text, turn| script.act(text, turn, &mut Random::new(0, 0)).cloned();
        assert!(
            matches!(act("say hello now", 0), Some(Act::Reply(Reply { content, .. })) if content == "one")
        );
        for turn in [1, 2, 9] {
            let Some(Act::Reply(reply)) = act("hello", turn) else { panic!() };
            assert_eq!(reply.tool_calls[0].arguments, r#"{"command":"ls"}"#);
            assert_eq!(reply.tool_calls[1].arguments, "{not json");
        }
        assert!(act("something else", 0).is_none());
    }

    #[test]
    fn weights_choose() {
        let text = "[[conversation]]\n[[conversation.turn]]\n[[conversation.turn.answer]]\ncontent = \"often\"\nweight = 9\n\
                    [[conversation.turn.answer]]\nerror = { status = 503, message = \"busy\" }";
        let script = Script::from_toml(text, "talk.toml").unwrap();
        let mut random = Random::new(7, 0);
        let refusals =
            (0..1000).filter(|_| matches!(script.act("", 0, &mut random), Some(Act::Refuse { .. }))).count();
        assert!((60..140).contains(&refusals), "{refusals} of 1000 at weight 1 of 10");
    }

    #[test]
    fn errors_say_what_and_where() {
        let answer = "[[conversation]]\n[[conversation.turn]]\n[[conversation.turn.answer]]\n";
        let unknown = refused(&format!("{answer}contnt = \"x\""));
        assert!(unknown.contains("talk.toml") && unknown.contains("line 4"), "{unknown}");
        assert!(unknown.contains("unknown field `contnt`") && unknown.contains("`content`"), "{unknown}");
        assert!(refused("").contains("no [[conversation]]"));
        assert!(refused("[[conversation]]").contains("conversation 1: has no [[conversation.turn]]"));
        assert!(refused(answer).contains("conversation 1, turn 1, answer 1: is empty"));
        for (text, part) in [
            ("content = \"x\"\nweight = 0", "weight is 0"),
            ("content = \"x\"\nerror = { status = 500, message = \"m\" }", "either refused or answered"),
            ("error = { status = 200, message = \"m\" }", "400 to 599"),
            ("break_after = 1\nstall_after = 1", "exclude each other"),
            ("content = \"a<|im_end|>\"", "contains <|im_end|>"),
            ("tool_calls = [{ name = \"a b\", arguments = \"{}\" }]", "tool name `a b`"),
            ("tool_calls = [{ name = \"a\", arguments = 1 }]", "a string of JSON or a table"),
            ("error = { status = 500, mesage = \"m\" }", "unknown field `mesage`"),
        ] {
            let message = refused(&format!("{answer}{text}"));
            assert!(message.contains(part), "{message}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in any::<String>()) {
            let _ = Script::from_toml(&text, "x");
        }

        #[test]
        fn no_table_panics(lines in prop::collection::vec(prop::sample::select(vec![
            "[[conversation]]", "[[conversation.turn]]", "[[conversation.turn.answer]]", "match = \"a\"", "content = \"b\"", "weight = -1",
            "weight = nan", "error = { status = 99999, message = \"\" }", "error = { status = 404, message = \"m\" }", "break_after = 3",
            "stall_after = -1", "tool_calls = [{ name = \"f\", arguments = { d = 1979-05-27, n = nan } }]", "delay_ms = 5",
        ]), 0..12)) {
            if let Ok(script) = Script::from_toml(&lines.join("\n"), "x") {
                prop_assert!(script.act("a", 3, &mut Random::new(0, 0)).is_some() || lines.contains(&"match = \"a\""));
            }
        }
    }
}
