//! An assembled stream equals the JSON answer, for any request and any script.

use std::sync::Arc;

use http_body_util::BodyExt;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::parse_events;
use crate::chat::Chat;
use crate::fields::Fields;
use crate::request::ChatRequest;
use crate::server::Server;
use crate::stream::ChatStream;
use crate::{Script, Settings};

/// Answers `body` without a network.
async fn answered(server: &Arc<Server>, mut body: Value, stream: bool) -> String {
    body["stream"] = json!(stream);
    let map = body.as_object().unwrap();
    let request =
        ChatRequest::read(&Fields::of_body(map), &http::HeaderMap::new(), &server.settings).unwrap();
    let (number, running) = server.begin(request.prompt.len());
    let chat = Chat::new(request, server, number).unwrap();
    let bytes = if stream {
        ChatStream::new(chat, Arc::clone(server), running).collect().await.unwrap().to_bytes()
    } else {
        chat.complete(Arc::clone(server), running).await.unwrap()
    };
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Returns the choices of a stream in the form of a document's, reduced to the common fields.
fn joined(events: &[Value], n: usize) -> Vec<Value> {
    let mut choices = vec![Map::new(); n];
    for choice in events.iter().flat_map(|event| event["choices"].as_array().unwrap()) {
        let joined = &mut choices[choice["index"].as_u64().unwrap() as usize];
        for key in ["content", "reasoning"] {
            if let Some(text) = choice["delta"][key].as_str() {
                append(joined, key, text);
            }
        }
        for call in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
            let mark = if call["function"]["name"].is_string() { "\n" } else { "" };
            let text =
                call["function"]["name"].as_str().into_iter().chain(call["function"]["arguments"].as_str());
            append(joined, "calls", &format!("{mark}{}", text.collect::<Vec<_>>().join(" ")));
        }
        for (key, list) in [("ids", &choice["token_ids"]), ("logprobs", &choice["logprobs"]["content"])] {
            let kept = joined.entry(key).or_insert_with(|| json!([])).as_array_mut().unwrap();
            kept.extend(list.as_array().cloned().unwrap_or_default());
        }
        if choice["finish_reason"].is_string() {
            joined.insert("finish".to_owned(), json!([choice["finish_reason"], choice["stop_reason"]]));
        }
    }
    choices.into_iter().map(Value::Object).collect()
}

fn append(map: &mut Map<String, Value>, key: &str, text: &str) {
    let before = map.get(key).and_then(Value::as_str).unwrap_or_default();
    let after = format!("{before}{text}");
    map.insert(key.to_owned(), json!(after));
}

/// Returns a document's choices in the same form.
fn common(document: &Value) -> Vec<Value> {
    let choice = |choice: &Value| {
        let mut common = Map::new();
        for key in ["content", "reasoning"] {
            append(&mut common, key, choice["message"][key].as_str().unwrap_or_default());
        }
        for call in choice["message"]["tool_calls"].as_array().into_iter().flatten() {
            let function = &call["function"];
            let text = format!(
                "\n{}{}",
                function["name"].as_str().unwrap(),
                function["arguments"].as_str().unwrap()
            );
            append(&mut common, "calls", &text);
        }
        common.insert("ids".to_owned(), choice["token_ids"].as_array().cloned().into());
        common.insert("logprobs".to_owned(), choice["logprobs"]["content"].as_array().cloned().into());
        common.insert("finish".to_owned(), json!([choice["finish_reason"], choice["stop_reason"]]));
        Value::Object(common)
    };
    document["choices"].as_array().unwrap().iter().map(choice).collect()
}

/// Treats an absent value, an empty text and an empty list as equal. A call that was cut off is text in the document
/// only.
fn comparable(choice: &Value, calls_were_cut: bool) -> Value {
    let mut kept = choice.as_object().unwrap().clone();
    if calls_were_cut {
        kept.retain(|key, _| key != "content" && key != "calls");
    }
    kept.retain(|_, value| !value.is_null() && *value != json!("") && *value != json!([]));
    kept.sort_keys();
    Value::Object(kept)
}

fn scripts() -> impl Strategy<Value = Option<String>> {
    let text = "[a-zé日🎉 .\n]{0,40}";
    let call = ("[a-z_]{1,12}", text)
        .prop_map(|(name, text)| json!({"name": name, "arguments": json!({"q": text}).to_string()}));
    let answer = (text, prop::option::of(text), prop::collection::vec(call, 0..3));
    prop::option::of(answer).prop_map(|answer| {
        let (content, reasoning, calls) = answer?;
        let calls: Vec<String> = calls
            .iter()
            .map(|call| format!("{{ name = {}, arguments = {} }}", call["name"], call["arguments"]))
            .collect();
        let reasoning = reasoning.map(|text| format!("reasoning = {}\n", json!(text))).unwrap_or_default();
        let answer = format!("content = {}\n{reasoning}tool_calls = [{}]", json!(content), calls.join(", "));
        Some(format!("[[conversation]]\n[[conversation.turn]]\n[[conversation.turn.answer]]\n{answer}"))
    })
}

proptest! {
    #[test]
    fn the_stream_is_the_document(
        script in scripts(),
        seed in any::<i64>(),
        n in 1..3_usize,
        max_tokens in 1..80_u32,
        flags in any::<[bool; 7]>(),
        stop in prop::collection::vec("[a-z é日]{1,4}", 0..3),
    ) {
        let [tools, ids, logprobs, ignore_eos, include_stop, reasoning, thinking] = flags;
        let mut body = json!({
            "messages": [{"role": "user", "content": "hi"}], "seed": seed, "n": n, "max_tokens": max_tokens, "stop": stop,
            "return_token_ids": ids, "logprobs": logprobs, "ignore_eos": ignore_eos, "include_stop_str_in_output": include_stop,
            "include_reasoning": reasoning, "chat_template_kwargs": {"enable_thinking": thinking},
        });
        if logprobs {
            body["top_logprobs"] = json!(2);
        }
        if tools {
            body["tools"] = json!([{"type": "function"}]);
        }
        let script = script.map(|text| Script::from_toml(&text, "test").unwrap());
        let server = Arc::new(Server::new(Settings { script, ..Settings::default() }, CancellationToken::new(), 0));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (document, events) = runtime.block_on(async {
            (answered(&server, body.clone(), false).await, parse_events(&answered(&server, body.clone(), true).await))
        });
        let document: Value = serde_json::from_str(&document).unwrap();
        for (whole, streamed) in common(&document).iter().zip(joined(&events, n)) {
            let cut = tools && whole["content"].as_str().unwrap_or_default().contains('<'); // no text of a script has a `<`
            prop_assert_eq!(comparable(whole, cut), comparable(&streamed, cut));
            for token in whole["logprobs"].as_array().into_iter().flatten() {
                let value = token["logprob"].as_f64().unwrap();
                prop_assert!(value <= 0.0 && value.is_finite() && f64::from(value as f32) == value);
                let mass: f64 = token["top_logprobs"].as_array().unwrap().iter().map(|top| top["logprob"].as_f64().unwrap().exp()).sum();
                prop_assert!(mass <= 1.0 + 1e-6);
            }
            if ids && reasoning && logprobs {
                prop_assert_eq!(whole["ids"].as_array().unwrap().len(), whole["logprobs"].as_array().unwrap().len());
            }
        }
        prop_assert_eq!(server.stats().running, 0);
        prop_assert_eq!(server.stats().aborted, 0);
    }

    #[test]
    fn no_body_panics(text in any::<String>(), keys in prop::collection::vec(prop::sample::select(vec![
        "messages", "stream", "n", "max_tokens", "stop", "tools", "logprobs", "top_logprobs", "kv_transfer_params", "seed", "stream_options",
        "chat_template_kwargs", "temperature", "echo", "continue_final_message", "stop_token_ids",
    ]), 0..6), values in prop::collection::vec(prop::sample::select(vec![
        "null", "true", "-1", "1e300", "\"x\"", "[]", "[[]]", "[{}]", "[{\"role\":\"user\"}]", "{}", "{\"prompt_token_ids\":[1]}", "99999999999999999999",
        "[{\"role\":\"assistant\",\"tool_calls\":[{}]}]",
    ]), 6)) {
        let _ = crate::fields::parse(text.as_bytes());
        let fields: Vec<String> = keys.iter().zip(&values).map(|(key, value)| format!("\"{key}\":{value}")).collect();
        if let Ok(map) = crate::fields::parse(format!("{{{}}}", fields.join(",")).as_bytes()) {
            let _ = ChatRequest::read(&Fields::of_body(&map), &http::HeaderMap::new(), &Settings::default());
        }
    }
}
