//! The translation of a request, and the requests that are rejected.

use serde_json::json;

use super::super::{count_answer, count_request};
use super::{chat, messages, refusal, request};

#[test]
fn a_plain_request_keeps_its_words() {
    let chat = chat(json!({
        "system": "Be brief.", "temperature": 0.5, "top_p": 0.9, "top_k": 3, "stop_sequences": ["a"], "stream": true,
        "metadata": {"user_id": "u"}, "service_tier": "auto", "seed": null, "min_p": 0.1,
    }));
    let expected = json!({
        "model": "m", "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "top_k": 3, "min_p": 0.1, "stop": ["a"],
        "stream": true, "stream_options": {"include_usage": true},
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
    });
    assert_eq!(serde_json::Value::Object(chat), expected);
}

#[test]
fn a_turn_with_tools_is_one_message_and_its_results_stand_in_the_order_of_the_calls() {
    let made = messages(json!([
        {"role": "user", "content": [{"type": "text", "text": "look", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "redacted_thinking", "data": "x"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
            {"type": "tool_use", "id": "b", "name": "g", "input": {}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "1"}, {"type": "text", "text": "2"}]},
            {"type": "tool_result", "tool_use_id": "a", "content": "no", "is_error": true},
            {"type": "text", "text": "go on"},
        ]},
    ]));
    let call = |id, name, arguments| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    assert_eq!(
        made,
        json!([
            {"role": "user", "content": "look"},
            {"role": "assistant", "content": "I look.", "reasoning": "hm",
             "tool_calls": [call("a", "f", "{\"x\":1}"), call("b", "g", "{}")]},
            {"role": "tool", "tool_call_id": "a", "content": "no"},
            {"role": "tool", "tool_call_id": "b", "content": "1\n2"},
            {"role": "user", "content": "go on"},
        ])
    );
}

#[test]
fn arguments_keep_the_agents_spelling() {
    let body = r#"{"model":"m","max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f",
        "input":{"b": 1.50,"a":12345678901234567890123}}]},{"role":"user","content":"x"}]}"#;
    let chat = super::translate(body).unwrap().chat;
    let arguments = &chat["messages"][0]["tool_calls"][0]["function"]["arguments"];
    assert_eq!(arguments, r#"{"b": 1.50,"a":12345678901234567890123}"#);
}

#[test]
fn images_are_carried_and_those_of_results_follow_all_results() {
    let base64 =
        json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QQ=="}});
    let url = json!({"type": "image", "source": {"type": "url", "url": "https://x/y.png"}});
    let made = messages(json!([
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}, {"type": "tool_use", "id": "b", "name": "f", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": [base64, {"type": "text", "text": "t"}]},
            {"type": "tool_result", "tool_use_id": "b"}, url, {"type": "text", "text": "?"},
        ]},
    ]));
    assert_eq!(
        made.as_array().unwrap()[1..],
        [
            json!({"role": "tool", "tool_call_id": "a", "content": "t"}),
            json!({"role": "tool", "tool_call_id": "b", "content": ""}),
            json!({"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}},
                {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
                {"type": "text", "text": "?"},
            ]}),
        ]
    );
}

#[test]
fn system_text_loses_the_billing_header_and_may_stand_in_the_middle() {
    let header = "x-anthropic-billing-header: cc_version=2.1.197.3fe; cc_entrypoint=sdk-cli; cch=00000;";
    let chat = chat(json!({
        "system": [{"type": "text", "text": header}, {"type": "text", "text": "One."}, {"type": "text", "text": "\nTwo."}],
        "messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "Now."}, {"role": "system", "content": header}],
    }));
    assert_eq!(
        chat["messages"],
        json!([{"role": "system", "content": "One.\nTwo."}, {"role": "user", "content": "a"}, {"role": "system", "content": "Now."}])
    );
}

#[test]
fn a_prefilled_answer_is_continued() {
    let turns = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "It"}, {"role": "assistant", "content": " is"}]);
    let chat = chat(json!({"messages": turns}));
    assert_eq!(chat["messages"][1], json!({"role": "assistant", "content": "It is"}));
    assert_eq!(
        (&chat["continue_final_message"], &chat["add_generation_prompt"]),
        (&json!(true), &json!(false))
    );
}

#[test]
fn tools_and_the_choice_among_them() {
    let tool = json!({"name": "f", "description": "d", "input_schema": {"properties": {}}, "strict": true, "cache_control": {}});
    let made =
        chat(json!({"tools": [tool], "tool_choice": {"type": "any", "disable_parallel_tool_use": true}}));
    assert_eq!(
        made["tools"],
        json!([{"type": "function", "function":
            {"name": "f", "description": "d", "parameters": {"properties": {}, "type": "object"}, "strict": true}}])
    );
    assert_eq!((&made["tool_choice"], &made["parallel_tool_calls"]), (&json!("required"), &json!(false)));
    for (choice, expected) in [
        (json!({"type": "auto"}), json!("auto")),
        (json!({"type": "none"}), json!("none")),
        (json!({"type": "tool", "name": "f"}), json!({"type": "function", "function": {"name": "f"}})),
    ] {
        let made = chat(json!({"tools": [tool], "tool_choice": choice}));
        assert_eq!((&made["tool_choice"], made.get("parallel_tool_calls")), (&expected, None));
    }
    assert_eq!(chat(json!({"tools": []})).get("tools"), None);
}

#[test]
fn thinking_and_effort() {
    let made = chat(
        json!({"thinking": {"type": "adaptive", "display": "omitted"}, "output_config": {"effort": "high"}}),
    );
    assert_eq!((&made["reasoning_effort"], made.get("chat_template_kwargs")), (&json!("high"), None));
    let made = chat(json!({"thinking": {"type": "enabled", "budget_tokens": 2000}}));
    assert!(made.get("thinking_token_budget").is_none(), "a bound is not forced");
    assert_eq!(made["chat_template_kwargs"], json!({"enable_thinking": true}));
    let made = chat(json!({"thinking": {"type": "disabled"}, "output_config": {"effort": "high"}}));
    assert_eq!(
        (made.get("reasoning_effort"), &made["chat_template_kwargs"]),
        (None, &json!({"enable_thinking": false}))
    );
    let made =
        chat(json!({"thinking": {"type": "disabled"}, "chat_template_kwargs": {"enable_thinking": true}}));
    assert_eq!(made["chat_template_kwargs"], json!({"enable_thinking": true}), "the agent's own word counts");
}

#[test]
fn a_schema_of_the_answer_under_its_new_and_its_old_name() {
    let format = json!({"type": "json_schema", "schema": {"type": "object"}});
    let expected =
        json!({"type": "json_schema", "json_schema": {"name": "json_schema", "schema": {"type": "object"}}});
    assert_eq!(chat(json!({"output_config": {"format": format}}))["response_format"], expected);
    assert_eq!(chat(json!({"output_format": format}))["response_format"], expected);
}

#[test]
fn what_has_no_effect_is_accepted() {
    let edits = json!({"edits": [{"type": "clear_thinking_20251015", "keep": "all"}, {"type": "clear_tool_uses_20250919"}]});
    chat(
        json!({"context_management": edits, "betas": ["x"], "mcp_servers": [], "container": null, "inference_geo": "us"}),
    );
}

#[test]
fn a_text_document_is_carried_and_others_are_refused() {
    let document = |source| json!({"messages": [{"role": "user", "content": [{"type": "document", "title": "T", "source": source}]}]});
    let text = json!({"type": "text", "media_type": "text/plain", "data": "words"});
    assert_eq!(chat(document(text))["messages"][0]["content"], "T\nwords");
    let pdf = json!({"type": "base64", "media_type": "application/pdf", "data": "QQ=="});
    assert!(
        refusal(document(pdf)).starts_with("messages[0].content[0].source is a document of type \"base64\"")
    );
}

#[test]
fn refusals_name_the_place_and_the_reason() {
    let block = |block| json!({"messages": [{"role": "user", "content": [block]}]});
    for (extra, said) in [
        (json!({"max_tokens": null}), "max_tokens is missing"),
        (json!({"model": 3}), "model is not as it should be"),
        (json!({"kv_transfer_params": {}}), "kv_transfer_params is not a key"),
        (json!({"mcp_servers": [{}]}), "mcp_servers asks for something"),
        (
            json!({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
            "tools[0] is \"web_search_20250305\"",
        ),
        (json!({"tools": [{"name": "f"}]}), "tools[0].input_schema is missing"),
        (
            json!({"context_management": {"edits": [{"type": "compact_20260112"}]}}),
            "context_management.edits[0] is",
        ),
        (json!({"output_config": {"task_budget": {}}}), "output_config.task_budget cannot"),
        (json!({"messages": [{"role": "tool", "content": "x"}]}), "messages[0].role is \"tool\""),
        (
            block(json!({"type": "server_tool_use"})),
            "messages[0].content[0] is a block of type \"server_tool_use\"",
        ),
        (
            block(json!({"type": "tool_use", "id": "a", "name": "f", "input": {}})),
            "messages[0].content[0] is a block that only",
        ),
        (
            block(json!({"type": "image", "source": {"type": "file", "file_id": "f"}})),
            "messages[0].content[0].source is neither",
        ),
        (
            json!({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}]}),
            "messages end in a tool_use",
        ),
    ] {
        let refusal = refusal(extra);
        assert!(refusal.starts_with(said), "{refusal}");
    }
}

#[test]
fn tokens_are_counted_of_the_same_prompt() {
    let extra = json!({"max_tokens": null, "system": "s", "thinking": {"type": "adaptive"}, "output_config": {"effort": "low"},
        "tools": [{"name": "f", "input_schema": {"type": "object"}}], "tool_choice": {"type": "auto"}});
    let counted = count_request(&request(extra.clone()).to_string()).unwrap();
    let mut with_room = extra;
    with_room["max_tokens"] = json!(1);
    let sent = chat(with_room);
    assert_eq!((&counted["messages"], &counted["tools"]), (&sent["messages"], &sent["tools"]));
    assert_eq!(counted["chat_template_kwargs"], json!({"enable_thinking": true, "reasoning_effort": "low"}));
    assert_eq!(counted.keys().collect::<Vec<_>>(), ["model", "messages", "tools", "chat_template_kwargs"]);
    assert_eq!(
        count_answer(br#"{"count":3,"max_model_len":9,"tokens":[1,2,3]}"#).unwrap(),
        br#"{"input_tokens":3}"#
    );
    assert_eq!(count_answer(b"{}"), None);
}
