//! Chat requests of every shape.

use serde_json::{Value, json};

/// Returns request shapes by name: every kind of chat request from an agent that the tiny model accepts.
pub(super) fn shapes() -> Vec<(&'static str, Value)> {
    let tool = json!({"type": "function", "function": {"name": "look", "description": "Look.",
        "parameters": {"type": "object", "properties": {"at": {"type": "string", "enum": ["sky", "sea"]}}, "required": ["at"]}}});
    let no_thinking = json!({"enable_thinking": false});
    let long = "foo bar ".repeat(4000);
    vec![
        ("plain", json!({})),
        (
            "system",
            json!({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]}),
        ),
        (
            "parts",
            json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}]}),
        ),
        ("unicode", json!({"messages": [{"role": "user", "content": "日本語 🎉 \u{0} \u{7f} é"}]})),
        (
            "history",
            json!({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "reasoning": "c"}, {"role": "user", "content": "d"}]}),
        ),
        (
            "tool results",
            json!({"tools": [tool], "messages": [
            {"role": "user", "content": "Look"},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "look", "arguments": "{\"at\": \"sky\"}"}}]},
            {"role": "tool", "tool_call_id": "1", "content": "blue"}]}),
        ),
        ("one token", json!({"max_tokens": 1})),
        ("max_completion_tokens", json!({"max_tokens": null, "max_completion_tokens": 5})),
        ("stop strings", json!({"stop": ["e", "o"], "chat_template_kwargs": no_thinking})),
        (
            "stop strings kept",
            json!({"stop": ["e"], "include_stop_str_in_output": true, "chat_template_kwargs": no_thinking}),
        ),
        ("stop token", json!({"logit_bias": {"77": 100}, "stop_token_ids": [77]})),
        ("end of turn", json!({"logit_bias": {"4089": 100}})),
        ("ignore_eos", json!({"ignore_eos": true, "logit_bias": {"4089": 100}})),
        ("no thinking", json!({"chat_template_kwargs": no_thinking})),
        ("reasoning hidden", json!({"include_reasoning": false})),
        ("logprobs", json!({"logprobs": true, "top_logprobs": 3})),
        ("logprobs alone", json!({"logprobs": true})),
        ("token ids", json!({"return_token_ids": true})),
        ("both", json!({"logprobs": true, "return_token_ids": true})),
        ("logprobs refused", json!({"logprobs": false})),
        ("two answers", json!({"n": 2, "temperature": 0})),
        ("tools", json!({"tools": [tool], "chat_template_kwargs": no_thinking})),
        (
            "tool required",
            json!({"tools": [tool], "tool_choice": "required", "max_tokens": 60, "chat_template_kwargs": no_thinking}),
        ),
        (
            "tool named",
            json!({"tools": [tool], "tool_choice": {"type": "function", "function": {"name": "look"}}, "max_tokens": 60, "chat_template_kwargs": no_thinking}),
        ),
        (
            "tool with ids",
            json!({"tools": [tool], "tool_choice": "required", "max_tokens": 60, "return_token_ids": true, "logprobs": true, "chat_template_kwargs": no_thinking}),
        ),
        (
            "tool text",
            json!({"tools": [tool], "max_tokens": 80, "chat_template_kwargs": no_thinking,
            "structured_outputs": {"regex": "ok<tool_call>\\{\"name\": \"look\", \"arguments\": \\{\"at\": \"sky\"\\}\\}</tool_call>"}}),
        ),
        (
            "json schema",
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "properties": {"a": {"type": "integer", "maximum": 9}}, "required": ["a"], "additionalProperties": false}}}, "max_tokens": 40, "chat_template_kwargs": no_thinking}),
        ),
        (
            "split characters",
            json!({"structured_outputs": {"regex": "日本語🎉 é"}, "max_tokens": 40, "chat_template_kwargs": no_thinking}),
        ),
        ("min_tokens", json!({"min_tokens": 5, "max_tokens": 9})),
        ("penalties", json!({"presence_penalty": 0.5, "frequency_penalty": 0.25, "repetition_penalty": 1.1})),
        ("unknown key", json!({"totally_unknown": {"x": [1.50, 1e3]}})),
        ("unknown model", json!({"model": "nobody"})),
        ("messages of a wrong type", json!({"messages": "hi"})),
        ("no messages", json!({"messages": null})),
        ("negative temperature", json!({"temperature": -1})),
        ("too many logprobs", json!({"logprobs": true, "top_logprobs": 50})),
        ("logprobs of a wrong type", json!({"logprobs": "all"})),
        ("logprobs as text", json!({"logprobs": "true"})),
        ("ids as text", json!({"return_token_ids": "yes"})),
        ("ids of a wrong type", json!({"return_token_ids": [1]})),
        ("context overflow", json!({"messages": [{"role": "user", "content": long}]})),
        ("max_tokens too large", json!({"max_tokens": 100_000})),
    ]
}

/// Returns the request whose fields a shape replaces.
pub(super) fn base() -> Value {
    json!({"model": "tiny", "messages": [{"role": "user", "content": "def main(): return"}], "max_tokens": 24,
        "temperature": 0})
}
