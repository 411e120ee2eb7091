//! The translation of a request.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::dialect::responses::{Memory, translate};

fn chat(mut body: Value) -> Map<String, Value> {
    body.as_object_mut().unwrap().entry("model").or_insert("m".into());
    translate(&body.to_string(), &Arc::default()).unwrap().chat
}

fn messages(input: Value) -> Value {
    chat(json!({"input": input}))["messages"].clone()
}

fn refusal(body: Value) -> (String, Option<String>) {
    let refusal = translate(&body.to_string(), &Arc::new(Memory::default())).unwrap_err();
    (refusal.to_string(), refusal.param().map(str::to_owned))
}

#[test]
fn a_simple_request_is_a_simple_chat() {
    let sent =
        chat(json!({"input": "Hi", "instructions": "Be kind.", "max_output_tokens": 5, "temperature": 0.5,
        "top_k": 3, "store": false, "metadata": {"a": "b"}, "service_tier": null}));
    assert_eq!(
        Value::Object(sent),
        json!({"model": "m", "temperature": 0.5, "top_k": 3, "max_tokens": 5,
            "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}], "stream": false})
    );
    let streamed = chat(json!({"input": "Hi", "stream": true}));
    assert_eq!(
        (&streamed["stream"], &streamed["stream_options"]),
        (&json!(true), &json!({"include_usage": true}))
    );
}

#[test]
fn an_answers_items_are_one_assistant_message() {
    let sent = messages(json!([
        {"role": "user", "content": [{"type": "input_text", "text": "Go."}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm"}, {"type": "reasoning_text", "text": "m"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Two at once.", "annotations": []}]},
        {"type": "function_call", "call_id": "1", "name": "ls", "arguments": "{\"a\": 1.50}"},
        {"type": "custom_tool_call", "call_id": "2", "name": "patch", "input": "a\n\"b\""},
        {"type": "function_call_output", "call_id": "1", "output": "x"},
        {"type": "custom_tool_call_output", "call_id": "2", "output": [{"type": "input_text", "text": "y"}]},
        {"type": "function_call", "call_id": "3", "name": "close", "namespace": "agents", "arguments": "{}"},
    ]));
    let call = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    assert_eq!(
        sent,
        json!([
            {"role": "user", "content": "Go."},
            {"role": "assistant", "content": "Two at once.", "reasoning": "Hmm",
                "tool_calls": [call("1", "ls", "{\"a\": 1.50}"), call("2", "patch", r#"{"input":"a\n\"b\""}"#)]},
            {"role": "tool", "tool_call_id": "1", "content": "x"},
            {"role": "tool", "tool_call_id": "2", "content": "y"},
            {"role": "assistant", "content": null, "tool_calls": [call("3", "agents__close", "{}")]},
        ])
    );
}

#[test]
fn system_messages_at_the_beginning_are_one() {
    let sent = chat(json!({"instructions": "A", "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "B"}, {"type": "input_text", "text": "C"}]},
        {"role": "system", "content": "D"},
        {"role": "user", "content": "E"},
        {"role": "developer", "content": "F"},
    ]}));
    assert_eq!(
        sent["messages"],
        json!([{"role": "system", "content": "A\n\nB\n\nC\n\nD"}, {"role": "user", "content": "E"}, {"role": "system", "content": "F"}])
    );
}

#[test]
fn images_become_image_urls_also_in_results() {
    let image = json!({"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "high"});
    let text = json!({"type": "input_text", "text": "see"});
    let sent = messages(json!([
        {"role": "user", "content": [text, image]},
        {"type": "function_call_output", "call_id": "1", "output": [image]},
    ]));
    let carried =
        json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "high"}});
    assert_eq!(sent[0]["content"], json!([{"type": "text", "text": "see"}, carried]));
    assert_eq!(sent[1]["content"], json!([carried]));
}

#[test]
fn reasoning_is_read_in_each_form_that_agents_send() {
    let carried = super::super::carried_reasoning::encode("deep");
    for (item, reasoning) in [
        (json!({"summary": [], "encrypted_content": carried}), "deep"),
        (
            json!({"summary": [{"type": "summary_text", "text": "short"}], "encrypted_content": carried}),
            "deep",
        ),
        (
            json!({"summary": [], "content": [{"type": "reasoning_text", "text": "plain"}], "encrypted_content": "foreign"}),
            "plain",
        ),
        (json!({"summary": [{"text": "a"}, {"text": "b"}], "content": null}), "a\n\nb"),
    ] {
        let mut item = item;
        item["type"] = json!("reasoning");
        assert_eq!(
            messages(json!([item])),
            json!([{"role": "assistant", "content": null, "reasoning": reasoning}])
        );
    }
    let (why, param) =
        refusal(json!({"input": [{"type": "reasoning", "summary": [], "encrypted_content": "gAAA"}]}));
    assert!(why.contains("another service"), "{why}");
    assert_eq!(param.as_deref(), Some("input[0]"));
}

#[test]
fn tools_become_functions() {
    let grammar = json!({"type": "grammar", "syntax": "lark", "definition": "start: x"});
    let sent = chat(
        json!({"input": "x", "parallel_tool_calls": false, "tool_choice": {"type": "custom", "name": "patch"}, "tools": [
            {"type": "function", "name": "ls", "description": "Lists.", "parameters": {"type": "object"}, "strict": false},
            {"type": "custom", "name": "patch", "description": "Edits.", "format": grammar},
            {"type": "namespace", "name": "agents", "description": "…", "tools": [{"type": "function", "name": "close", "parameters": null}]},
            {"type": "tool_search", "execution": "client", "description": "Finds.", "parameters": {"type": "object"}},
            {"type": "web_search", "external_web_access": true},
        ]}),
    );
    let names: Vec<_> = sent["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["function"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["ls", "patch", "agents__close", "tool_search"]);
    assert_eq!(
        sent["tools"][0],
        json!({"type": "function", "function": {"name": "ls", "description": "Lists.", "parameters": {"type": "object"}, "strict": false}})
    );
    let patch = &sent["tools"][1]["function"];
    assert_eq!(patch["description"], "Edits.\n\nThe input must follow this lark grammar:\nstart: x");
    assert_eq!(patch["parameters"]["required"], json!(["input"]));
    assert_eq!(sent["tool_choice"], json!({"type": "function", "function": {"name": "patch"}}));
    assert_eq!(sent["parallel_tool_calls"], json!(false));
}

#[test]
fn what_a_search_found_can_be_called() {
    let sent = chat(json!({"input": [
        {"role": "user", "content": "x"},
        {"type": "tool_search_call", "call_id": "1", "execution": "client", "arguments": {"query": "mail"}},
        {"type": "tool_search_output", "call_id": "1", "execution": "client", "tools": [{"type": "function", "name": "send"}]},
    ], "tools": [{"type": "tool_search", "execution": "client"}]}));
    assert_eq!(sent["tools"][1], json!({"type": "function", "function": {"name": "send"}}));
    assert_eq!(sent["messages"][2]["content"], r#"[{"type":"function","name":"send"}]"#);
    assert_eq!(
        sent["messages"][1]["tool_calls"][0]["function"],
        json!({"name": "tool_search", "arguments": "{\"query\":\"mail\"}"})
    );
}

#[test]
fn choices_are_carried_over() {
    let tools = json!([{"type": "function", "name": "a"}, {"type": "function", "name": "b"}]);
    let choose = |choice: Value| chat(json!({"input": "x", "tools": tools, "tool_choice": choice}));
    for mode in ["auto", "none", "required"] {
        assert_eq!(choose(json!(mode))["tool_choice"], mode);
    }
    let allowed = choose(
        json!({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "b"}]}),
    );
    assert_eq!(
        (&allowed["tools"][0]["function"]["name"], &allowed["tool_choice"]),
        (&json!("b"), &json!("required"))
    );
    assert!(
        !chat(json!({"input": "x", "tool_choice": "auto", "tools": [{"type": "web_search"}]}))
            .contains_key("tool_choice")
    );
}

#[test]
fn formats_and_effort_are_carried_over() {
    let sent = chat(json!({"input": "x", "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"verbosity": "low", "format": {"type": "json_schema", "name": "n", "schema": {"b": 1, "a": 2}, "strict": true, "description": null}}}));
    assert_eq!(sent["reasoning_effort"], "low");
    let format = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": {"b": 1, "a": 2}, "strict": true}});
    assert_eq!(sent["response_format"].to_string(), format.to_string());
}

#[test]
fn what_cannot_be_carried_over_is_refused_with_its_place() {
    for (body, place) in [
        (json!({"input": "x", "background": true}), "background"),
        (json!({"input": "x", "conversation": "c"}), "conversation"),
        (json!({"input": "x", "prompt": {"id": "p"}}), "prompt"),
        (json!({"input": "x", "kv_transfer_params": {}}), "kv_transfer_params"),
        (json!({"input": "x", "top_logprobs": 2}), "top_logprobs"),
        (json!({"input": "x", "include": ["message.output_text.logprobs"]}), "include[0]"),
        (json!({"input": "x", "previous_response_id": "resp_1"}), "previous_response_id"),
        (json!({"input": "x", "tools": [{"type": "file_search"}]}), "tools[0]"),
        (
            json!({"input": "x", "tools": [{"type": "function", "name": "a"}, {"type": "custom", "name": "a"}]}),
            "tools[1]",
        ),
        (json!({"input": "x", "tool_choice": "required"}), "tool_choice"),
        (
            json!({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}),
            "input[0].content[0]",
        ),
        (json!({"input": [{"type": "computer_call"}]}), "input[0]"),
        (json!({"input": [{"type": "item_reference", "id": "rs_1"}]}), "input[0]"),
        (json!({"input": [{"type": "function_call", "name": "a", "arguments": {}}]}), "input[0].arguments"),
        (json!({"input": []}), "input"),
        (json!({"input": 7}), "input"),
    ] {
        assert_eq!(refusal(body.clone()).1.as_deref(), Some(place), "{body}");
    }
    assert_eq!(
        refusal(json!({"input": "x", "previous_response_id": "resp_1"})).0,
        "Previous response with id 'resp_1' not found."
    );
    assert!(translate("{", &Arc::default()).unwrap_err().to_string().contains("not JSON"));
}

/// Generates JSON that resembles a request now and then.
fn json_like() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "input",
        "type",
        "role",
        "content",
        "message",
        "user",
        "assistant",
        "developer",
        "reasoning",
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "tool_search_output",
        "name",
        "arguments",
        "call_id",
        "output",
        "tools",
        "namespace",
        "function",
        "custom",
        "text",
        "input_text",
        "summary",
        "encrypted_content",
        "tool_choice",
        "format",
        "allowed_tools",
        "previous_response_id",
        "include",
        "instructions",
    ]);
    let leaf = prop_oneof![
        word.clone().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        Just(Value::Null),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((word.clone(), inner), 0..6).prop_map(|fields| Value::Object(
                fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
            )),
        ]
    })
}

proptest! {
    #[test]
    fn no_text_is_too_odd(text: String) {
        drop(translate(&text, &Arc::default()));
    }

    #[test]
    fn no_request_is_too_odd(input in json_like(), tools in json_like(), choice in json_like(), text in json_like()) {
        drop(translate(&json!({"input": input, "tools": tools, "tool_choice": choice, "text": text}).to_string(), &Arc::default()));
        drop(translate(&json!({"input": [input]}).to_string(), &Arc::default()));
    }

    #[test]
    fn a_longer_conversation_begins_with_the_shorter_one(items in prop::collection::vec(json_like(), 1..6)) {
        let sent = |items: &[Value]| translate(&json!({"input": items}).to_string(), &Arc::default()).map(|t| t.chat["messages"].clone());
        let user = json!({"role": "user", "content": "go"});
        let mut shorter = items.clone();
        shorter.insert(0, user.clone());
        shorter.push(user.clone());
        if let Ok(before) = sent(&shorter) {
            shorter.push(json!({"role": "assistant", "content": "ok"}));
            shorter.push(user);
            let after = sent(&shorter).unwrap();
            prop_assert!(after.as_array().unwrap().starts_with(before.as_array().unwrap()));
        }
    }
}
