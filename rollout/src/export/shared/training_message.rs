//! Chat messages in the form that chat templates read, for trainers that render the words of a conversation.
//!
//! A server changes the messages of a request before its template reads them. These changes are those of vLLM, so that a
//! trainer with the same template renders the same text.

use serde_json::Value;

use super::transcript::Message;

/// Returns the message as a template reads it:
///
/// - The arguments of tool calls are objects, not texts with JSON. Arguments that are no JSON object remain a text.
/// - The reasoning is `reasoning_content`, the name that templates read. vLLM's answers name it `reasoning`.
/// - A content of text parts is one text, with a line break between the parts.
pub(crate) fn training_message(mut message: Message) -> Message {
    if let Some(calls) = message.get_mut("tool_calls").and_then(Value::as_array_mut) {
        calls.iter_mut().for_each(parse_arguments);
    }
    if let Some(reasoning) = message.shift_remove("reasoning") {
        message.entry("reasoning_content").or_insert(reasoning);
    }
    if let Some(text) = message.get("content").and_then(joined) {
        message.insert("content".to_owned(), Value::String(text));
    }
    message
}

fn parse_arguments(call: &mut Value) {
    let Some(arguments) = call.get_mut("function").and_then(|function| function.get_mut("arguments")) else {
        return;
    };
    let parsed = arguments.as_str().and_then(|text| serde_json::from_str::<Message>(text).ok());
    if let Some(parsed) = parsed {
        *arguments = Value::Object(parsed);
    }
}

/// Returns the text of a list of text parts, or `None` for any other content.
fn joined(content: &Value) -> Option<String> {
    let texts: Option<Vec<&str>> =
        content.as_array()?.iter().map(|part| part.get("text")?.as_str()).collect();
    Some(texts?.join("\n"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn of(message: Value) -> Value {
        let Value::Object(message) = message else { panic!("a message is an object") };
        Value::Object(training_message(message))
    }

    #[test]
    fn arguments_reasoning_and_parts_have_the_form_of_templates() {
        let call = |arguments: Value| json!([{"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}]);
        let message = json!({"role": "assistant", "content": null, "reasoning": "r", "tool_calls": call(json!("{\"a\": 1}"))});
        let expected = json!({"role": "assistant", "content": null, "tool_calls": call(json!({"a": 1})), "reasoning_content": "r"});
        assert_eq!(of(message), expected);
        let parts = json!({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]});
        assert_eq!(of(parts), json!({"role": "user", "content": "a\nb"}));
    }

    #[test]
    fn what_has_no_other_form_stays() {
        let image = json!({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]});
        let broken = json!({"role": "assistant", "tool_calls": [{"function": {"arguments": "{"}}, {"function": 1}, 2]});
        for message in [image, broken, json!({}), json!({"tool_calls": "x", "content": 1})] {
            assert_eq!(of(message.clone()), message);
        }
    }

    proptest! {
        #[test]
        fn any_text_of_arguments_is_parsed_or_stays(arguments: String) {
            let message = json!({"tool_calls": [{"function": {"arguments": arguments}}]});
            let found = of(message);
            let kept = &found["tool_calls"][0]["function"]["arguments"];
            prop_assert!(kept.is_object() || *kept == json!(arguments));
        }
    }
}
