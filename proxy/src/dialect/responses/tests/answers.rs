//! Whole answers, and the parts of them that the proxy remembers.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::dialect::adapter::Translator;
use crate::dialect::chat::completion::ChatCompletion;
use crate::dialect::responses::{Memory, error_body, translate};
use crate::dialect::upstream_error::{Overflow, UpstreamError};

pub(super) const TOOLS: &str = r#"[{"type":"function","name":"ls"},{"type":"custom","name":"patch"},
    {"type":"namespace","name":"agents","tools":[{"type":"function","name":"close"}]},{"type":"tool_search","execution":"client"}]"#;

fn answer(request: Value, memory: &Arc<Memory>, upstream: Value) -> Value {
    let mut back = translate(&request.to_string(), memory).unwrap().back;
    let upstream = upstream.to_string();
    let spoken: ChatCompletion<'_> = serde_json::from_str(&upstream).unwrap();
    serde_json::from_slice(&back.whole(&spoken)).unwrap()
}

fn upstream_answer(id: &str, message: Value, finish_reason: &str) -> Value {
    json!({"id": format!("chatcmpl-{id}"), "created": 17, "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 8},
            "completion_tokens_details": {"reasoning_tokens": 1}}})
}

#[test]
fn a_message_becomes_items() {
    let call = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    let message = json!({"role": "assistant", "reasoning": "Hm.", "content": "Both.", "tool_calls": [
        call("1", "agents__close", "{\"a\": 1.0}"), call("2", "patch", "{\"input\": \"*\\n\"}"), call("3", "tool_search", "{\"query\": \"q\"}")]});
    let request = json!({"model": "alias", "input": "x", "tools": serde_json::from_str::<Value>(TOOLS).unwrap(),
        "include": ["reasoning.encrypted_content"], "temperature": 0.5, "reasoning": {"effort": "low"}});
    let response = answer(request, &Arc::default(), upstream_answer("u", message, "tool_calls"));
    assert_eq!(
        (&response["id"], &response["model"], &response["status"]),
        (&json!("resp_u"), &json!("alias"), &json!("completed"))
    );
    assert_eq!(response["temperature"], 0.5);
    assert_eq!(response["reasoning"], json!({"effort": "low", "summary": null}));
    assert_eq!(
        response["usage"],
        json!({"input_tokens": 9, "input_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 0},
            "output_tokens": 4, "output_tokens_details": {"reasoning_tokens": 1}, "total_tokens": 13})
    );
    let carried = super::super::carried_reasoning::encode("Hm.");
    assert_eq!(
        response["output"],
        json!([
            {"id": "rs_u_0", "type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}],
                "encrypted_content": carried, "status": "completed"},
            {"id": "msg_u_1", "type": "message", "role": "assistant",
                "content": [{"type": "output_text", "text": "Both.", "annotations": [], "logprobs": []}], "status": "completed"},
            {"id": "fc_u_2", "type": "function_call", "call_id": "1", "name": "close", "arguments": "{\"a\": 1.0}",
                "status": "completed", "namespace": "agents"},
            {"id": "ctc_u_3", "type": "custom_tool_call", "call_id": "2", "name": "patch", "input": "*\n", "status": "completed"},
            {"id": "tsc_u_4", "type": "tool_search_call", "call_id": "3", "execution": "client", "arguments": {"query": "q"},
                "status": "completed"},
        ])
    );
}

#[test]
fn a_response_can_be_continued() {
    let memory = Arc::default();
    let ask = |body: Value| translate(&body.to_string(), &memory);
    let first = json!({"input": "one", "instructions": "not inherited"});
    answer(first, &memory, upstream_answer("1", json!({"reasoning": "r", "content": "two"}), "stop"));
    answer(
        json!({"input": "three", "previous_response_id": "resp_1"}),
        &memory,
        upstream_answer("2", json!({"content": "four"}), "stop"),
    );
    let third = ask(json!({"input": "five", "previous_response_id": "resp_2"})).unwrap().chat;
    assert_eq!(
        third["messages"],
        json!([{"role": "user", "content": "one"}, {"role": "assistant", "content": "two", "reasoning": "r"},
            {"role": "user", "content": "three"}, {"role": "assistant", "content": "four"}, {"role": "user", "content": "five"}])
    );
    let referred = ask(json!({"input": [{"type": "item_reference", "id": "msg_2_0"}]})).unwrap().chat;
    assert_eq!(referred["messages"], json!([{"role": "assistant", "content": "four"}]));

    answer(
        json!({"input": "x", "store": false}),
        &memory,
        upstream_answer("3", json!({"content": "y"}), "stop"),
    );
    answer(json!({"input": "x"}), &memory, upstream_answer("4", json!({"content": "y"}), "abort"));
    for forgotten in ["resp_3", "resp_4"] {
        assert!(ask(json!({"input": "x", "previous_response_id": forgotten})).is_err(), "{forgotten}");
    }
}

#[test]
fn an_answer_that_was_cut_is_incomplete() {
    let response = answer(
        json!({"input": "x"}),
        &Arc::default(),
        upstream_answer("u", json!({"content": "y"}), "length"),
    );
    assert_eq!(
        (&response["status"], &response["incomplete_details"]),
        (&json!("incomplete"), &json!({"reason": "max_output_tokens"}))
    );
    assert_eq!(response["output"][0]["status"], "incomplete");
    let aborted = answer(
        json!({"input": "x"}),
        &Arc::default(),
        upstream_answer("u", json!({"content": "y"}), "abort"),
    );
    assert_eq!((&aborted["status"], &aborted["error"]["code"]), (&json!("failed"), &json!("server_error")));
}

#[test]
fn errors_have_openais_words() {
    let overflow = UpstreamError {
        status: http::StatusCode::BAD_REQUEST,
        message: "This model's maximum context length is 4096 tokens".to_owned(),
        code: None,
        overflow: Some(Overflow { limit: Some(4096), prompt: None }),
    };
    let body: Value = serde_json::from_slice(&error_body(&overflow)).unwrap();
    assert_eq!(body["error"]["code"], "context_length_exceeded");
    assert!(body["error"]["message"].as_str().unwrap().starts_with("Your input exceeds the context window"));
}
