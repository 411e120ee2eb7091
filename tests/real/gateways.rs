//! The agent plane behind gateways, with the configurations of `deploy/`.
//!
//! nginx, HAProxy and Caddy are Debian's. Each test starts its own, in front of a proxy whose public URL has a path prefix.

mod client;
mod containers;
mod gateway;

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use rolltap_proxy::api::TrialOpened;
use rolltap_rollout::call::{Call, CallStatus};
use rolltap_sim as sim;
use rolltap_testing::eventually;
use serde_json::{Value, json};

use self::client::Answer;
use self::gateway::{ALL, Gateway, Kind, Planned};
use crate::harness::{Stage, vllm};

/// The simulator answers by the first user message: at once, after a delay, never, or with one token and then never.
const SCRIPT: &str = r#"
[[conversation]]
match = "at once"
[[conversation.turn]]
[[conversation.turn.answer]]
content = "Here it is."
[[conversation]]
match = "soon"
[[conversation.turn]]
[[conversation.turn.answer]]
content = "Here it is."
delay_ms = 2_000
[[conversation]]
match = "in half an hour"
[[conversation.turn]]
[[conversation.turn.answer]]
content = "Here it is."
delay_ms = 1_790_000
[[conversation]]
match = "after three minutes"
[[conversation.turn]]
[[conversation.turn.answer]]
content = "Here it is."
delay_ms = 180_000
[[conversation]]
match = "never"
[[conversation.turn]]
[[conversation.turn.answer]]
content = "Here it is."
stall_after = 0
[[conversation]]
match = "one token"
[[conversation.turn]]
[[conversation.turn.answer]]
content = "Here it is."
stall_after = 1
"#;

/// A simulator, a proxy in front of it, and a gateway in front of both.
struct Scene {
    sim: sim::RunningSim,
    stage: Stage,
    gateway: Gateway,
    trial: TrialOpened,
}

impl Scene {
    async fn set(gateway: Planned) -> Self {
        let script = sim::Script::from_toml(SCRIPT, "gateways").unwrap();
        let settings = sim::Settings { script: Some(script), ..sim::Settings::default() };
        let sim = sim::start(settings).await.unwrap();
        let stage = Stage::published(format!("http://{}", sim.addr()), &gateway.public_url()).await;
        let gateway = gateway.start(stage.proxy.agent_addrs()[0]).await;
        let trial = stage.open().await;
        Self { sim, stage, gateway, trial }
    }

    fn chat_url(&self) -> String {
        format!("{}/chat/completions", self.trial.base_urls.openai)
    }

    async fn chat(&self, when: &str, stream: bool) -> Answer {
        self.gateway.client.post(&self.chat_url(), &chat(when, stream)).await
    }

    /// Waits until the record has this number of calls.
    async fn calls(&self, expected: usize) -> Vec<Call> {
        eventually("the calls are recorded", async || self.stage.calls(&self.trial).await.len() == expected)
            .await;
        self.stage.calls(&self.trial).await
    }
}

fn chat(when: &str, stream: bool) -> Value {
    json!({"model": "sim", "messages": [{"role": "user", "content": when}], "stream": stream})
}

/// Runs a test of one gateway for each of these gateways at once.
async fn each<F: Future<Output = ()>>(kinds: impl IntoIterator<Item = Kind>, test: impl Fn(Kind) -> F) {
    join_all(kinds.into_iter().map(test)).await;
}

#[tokio::test]
#[ignore = "needs nginx, HAProxy and Caddy: run ./scripts/test"]
async fn streams_stream_and_disconnects_reach_the_upstream() {
    each(ALL, async |kind| {
        let scene = Scene::set(kind.planned()).await;
        let mut answer = scene.chat("one token", true).await;
        assert_eq!(answer.status(), 200, "{kind:?}");
        // The token is here, and the simulator holds the next one back.
        answer.until(r#""content":"H"#).await;
        assert_eq!(scene.sim.stats().running, 1, "{kind:?}");
        drop(answer);
        eventually("the stream is aborted", async || scene.sim.stats().aborted == 1).await;
        let call = scene.calls(1).await.remove(0);
        assert_eq!(call.status, CallStatus::Cancelled, "{kind:?}");
        assert_eq!(call.error.unwrap(), "the agent left before the answer was whole", "{kind:?}");

        let silent = scene.chat("never", false);
        let waiting = eventually("the call is in flight", async || scene.sim.stats().running == 1);
        tokio::select! {
            _ = silent => panic!("{kind:?}: the upstream never answers"),
            () = waiting => {}
        }
        eventually("the silent call is aborted", async || scene.sim.stats().aborted == 2).await;
        let call = scene.calls(2).await.remove(1);
        let error = call.error.unwrap();
        assert_eq!(call.status, CallStatus::Cancelled, "{kind:?}");
        assert!(error.contains("without a byte of it") && error.contains("gateway"), "{kind:?}: {error}");

        let whole: Value = serde_json::from_str(&scene.chat("at once", false).await.text().await).unwrap();
        assert_eq!(whole["choices"][0]["message"]["content"], "Here it is.", "{kind:?}");
        if let Some(log) = scene.gateway.access_log() {
            assert!(log.contains("POST") && !log.contains(&scene.trial.key), "{kind:?}: {log}");
        }
    })
    .await;
}

#[tokio::test]
#[ignore = "needs nginx: run ./scripts/test"]
async fn a_gateway_that_buffers_holds_the_first_event_back() {
    let scene = Scene::set(Kind::Nginx.planned().with("proxy_buffering off", "proxy_buffering on")).await;
    // nginx may hold back the head too.
    let first = async { scene.chat("one token", true).await.until(r#""content":"H"#).await };
    let seen = tokio::time::timeout(Duration::from_secs(2), first).await;
    assert!(seen.is_err(), "the other tests would not notice buffering");
    assert_eq!(scene.sim.stats().requests, 1);
}

/// The scaled time-out of the gateways. The committed files have half an hour and a minute.
const TIMEOUT: Duration = Duration::from_secs(6);

#[tokio::test]
#[ignore = "needs nginx, HAProxy and Caddy: run ./scripts/test"]
async fn a_gateway_with_a_short_time_out_cuts_a_silent_call_and_the_record_names_it() {
    each(ALL, async |kind| {
        let short = format!("{}s", TIMEOUT.as_secs());
        let scene = Scene::set(kind.planned().with("1860s", &short)).await;
        let begin = Instant::now();
        let (soon, never) = tokio::join!(scene.chat("soon", false), scene.chat("never", false));
        assert_eq!(soon.status(), 200, "{kind:?}: a shorter silence survives");
        assert!(begin.elapsed() >= TIMEOUT, "{kind:?}");
        assert_eq!(never.status(), 504, "{kind:?}");
        let body = never.text().await;
        assert!(
            serde_json::from_str::<Value>(&body).is_err(),
            "{kind:?}: the answer is the gateway's: {body}"
        );
        eventually("the call is aborted", async || scene.sim.stats().aborted == 1).await;
        let calls = scene.calls(2).await;
        let cut: Vec<_> = calls.iter().filter(|call| call.status == CallStatus::Cancelled).collect();
        let [Call { error: Some(error), .. }] = cut[..] else { panic!("{kind:?}: {calls:?}") };
        let seconds = error.split_once("after ").and_then(|(_, rest)| rest.split_once(" s without a byte"));
        let seconds: f64 = seconds.unwrap_or_else(|| panic!("{kind:?}: {error}")).0.parse().unwrap();
        assert!(seconds >= TIMEOUT.as_secs_f64() - 0.5, "{kind:?}: {error}");
        assert!(error.contains("the gateway in front of rolltap (x-forwarded-for)"), "{kind:?}: {error}");
    })
    .await;
}

#[tokio::test]
#[ignore = "needs nginx, HAProxy and Caddy: run ./scripts/test"]
async fn a_large_body_passes_with_and_without_its_length() {
    each(ALL, async |kind| {
        let scene = Scene::set(kind.planned()).await;
        // White space is valid JSON, and it takes no time to tokenize.
        let padding = Bytes::from(vec![b' '; 8 << 20]);
        let request = chat("at once", false).to_string();
        let text = Bytes::from([request.as_bytes(), &padding].concat());
        let pieces = [Bytes::from(request), padding].map(|piece| Ok::<_, std::io::Error>(Frame::data(piece)));
        let chunked = StreamBody::new(futures_util::stream::iter(pieces)).boxed();
        let whole = Full::new(text).map_err(|never| match never {}).boxed();
        for body in [whole, chunked] {
            let request = scene.gateway.client.request("POST", &scene.chat_url()).body(body).unwrap();
            let answer = scene.gateway.client.send(request).await;
            assert_eq!(answer.status(), 200, "{kind:?}: {}", answer.text().await);
        }
    })
    .await;
}

/// Returns a request of each dialect with its path below the trial's base URL.
fn of_each_dialect() -> Vec<(&'static str, Value)> {
    let messages = json!([{"role": "user", "content": "Hello"}]);
    let contents = json!({"contents": [{"role": "user", "parts": [{"text": "Hello"}]}],
        "generationConfig": {"maxOutputTokens": 8}});
    vec![
        ("/v1/chat/completions", json!({"model": "org/tiny", "max_tokens": 8, "messages": messages})),
        ("/v1/completions", json!({"model": "org/tiny", "max_tokens": 8, "prompt": "Hello"})),
        ("/v1/responses", json!({"model": "org/tiny", "max_output_tokens": 8, "input": "Hello"})),
        ("/v1/messages", json!({"model": "org/tiny", "max_tokens": 8, "messages": messages})),
        ("/v1beta/models/org%2Ftiny:generateContent", contents.clone()),
        ("/v1beta/models/org/tiny:streamGenerateContent?alt=sse", contents),
    ]
}

#[tokio::test]
#[ignore = "needs nginx, HAProxy, Caddy and vLLM: run ./scripts/test"]
async fn every_dialect_works_below_the_prefix_and_nothing_else_is_public() {
    each(ALL, async |kind| {
        let planned = kind.planned();
        let public_url = planned.public_url();
        let stage = Stage::published(vllm(), &public_url).await;
        let gateway = planned.start(stage.proxy.agent_addrs()[0]).await;
        let trial = stage.open_as(json!({"task_id": "real", "model_aliases": {"org/*": "*"}})).await;
        let base = format!("{public_url}/t/{}", trial.key);
        assert_eq!(trial.base_urls.openai, format!("{base}/v1"));
        assert_eq!((&trial.base_urls.anthropic, &trial.base_urls.gemini), (&base, &base));

        for (path, body) in of_each_dialect() {
            let by_path = gateway.client.post(&format!("{base}{path}"), &body).await;
            assert_eq!(by_path.status(), 200, "{kind:?} {path}: {}", by_path.text().await);
            by_path.text().await;
            let request = gateway.client.request("POST", &format!("{public_url}{path}"));
            let request =
                request.header("x-api-key", &trial.key).body(Full::new(Bytes::from(body.to_string())));
            let by_header = gateway.client.send(request.unwrap()).await;
            assert_eq!(by_header.status(), 200, "{kind:?} {path}: {}", by_header.text().await);
            by_header.text().await;
        }
        let calls = stage.calls(&trial).await;
        assert_eq!(calls.len(), 2 * of_each_dialect().len(), "{kind:?}");
        assert!(calls.iter().all(|call| call.status == CallStatus::Complete && call.flaws.is_empty()));

        let count = json!({"model": "org/tiny", "messages": [{"role": "user", "content": "Hello"}]});
        let counted = gateway.client.post(&format!("{base}/v1/messages/count_tokens"), &count).await;
        assert!(counted.text().await.contains("input_tokens"), "{kind:?}");
        assert!(
            gateway.client.get(&format!("{base}/v1/models")).await.text().await.contains("tiny"),
            "{kind:?}"
        );

        // The trial's own key opens none of them.
        let host = public_url.strip_suffix("/rolltap").unwrap();
        for path in [
            "/v1/trials",
            "/v1/upstreams",
            "/metrics",
            "/healthz",
            "/readyz",
            "/../v1/trials",
            "/%2e%2e/metrics",
        ] {
            for address in [format!("{host}{path}"), format!("{public_url}{path}"), format!("{base}{path}")] {
                let request = gateway.client.request("GET", &address).header("x-api-key", &trial.key);
                let answer = gateway.client.send(request.body(Full::new(Bytes::new())).unwrap()).await;
                assert!(matches!(answer.status(), 400 | 404), "{kind:?} {address}: {}", answer.status());
            }
        }
    })
    .await;
}

#[tokio::test]
#[ignore = "takes half an hour, and needs nginx, HAProxy and Caddy: run ./scripts/test --long"]
async fn half_an_hour_of_silence_survives() {
    each(ALL, async |kind| {
        let scene = Scene::set(kind.planned()).await;
        let begin = Instant::now();
        let (whole, stream, never) = tokio::join!(
            async { scene.chat("in half an hour", false).await.text().await },
            async { scene.chat("in half an hour", true).await.text().await },
            async { scene.chat("never", false).await.text().await },
        );
        println!("{kind:?}: {:?}", begin.elapsed());
        let whole: Value = serde_json::from_str(&whole).unwrap_or_else(|_| panic!("{kind:?}: {whole}"));
        assert_eq!(whole["choices"][0]["message"]["content"], "Here it is.", "{kind:?}");
        assert!(
            stream.ends_with("data: [DONE]\n\n") && stream.contains(": keep-alive"),
            "{kind:?}: {stream}"
        );
        // rolltap gives up before the gateway, with its own error.
        let error: Value = serde_json::from_str(&never).unwrap_or_else(|_| panic!("{kind:?}: {never}"));
        assert_eq!(error["error"]["code"], "upstream_timeout", "{kind:?}");
        assert!(begin.elapsed() >= Duration::from_secs(1_800), "{kind:?}");
    })
    .await;
}

#[tokio::test]
#[ignore = "takes three minutes, and needs nginx: run ./scripts/test --long"]
async fn nginx_with_its_own_time_outs_cuts_a_silent_call_after_a_minute_and_no_stream() {
    let gateway =
        Kind::Nginx.planned().with("proxy_read_timeout 1860s;", "").with("proxy_send_timeout 1860s;", "");
    let scene = Scene::set(gateway.with("send_timeout 1860s;", "")).await;
    let (whole, stream) = tokio::join!(async { scene.chat("never", false).await.status() }, async {
        scene.chat("after three minutes", true).await.text().await
    },);
    assert_eq!(whole, 504);
    assert!(stream.ends_with("data: [DONE]\n\n"), "{stream}");
    let calls = scene.calls(2).await;
    let cut = calls.iter().find(|call| call.status == CallStatus::Cancelled).unwrap();
    let error = cut.error.as_deref().unwrap();
    assert!(error.contains("after 60.") && error.contains("gateway"), "{error}");
}
