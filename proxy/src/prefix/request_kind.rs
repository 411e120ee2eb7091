//! Kinds of requests that a template may treat differently. An error in one request of a kind counts against the whole
//! kind.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::message::StoredMessage;
use super::request::PromptInputs;

/// The features of a request that templates look at, in words.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct RequestKind(String);

impl RequestKind {
    pub(super) fn of(messages: &[Arc<StoredMessage>], inputs: &PromptInputs) -> Self {
        let mut words = BTreeSet::new();
        for message in messages {
            of_message(message, &mut words);
        }
        let request = &inputs.request;
        let given = [
            ("tools", request.tools.is_some()),
            ("tool_choice=none", request.tool_choice.is_some()),
            ("documents", request.documents.is_some()),
            ("reasoning_effort", request.reasoning_effort.is_some()),
        ];
        words.extend(given.into_iter().filter(|(_, is_given)| *is_given).map(|(word, _)| word.to_owned()));
        let arguments = request.chat_template_kwargs.as_ref().and_then(Value::as_object);
        words.extend(arguments.into_iter().flatten().map(|(name, value)| match value {
            // A boolean argument selects a path of the template, so its value belongs to the kind. Other values are
            // data.
            Value::Bool(value) => format!("{name}={value}"),
            _ => name.clone(),
        }));
        Self(words.into_iter().collect::<Vec<_>>().join(", "))
    }

    #[cfg(test)]
    pub(super) fn named(words: &str) -> Self {
        Self(words.to_owned())
    }
}

/// Adds the role, and the members that a plain message of that role lacks.
fn of_message(message: &StoredMessage, words: &mut BTreeSet<String>) {
    let role = message.role();
    words.insert(role.to_owned());
    words.extend(message.unusual().iter().map(|member| format!("{role}.{member}")));
}

impl fmt::Display for RequestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::prefix::fingerprint::Fingerprint;
    use crate::prefix::request::PromptRequest;

    fn shape(body: &Value) -> String {
        let text = body.to_string();
        let request = PromptRequest::read(&text).unwrap();
        let messages: Vec<_> = request
            .messages
            .iter()
            .map(|text| Arc::new(StoredMessage::of_request(text, Fingerprint::of(text)).unwrap()))
            .collect();
        RequestKind::of(&messages, &request.inputs.read()).to_string()
    }

    #[test]
    fn a_shape_tells_what_a_template_may_look_at() {
        let body = json!({
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "hi"}], "name": ""},
                {"role": "assistant", "content": null, "refusal": null, "tool_calls": [{"function": {"name": "f"}}]},
                {"role": "tool", "content": "x", "tool_call_id": "1"},
            ],
            "tools": [{}], "chat_template_kwargs": {"enable_thinking": false, "date": "today"},
        });
        assert_eq!(
            shape(&body),
            "assistant, assistant.tool_calls, date, enable_thinking=false, tool, tools, user, user.content"
        );
        assert_eq!(shape(&json!({"messages": [{"role": "user", "content": "hi"}]})), "user");
    }
}
