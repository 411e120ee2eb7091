//! The simulator's chat template: ChatML with tools, tool calls and tool results in the Hermes form.
//!
//! The next prompt contains an answer exactly as it was sampled, if the agent sends its parts back unchanged. An agent
//! that drops the reasoning or rewrites arguments gets another prompt, as with real templates.

use super::errors::RequestError;
use super::fields::Fields;
use super::tokens::encode;

/// A conversation as text for the model, with the data that scripts match.
#[derive(Debug)]
pub(super) struct Rendered {
    /// The prompt.
    pub(super) text: String,
    /// The text of the first user message. Empty if there is none.
    pub(super) first_user: String,
    /// The number of assistant messages.
    pub(super) assistant_messages: usize,
    /// Whether the answer may start with reasoning.
    pub(super) thinking: bool,
}

impl Rendered {
    /// The prompt's tokens.
    pub(super) fn tokens(&self) -> Vec<u32> {
        encode(&self.text)
    }
}

/// Renders `messages` with `tools`, `add_generation_prompt` (default true), `continue_final_message` and
/// `chat_template_kwargs.enable_thinking` of a chat or tokenize request.
pub(super) fn render(body: &Fields<'_>) -> Result<Rendered, RequestError> {
    let messages = body.objects("messages")?.ok_or_else(|| body.missing("messages"))?;
    let continues = body.boolean("continue_final_message")?.unwrap_or(false);
    let generates = body.boolean("add_generation_prompt")?.unwrap_or(!continues);
    if continues && generates {
        let message = "Cannot set both `continue_final_message` and `add_generation_prompt` to True.";
        return Err(RequestError::bad_request(message));
    }
    let options = body.object("chat_template_kwargs")?;
    let thinking =
        options.map(|options| options.boolean("enable_thinking")).transpose()?.flatten().unwrap_or(true);
    let mut rendered =
        Rendered { text: String::new(), first_user: String::new(), assistant_messages: 0, thinking };
    let mut tools = tools_text(body)?;
    let mut seen_user = false;
    let first_role = messages.first().map(|first| first.string("role")).transpose()?.flatten();
    // Tools belong to the system message. If there is no such message, they get their own.
    if !matches!(first_role, Some("system" | "developer"))
        && let Some(tools) = tools.take()
    {
        open(&mut rendered.text, "system", &tools);
        close(&mut rendered.text);
    }
    let last = messages.len();
    for (position, message) in (1..).zip(&messages) {
        let role = message.string("role")?.ok_or_else(|| message.missing("role"))?;
        let content = message.text("content")?.unwrap_or_default();
        let text = &mut rendered.text;
        match role {
            "system" | "developer" => {
                open(text, "system", &content);
                if let Some(tools) = tools.take() {
                    text.push_str("\n\n");
                    text.push_str(&tools);
                }
            }
            "user" => {
                open(text, "user", &content);
                if !std::mem::replace(&mut seen_user, true) {
                    rendered.first_user = content;
                }
            }
            "assistant" => {
                rendered.assistant_messages += 1;
                assistant(text, message, &content)?;
            }
            "tool" => {
                open(text, "user", "<tool_response>\n");
                text.push_str(&content);
                text.push_str("\n</tool_response>");
            }
            other => return Err(RequestError::bad_request(format!("Unexpected message role: {other}"))),
        }
        if !(continues && position == last) {
            close(&mut rendered.text);
        }
    }
    if generates {
        // Without thinking, the prompt itself holds the empty reasoning block.
        open(&mut rendered.text, "assistant", if thinking { "" } else { "<think></think>" });
    }
    Ok(rendered)
}

/// Writes an assistant message in the text that was sampled for an answer of these parts.
fn assistant(text: &mut String, message: &Fields<'_>, content: &str) -> Result<(), RequestError> {
    open(text, "assistant", "");
    let reasoning = message.text("reasoning")?.or(message.text("reasoning_content")?);
    if let Some(reasoning) = reasoning.filter(|reasoning| !reasoning.is_empty()) {
        text.push_str("<think>");
        text.push_str(&reasoning);
        text.push_str("</think>");
    }
    text.push_str(content);
    for call in message.objects("tool_calls")?.unwrap_or_default() {
        let function = call.object("function")?.ok_or_else(|| call.missing("function"))?;
        let arguments = match function.raw("arguments") {
            Some(serde_json::Value::String(arguments)) => arguments.clone(),
            Some(other) => other.to_string(),
            None => "{}".to_owned(),
        };
        let (before, between, after) = CALL_FRAME;
        for part in [before, function.string("name")?.unwrap_or_default(), between, &arguments, after] {
            text.push_str(part);
        }
    }
    Ok(())
}

/// The text before the name, between name and arguments, and after the arguments of a tool call.
pub(super) const CALL_FRAME: (&str, &str, &str) =
    ("<tool_call>\n{\"name\": \"", "\", \"arguments\": ", "}\n</tool_call>");

fn tools_text(body: &Fields<'_>) -> Result<Option<String>, RequestError> {
    let tools = body.list("tools")?.unwrap_or_default();
    if tools.is_empty() || body.raw("tool_choice").is_some_and(|choice| choice == "none") {
        return Ok(None);
    }
    let lines: Vec<String> = tools.iter().map(ToString::to_string).collect();
    Ok(Some(format!("# Tools\n\n<tools>\n{}\n</tools>", lines.join("\n"))))
}

fn open(text: &mut String, role: &str, content: &str) {
    for part in ["<|im_start|>", role, "\n", content] {
        text.push_str(part);
    }
}

fn close(text: &mut String) {
    text.push_str("<|im_end|>\n");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(body: serde_json::Value) -> Result<String, RequestError> {
        let map = body.as_object().unwrap().clone();
        render(&Fields::of_body(&map)).map(|rendered| rendered.text)
    }

    #[test]
    fn a_conversation_with_tools() {
        let rendered = text(json!({
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "hi"}]},
                {"role": "assistant", "content": null, "reasoning": "r", "tool_calls": [
                    {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
                {"role": "tool", "tool_call_id": "1", "content": "done"},
            ],
            "tools": [{"type": "function"}],
        }));
        assert_eq!(
            rendered.unwrap(),
            "<|im_start|>system\nBe brief.\n\n# Tools\n\n<tools>\n{\"type\":\"function\"}\n</tools><|im_end|>\n\
             <|im_start|>user\nhi<|im_end|>\n\
             <|im_start|>assistant\n<think>r</think><tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call><|im_end|>\n\
             <|im_start|>user\n<tool_response>\ndone\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
        );
    }

    #[test]
    fn the_end_of_the_prompt() {
        let messages = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]);
        let with = |key: &str, value: serde_json::Value| {
            let mut body = json!({"messages": messages, "add_generation_prompt": false});
            body[key] = value;
            text(body)
        };
        assert!(with("seed", json!(1)).unwrap().ends_with("b<|im_end|>\n"));
        assert!(with("continue_final_message", json!(true)).unwrap().ends_with("assistant\nb"));
        let direct = json!({"messages": messages, "chat_template_kwargs": {"enable_thinking": false}});
        assert!(text(direct).unwrap().ends_with("<|im_start|>assistant\n<think></think>"));
        assert!(
            text(
                json!({"messages": messages, "continue_final_message": true, "add_generation_prompt": true})
            )
            .is_err()
        );
    }
}
