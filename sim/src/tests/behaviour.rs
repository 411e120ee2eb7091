//! The simulator's behaviour over time: seeds, given prompts, conversations, faults, callers that leave.

use std::time::{Duration, Instant};

use rolltap_testing::limit;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{ask, parse_events, post, recorded_model};
use crate::{RunningSim, Settings, Stats, encode, start};

async fn body(sim: &RunningSim, text: &str, extra: Value) -> Value {
    ask(sim, text, extra).await.json().await.unwrap()
}

/// Waits until the counts match.
async fn until(sim: &RunningSim, wanted: impl Fn(&Stats) -> bool) {
    let start = Instant::now();
    while !wanted(&sim.stats()) {
        assert!(start.elapsed() < limit(5), "{:?}", sim.stats());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn seeds_decide() {
    let settings = |seed| Settings { seed, ..Settings::default() };
    let (one, same, other) = (
        start(settings(1)).await.unwrap(),
        start(settings(1)).await.unwrap(),
        start(settings(2)).await.unwrap(),
    );
    let message = |body: Value| body["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    let mut answers = [Vec::new(), Vec::new(), Vec::new()];
    for (sim, answers) in [&one, &same, &other].into_iter().zip(&mut answers) {
        for _ in 0..3 {
            answers.push(message(body(sim, "hi", json!({"max_tokens": 20})).await));
        }
    }
    assert_eq!(answers[0], answers[1]);
    assert_ne!(answers[0], answers[2]);
    assert_ne!(answers[0][0], answers[0][1]);
    let seeded = message(body(&one, "hi", json!({"seed": 5})).await);
    assert_eq!(
        seeded,
        message(body(&other, "hi", json!({"seed": 5, "stream": false})).await).as_str()[..].to_owned()
    );
}

#[tokio::test]
async fn given_ids_are_the_prompt() {
    let sim = recorded_model(None).await;
    let ids = json!([1, 2, 3, 300, 5]);
    let extra =
        json!({"kv_transfer_params": {"prompt_token_ids": ids}, "return_token_ids": true, "stream": true});
    let events = parse_events(&ask(&sim, ".", extra).await.text().await.unwrap());
    assert_eq!(events[0]["prompt_token_ids"], ids);
    let tokenized: Value = post(&sim, "/tokenize", &json!({"messages": [{"role": "user", "content": "hi"}]}))
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let answer = body(&sim, "hi", json!({"return_token_ids": true})).await;
    assert_eq!(answer["prompt_token_ids"], tokenized["tokens"]);
    assert_eq!(answer["usage"]["prompt_tokens"], tokenized["count"]);
}

#[tokio::test]
async fn what_is_sent_back_continues_the_prompt() {
    let script = "reasoning = 'A file is wanted.'\ncontent = 'I write it.'\ntool_calls = [{ name = 'bash', arguments = { command = 'ls' } }]";
    let sim = recorded_model(Some(script)).await;
    let tools = json!([{"type": "function", "function": {"name": "bash"}}]);
    let user = json!({"role": "user", "content": "hello"});
    let first = json!({"messages": [user], "tools": tools, "return_token_ids": true});
    let first: Value = post(&sim, "/v1/chat/completions", &first).await.unwrap().json().await.unwrap();
    let choice = &first["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["message"]["tool_calls"][0]["function"]["arguments"], "{\"command\":\"ls\"}");
    let result =
        json!({"role": "tool", "tool_call_id": choice["message"]["tool_calls"][0]["id"], "content": "a.txt"});
    let second =
        json!({"messages": [user, choice["message"], result], "tools": tools, "return_token_ids": true});
    let second: Value = post(&sim, "/v1/chat/completions", &second).await.unwrap().json().await.unwrap();
    let ids = |value: &Value| value.as_array().unwrap().clone();
    let kept = [ids(&first["prompt_token_ids"]), ids(&choice["token_ids"])].concat();
    assert!(ids(&second["prompt_token_ids"]).starts_with(&kept));
    // If the request has no tools, no parser extracts the call.
    let plain = body(&sim, "hello", json!({})).await;
    assert!(
        plain["choices"][0]["message"]["content"].as_str().unwrap().starts_with("I write it.<tool_call>")
    );
    assert_eq!(plain["choices"][0]["finish_reason"], "stop");
}

#[tokio::test]
async fn a_call_that_is_cut_off_is_text_in_a_document() {
    let calls =
        "tool_calls = [{ name = 'a', arguments = '{}' }, { name = 'b', arguments = '{\"q\": \"long\"}' }]";
    let sim = recorded_model(Some(calls)).await;
    let tools = json!([{"type": "function", "function": {"name": "a"}}]);
    let both = body(&sim, "hi", json!({"tools": tools})).await;
    assert_eq!(both["choices"][0]["message"]["tool_calls"].as_array().unwrap().len(), 2);
    assert_eq!(both["choices"][0]["message"]["content"], Value::Null);
    let tokens = both["usage"]["completion_tokens"].as_u64().unwrap();
    let cut = body(&sim, "hi", json!({"tools": tools, "max_tokens": tokens - 3})).await;
    let message = &cut["choices"][0]["message"];
    assert_eq!(message["tool_calls"].as_array().unwrap().len(), 1);
    assert_eq!(message["tool_calls"][0]["function"]["name"], "a");
    assert_eq!(message["content"].as_str().unwrap().find("<tool_call>\n{\"name\": \"b\""), Some(0));
}

#[tokio::test]
async fn lengths_and_the_end_of_the_turn() {
    let sim = recorded_model(Some("content = 'short'")).await;
    let ended = body(&sim, "hi", json!({"return_token_ids": true})).await;
    assert_eq!(ended["choices"][0]["finish_reason"], "stop");
    assert_eq!(ended["choices"][0]["token_ids"].as_array().unwrap().len(), encode("short").len() + 1);
    let ignored =
        body(&sim, "hi", json!({"return_token_ids": true, "ignore_eos": true, "max_completion_tokens": 50}))
            .await;
    assert_eq!(ignored["choices"][0]["finish_reason"], "length");
    assert_eq!(ignored["choices"][0]["token_ids"].as_array().unwrap().len(), 50);
    assert_eq!(ignored["usage"]["completion_tokens"], 50);
    let cut = body(&sim, "hi", json!({"max_tokens": 1})).await;
    assert_eq!(cut["choices"][0]["finish_reason"], "length");
}

#[tokio::test]
async fn scripted_refusals_and_overrides() {
    let sim = recorded_model(Some("error = { status = 503, message = 'overloaded' }\ndelay_ms = 30")).await;
    let began = Instant::now();
    let response = ask(&sim, "hi", json!({"stream": true})).await;
    assert!(began.elapsed() >= Duration::from_millis(30));
    assert_eq!(response.status().as_u16(), 503);
    let refused = json!({"error": {"message": "overloaded", "type": "ServiceUnavailableError", "param": null, "code": 503}});
    assert_eq!(response.json::<Value>().await.unwrap(), refused);
    let sim = recorded_model(Some("content = 'x'\nfinish_reason = 'content_filter'")).await;
    assert_eq!(body(&sim, "hi", json!({})).await["choices"][0]["finish_reason"], "content_filter");
}

#[tokio::test]
async fn a_cut_comes_after_so_many_tokens() {
    let sim = recorded_model(Some("content = 'abcdefghij'\nbreak_after = 3")).await;
    let mut response = ask(&sim, "hi", json!({"stream": true, "return_token_ids": true})).await;
    let mut text = String::new();
    let broken = loop {
        match response.chunk().await {
            Ok(Some(chunk)) => text.push_str(std::str::from_utf8(&chunk).unwrap()),
            Ok(None) => break false,
            Err(_) => break true,
        }
    };
    assert!(broken, "the stream ended as if it were whole");
    assert_eq!(text.matches("data: ").count(), 4, "{text}");
    let whole = json!({"messages": [{"role": "user", "content": "hi"}]});
    assert!(post(&sim, "/v1/chat/completions", &whole).await.is_err());
    until(&sim, |stats| stats.running == 0 && stats.aborted == 0 && stats.requests == 2).await;
}

#[tokio::test]
async fn a_stall_holds_until_the_caller_goes() {
    let sim = recorded_model(Some("content = 'abcdefghij'\nstall_after = 2")).await;
    let mut response = ask(&sim, "hi", json!({"stream": true})).await;
    let mut text = String::new();
    while text.matches("data: ").count() < 3 {
        text.push_str(std::str::from_utf8(&response.chunk().await.unwrap().unwrap()).unwrap());
    }
    assert!(tokio::time::timeout(Duration::from_millis(100), response.chunk()).await.is_err(), "more came");
    let metrics =
        rolltap_testing::get(format!("http://{}/metrics", sim.addr())).await.unwrap().text().await.unwrap();
    assert!(
        metrics.contains("vllm:num_requests_running{engine=\"0\",model_name=\"tiny\"} 1.0\n"),
        "{metrics}"
    );
    drop(response);
    until(&sim, |stats| stats.running == 0 && stats.aborted == 1).await;
    // A whole answer stalls as well, and stopping the simulator ends it at once.
    let url = format!("http://{}/v1/chat/completions", sim.addr());
    let call = rolltap_testing::http_client()
        .post(url)
        .json(&json!({"messages": [{"role": "user", "content": "hi"}]}))
        .send();
    let call = tokio::spawn(call);
    until(&sim, |stats| stats.running == 1).await;
    let began = Instant::now();
    sim.shutdown().await;
    assert!(began.elapsed() < limit(1));
    assert!(call.await.unwrap().is_err());
}

#[tokio::test]
async fn a_caller_that_goes_ends_its_answer() {
    for stream in [true, false] {
        let sim = recorded_model(Some("content = 'abcdefghij'\ntoken_delay_ms = 3600000")).await;
        let mut socket = TcpStream::connect(sim.addr()).await.unwrap();
        let body = json!({"messages": [{"role": "user", "content": "hi"}], "stream": stream}).to_string();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: sim\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        socket.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        if stream {
            assert!(socket.read(&mut [0; 4096]).await.unwrap() > 0);
        }
        until(&sim, |stats| stats.running == 1).await;
        drop(socket);
        until(&sim, |stats| stats.running == 0).await;
        assert_eq!(sim.stats().aborted, 1);
    }
}

#[tokio::test]
async fn running_answers_may_end_when_it_stops() {
    let sim = recorded_model(Some("content = 'abcdefghij'\ntoken_delay_ms = 20")).await;
    let response = ask(&sim, "hi", json!({"stream": true})).await;
    let (text, ()) = tokio::join!(response.text(), sim.shutdown());
    assert!(text.unwrap().ends_with("data: [DONE]\n\n"));
}

#[tokio::test]
async fn a_taken_address_is_an_error() {
    let sim = recorded_model(None).await;
    let error = start(Settings { listen: sim.addr(), ..Settings::default() }).await.unwrap_err().to_string();
    assert!(error.contains("cannot listen on") && error.contains(&sim.addr().to_string()), "{error}");
}
