//! The lines of `GET /v1/trials/{id}/calls`.

use std::sync::Arc;

use rolltap_rollout::call::Call;
use rolltap_rollout::conversation::Conversation;
use schemars::JsonSchema;
use serde::ser::Error;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// A line of the answer.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum CallItem {
    /// A call.
    Call(Arc<Call>),
    /// With `messages=true`: a call with its conversation.
    WithMessages(CallWithMessages),
}

/// A call with its conversation. Its texts have the form of chat completions, whatever the dialect of the agent.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CallWithMessages {
    #[serde(flatten)]
    call: Arc<Call>,
    /// The messages of the request. Null if they were not recorded: those of completions, and those of trials with
    /// `history: off`.
    #[schemars(with = "Option<Vec<Value>>")]
    messages: Option<Vec<JsonText>>,
    /// The tools that the request offers. Null if it offers none, or if they were not recorded.
    #[schemars(with = "Option<Vec<Value>>")]
    tools: Option<JsonText>,
    /// The recorded answers. An answer that was cut off is absent.
    answers: Vec<ChoiceMessage>,
}

/// The answer of one choice as a message.
#[derive(Debug, Serialize, JsonSchema)]
struct ChoiceMessage {
    /// The index of the choice.
    choice_index: u32,
    /// The message (`role`, `content`, `tool_calls`).
    #[schemars(with = "Value")]
    message: JsonText,
}

/// A text that is JSON already. It is written as it is, and not copied before.
#[derive(Debug)]
struct JsonText(Arc<str>);

impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let json: &RawValue = serde_json::from_str(&self.0).map_err(S::Error::custom)?;
        json.serialize(serializer)
    }
}

impl CallWithMessages {
    /// `conversation` is `None` if it was not recorded.
    pub(super) fn new(call: Arc<Call>, conversation: Option<Conversation>) -> Self {
        let Some(Conversation { messages, tools, answers }) = conversation else {
            return Self { call, messages: None, tools: None, answers: Vec::new() };
        };
        let answers = answers.into_iter();
        Self {
            call,
            messages: Some(messages.into_iter().map(JsonText).collect()),
            tools: tools.map(JsonText),
            answers: answers
                .map(|(choice_index, message)| ChoiceMessage { choice_index, message: JsonText(message) })
                .collect(),
        }
    }
}
