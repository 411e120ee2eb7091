//! A simulator with a limited KV cache: waiting, hits, metrics, and the time of the prefill.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rolltap_testing::limit;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::ask;
use crate::chat::Chat;
use crate::fields::Fields;
use crate::request::ChatRequest;
use crate::server::Server;
use crate::{RunningSim, Script, Settings, StartError, Stats, start};

/// Returns settings with `usable` blocks of 16 tokens.
fn settings(usable: u32, answer: Option<&str>) -> Settings {
    let script = answer.map(|answer| {
        let text = format!("[[conversation]]\n[[conversation.turn]]\n[[conversation.turn.answer]]\n{answer}");
        Script::from_toml(&text, "test").unwrap()
    });
    Settings { kv_blocks: Some(usable + 1), script, ..Settings::default() }
}

/// Returns a request whose prompt has the ids from `start`.
fn request(start: u32, tokens: u32, extra: Value) -> Value {
    let ids: Vec<u32> = (start..start + tokens).collect();
    let mut body = json!({"kv_transfer_params": {"prompt_token_ids": ids}, "ignore_eos": true});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

async fn answer(sim: &RunningSim, body: Value) -> Value {
    ask(sim, "hi", body).await.json().await.unwrap()
}

async fn metrics(sim: &RunningSim) -> String {
    rolltap_testing::get(format!("http://{}/metrics", sim.addr())).await.unwrap().text().await.unwrap()
}

/// Returns the value of a metric that has the labels of the engine.
async fn metric(sim: &RunningSim, name: &str) -> f64 {
    let text = metrics(sim).await;
    let start = format!("vllm:{name}{{engine=\"0\",model_name=\"sim\"}} ");
    let value = text.lines().find_map(|line| line.strip_prefix(&start));
    value.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

async fn until(sim: &RunningSim, wanted: impl Fn(&Stats) -> bool) {
    let start = Instant::now();
    while !wanted(&sim.stats()) {
        assert!(start.elapsed() < limit(5), "{:?}", sim.stats());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn metrics_of_the_cache_exist_if_it_is_limited() {
    let sim = start(Settings::default()).await.unwrap();
    let text = metrics(&sim).await;
    assert!(!text.contains("cache") && !text.contains("preemptions"), "{text}");
    let sim = start(settings(9, None)).await.unwrap();
    let text = metrics(&sim).await;
    for (name, kind) in [
        ("kv_cache_usage_perc", "gauge"),
        ("prefix_cache_queries_total", "counter"),
        ("prefix_cache_hits_total", "counter"),
        ("num_preemptions_total", "counter"),
        ("num_requests_running", "gauge"),
        ("num_requests_waiting", "gauge"),
    ] {
        assert!(text.contains(&format!("# TYPE vllm:{name} {kind}\n")), "{text}");
        assert!(text.contains(&format!("\nvllm:{name}{{engine=\"0\",model_name=\"sim\"}} 0.0\n")), "{text}");
    }
    let info = "\nvllm:cache_config_info{block_size=\"16\",cache_dtype=\"auto\",enable_prefix_caching=\"True\",\
                engine=\"0\",num_gpu_blocks=\"10\"} 1.0\n";
    assert!(text.contains(info), "{text}");
}

#[tokio::test]
async fn a_longer_prompt_hits_the_blocks_of_the_earlier_one() {
    let sim = start(settings(20, None)).await.unwrap();
    for stream in [false, true] {
        let start = 200 * u32::from(stream);
        let extra = json!({"max_tokens": 20, "return_token_ids": true});
        let first = answer(&sim, request(start, 40, extra)).await;
        assert_eq!(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
        // 59 of 60 tokens are computed, so three blocks are cached. The third has sampled tokens.
        let mut next: Vec<u32> = (start..start + 40).collect();
        next.extend(
            first["choices"][0]["token_ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32),
        );
        let mut body =
            json!({"kv_transfer_params": {"prompt_token_ids": next}, "max_tokens": 1, "stream": stream});
        if stream {
            body["stream_options"] = json!({"include_usage": true});
        }
        let text = ask(&sim, "hi", body).await.text().await.unwrap();
        assert!(text.contains("\"cached_tokens\":48"), "{text}");
    }
    assert_eq!(metric(&sim, "prefix_cache_queries_total").await, 200.0);
    assert_eq!(metric(&sim, "prefix_cache_hits_total").await, 96.0);
    assert_eq!(metric(&sim, "kv_cache_usage_perc").await, 0.0);
}

#[tokio::test]
async fn answers_of_one_request_share_its_prompt() {
    let sim = start(settings(4, Some("content = 'abcdefghij'\nstall_after = 3"))).await.unwrap();
    let mut response = ask(&sim, "hi", request(0, 33, json!({"n": 3, "stream": true}))).await;
    while !response.chunk().await.unwrap().unwrap().is_empty() && sim.stats().generation_tokens < 3 {}
    // Two shared blocks and one of an own for two answers. The third answer has no block.
    assert_eq!(metric(&sim, "kv_cache_usage_perc").await, 1.0);
    assert_eq!(metric(&sim, "prefix_cache_queries_total").await, 66.0);
    drop(response);
    until(&sim, |stats| stats.running == 0).await;
    assert_eq!(metric(&sim, "kv_cache_usage_perc").await, 0.0);
}

#[tokio::test]
async fn requests_wait_in_their_order_until_blocks_are_free() {
    for stream in [false, true] {
        let script = "content = 'abcdefghij'\ntoken_delay_ms = 3600000";
        let sim = Arc::new(start(settings(4, Some(script))).await.unwrap());
        let mut calls = Vec::new();
        // The third would fit beside the first, but it waits behind the second.
        for (index, tokens) in [48, 48, 8].into_iter().enumerate() {
            let body = request(100 * index as u32, tokens, json!({"stream": stream}));
            let call_sim = Arc::clone(&sim);
            calls.push(tokio::spawn(async move { ask(&call_sim, "hi", body).await.text().await }));
            until(&sim, |stats| stats.running == index as u64 + 1 && stats.waiting == index as u64).await;
        }
        assert_eq!(metric(&sim, "num_requests_running").await, 1.0);
        assert_eq!(metric(&sim, "num_requests_waiting").await, 2.0);
        assert_eq!(metric(&sim, "kv_cache_usage_perc").await, 0.75);
        assert_eq!(metric(&sim, "prefix_cache_queries_total").await, 48.0);
        // The first caller disconnects: the two others fit together.
        calls.remove(0).abort();
        until(&sim, |stats| stats.running == 2 && stats.waiting == 0).await;
        assert_eq!(metric(&sim, "kv_cache_usage_perc").await, 1.0);
        for call in calls {
            call.abort();
        }
        until(&sim, |stats| stats.running == 0).await;
        assert_eq!(metric(&sim, "kv_cache_usage_perc").await, 0.0);
    }
}

#[tokio::test]
async fn a_waiting_caller_that_disconnects_gives_its_place_to_the_next() {
    let script = "content = 'abcdefghij'\ntoken_delay_ms = 3600000";
    let sim = Arc::new(start(settings(4, Some(script))).await.unwrap());
    let mut calls = Vec::new();
    for (index, tokens) in [48, 48, 8].into_iter().enumerate() {
        let body = request(100 * index as u32, tokens, json!({"stream": true}));
        let call_sim = Arc::clone(&sim);
        calls.push(tokio::spawn(async move { ask(&call_sim, "hi", body).await.text().await }));
        until(&sim, |stats| stats.running == index as u64 + 1 && stats.waiting == index as u64).await;
    }
    calls.remove(1).abort();
    until(&sim, |stats| stats.running == 2 && stats.waiting == 0).await;
    assert_eq!(sim.stats().aborted, 1);
}

#[tokio::test]
async fn answers_grow_beyond_the_cache() {
    // Each of two answers needs two blocks in the end, and there are three.
    let settings = Settings { token_delay: Duration::from_millis(5), ..settings(3, None) };
    let sim = start(settings).await.unwrap();
    let body = |start| request(start, 16, json!({"max_tokens": 16}));
    let (one, other) = tokio::join!(answer(&sim, body(0)), answer(&sim, body(100)));
    for answer in [one, other] {
        assert_eq!(answer["usage"]["completion_tokens"], 16);
    }
    until(&sim, |stats| stats.running == 0).await;
    assert_eq!(metric(&sim, "kv_cache_usage_perc").await, 0.0);
    assert_eq!(metric(&sim, "num_preemptions_total").await, 0.0);
}

#[tokio::test]
async fn the_cache_limits_the_length() {
    let sim = start(settings(4, None)).await.unwrap();
    let models: Value =
        rolltap_testing::get(format!("http://{}/v1/models", sim.addr())).await.unwrap().json().await.unwrap();
    assert_eq!(models["data"][0]["max_model_len"], 64);
    let refused = ask(&sim, "hi", request(0, 65, json!({}))).await;
    assert_eq!(refused.status().as_u16(), 400);
    let message = refused.text().await.unwrap();
    assert!(message.contains("Input length (65) exceeds model's maximum context length (64)"), "{message}");
    let longest = answer(&sim, request(0, 60, json!({}))).await;
    assert_eq!(longest["usage"]["completion_tokens"], 4);
    for blocks in [0, 1] {
        let settings = Settings { kv_blocks: Some(blocks), ..Settings::default() };
        let error = start(settings).await.unwrap_err();
        assert!(matches!(error, StartError::KvBlocks { blocks: refused } if refused == blocks), "{error}");
    }
}

#[tokio::test]
async fn a_prefill_takes_time_for_uncached_tokens() {
    let delay = Duration::from_secs(10);
    for (kv_blocks, second) in [(Some(100), 3), (None, 35)] {
        let settings = Settings { kv_blocks, prefill_delay: delay, ..Settings::default() };
        let server = Arc::new(Server::new(settings, CancellationToken::new(), 0));
        for uncached in [35, second] {
            let body = json!({"messages": [], "kv_transfer_params": {"prompt_token_ids": (0..35).collect::<Vec<u32>>()}});
            let map = body.as_object().unwrap();
            let request =
                ChatRequest::read(&Fields::of_body(map), &http::HeaderMap::new(), &server.settings).unwrap();
            let mut chat = Chat::new(request, &server, 0).unwrap();
            let held = match chat.admission(&server) {
                Some(admission) => Some(admission.await),
                None => None,
            };
            chat.admitted(held.as_ref(), delay);
            assert_eq!(chat.pace.delay, Duration::from_millis(uncached * 10));
        }
    }
}

#[tokio::test]
async fn the_first_token_comes_after_the_prefill() {
    for stream in [false, true] {
        let settings = Settings { prefill_delay: Duration::from_secs(1), ..settings(100, None) };
        let sim = start(settings).await.unwrap();
        let began = Instant::now();
        ask(&sim, "hi", request(0, 100, json!({"stream": stream, "max_tokens": 1})))
            .await
            .text()
            .await
            .unwrap();
        assert!(began.elapsed() >= Duration::from_millis(100), "{:?}", began.elapsed());
    }
}
