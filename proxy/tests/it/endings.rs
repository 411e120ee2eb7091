//! Every way in which a call can end leaves a record of its end.

use std::time::Duration;

use rolltap_proxy::ShutdownError;
use rolltap_rollout::call::{Call, CallStatus};
use rolltap_testing::{eventually, limit};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::harness::{self, Stage, request, simulator};
use crate::raw_upstream::{FIRST, LAST, RawUpstream, STREAM, Script, TOKEN, Then, chunk};

async fn only_call(stage: &Stage, trial: &rolltap_proxy::api::TrialOpened) -> Call {
    eventually("the call is kept", async || stage.calls(trial).await.len() == 1).await;
    stage.calls(trial).await.remove(0)
}

#[tokio::test]
async fn an_agent_that_leaves_at_the_finish_reason_has_a_complete_answer() {
    let mut pieces = vec![STREAM.as_bytes().to_vec()];
    pieces.extend([FIRST, TOKEN, LAST].map(chunk));
    let upstream = RawUpstream::start(vec![Script { pieces, then: Then::Hang }]).await;
    let stage = Stage::before(simulator(None).await, &upstream.url).await;
    let trial = stage.open(json!({})).await;
    let mut answer = stage.chat(&trial, &request(json!({"stream": true}))).await;
    let mut came = Vec::new();
    while !String::from_utf8_lossy(&came).contains(r#""finish_reason":"stop""#) {
        came.extend(answer.chunk().await.unwrap().unwrap());
    }
    drop(answer);
    let call = only_call(&stage, &trial).await;
    assert_eq!((call.status, call.error.as_deref(), call.is_trainable()), (CallStatus::Complete, None, true));
    assert_eq!(call.choices[0].token_ids.len(), 2);
}

#[tokio::test]
async fn an_upstream_error_keeps_its_status_and_is_recorded() {
    let stage = Stage::saying("error = { status = 503, message = \"overloaded\" }").await;
    let trial = stage.open(json!({})).await;
    for stream in [false, true] {
        let response = stage.chat(&trial, &request(json!({"stream": stream}))).await;
        assert_eq!(response.status().as_u16(), 503);
        assert!(response.text().await.unwrap().contains("overloaded"));
    }
    for call in stage.calls(&trial).await {
        assert_eq!((call.status, call.http_status), (CallStatus::Failed, Some(503)));
        assert!(call.error.unwrap().contains("overloaded"));
    }
    assert_eq!(stage.status(&trial).await.calls.failed, 2);
}

#[tokio::test]
async fn an_unreachable_upstream_is_a_503_with_its_address() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({})).await;
    let data = tempfile::tempdir().unwrap();
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy =
        rolltap_proxy::start(harness::settings(&format!("http://{nowhere}/v1"), &data)).await.unwrap();
    let elsewhere = Stage { proxy, ..stage };
    let trial_there = elsewhere.open(json!({})).await;
    assert_ne!(trial.key, trial_there.key);
    let response = elsewhere.chat(&trial_there, &request(json!({}))).await;
    assert_eq!(response.status().as_u16(), 503);
    let body: Value = response.json().await.unwrap();
    assert_eq!(body["error"]["code"], "no_upstream");
    assert!(body["error"]["message"].as_str().unwrap().contains(&nowhere.to_string()));
    let call = only_call(&elsewhere, &trial_there).await;
    assert_eq!((call.status, call.http_status), (CallStatus::Failed, None));
}

#[tokio::test]
async fn a_body_that_is_no_json_is_a_400_and_recorded() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({})).await;
    let url = format!("{}/chat/completions", trial.base_urls.openai);
    let response = stage.http.post(url).body("{\"model\": ").send().await.unwrap();
    assert_eq!(response.status().as_u16(), 400);
    assert_eq!(response.json::<Value>().await.unwrap()["error"]["type"], "BadRequestError");
    assert!(only_call(&stage, &trial).await.error.unwrap().contains("not a JSON object"));
}

#[tokio::test]
async fn a_stream_that_breaks_off_breaks_off_for_the_agent_too_and_keeps_what_came() {
    let stage = Stage::saying("content = \"one two three four five\"\nbreak_after = 2").await;
    let trial = stage.open(json!({})).await;
    let mut response = stage.chat(&trial, &request(json!({"stream": true}))).await;
    let mut seen = String::new();
    let broke = loop {
        match response.chunk().await {
            Ok(Some(bytes)) => seen += std::str::from_utf8(&bytes).unwrap(),
            Ok(None) => break false,
            Err(_) => break true,
        }
    };
    assert!(broke && seen.contains("data: ") && !seen.contains("[DONE]"));
    let call = only_call(&stage, &trial).await;
    assert_eq!(call.status, CallStatus::Failed);
    assert_eq!((call.choices[0].token_ids.len(), call.choices[0].logprobs.len()), (2, 2));
    assert!(!call.is_trainable());
}

#[tokio::test]
async fn an_agent_that_leaves_cancels_upstream_and_its_partial_answer_is_recorded() {
    let stage = Stage::saying("content = \"one two three four five\"\nstall_after = 2").await;
    let trial = stage.open(json!({})).await;
    let mut response = stage.chat(&trial, &request(json!({"stream": true}))).await;
    let mut events = 0;
    while events < 3 {
        let chunk = response.chunk().await.unwrap().unwrap();
        events += String::from_utf8(chunk.to_vec()).unwrap().matches("data: ").count();
    }
    assert_eq!(stage.upstream.stats().running, 1);
    drop(response);
    eventually("upstream is idle", async || stage.upstream.stats().running == 0).await;
    let call = only_call(&stage, &trial).await;
    assert_eq!((call.status, call.choices[0].token_ids.len()), (CallStatus::Cancelled, 2));
    assert!(call.error.unwrap().contains("left"));
}

#[tokio::test]
async fn an_agent_that_leaves_before_the_answer_cancels_upstream() {
    let stage = Stage::saying("content = \"late\"\ndelay_ms = 600000").await;
    let trial = stage.open(json!({})).await;
    const LEFT: &str = "the agent left before the answer was whole";
    for (stream, header, error) in [
        (false, "x-other", "s without a byte of it"),
        (false, "via", "the gateway in front of rolltap (via)"),
        (true, "x-other", LEFT),
    ] {
        let calls = stage.calls(&trial).await.len();
        let body = request(json!({"stream": stream}));
        let url = format!("{}/chat/completions", trial.base_urls.openai);
        let call = tokio::spawn(stage.http.post(url).header(header, "1.1 gateway").json(&body).send());
        eventually("upstream works", async || stage.upstream.stats().running == 1).await;
        call.abort();
        drop(call); // drops the answer too, if it has begun
        eventually("upstream is idle", async || stage.upstream.stats().running == 0).await;
        eventually("the call is kept", async || stage.calls(&trial).await.len() == calls + 1).await;
        let recorded = stage.calls(&trial).await.remove(calls).error.unwrap();
        assert!(recorded.starts_with(LEFT) && recorded.contains(error), "{recorded}");
        assert_eq!(recorded.contains("gateway"), header == "via", "{recorded}");
    }
    assert!(stage.calls(&trial).await.iter().all(|call| call.status == CallStatus::Cancelled));
}

#[tokio::test]
async fn sealing_ends_every_call_under_way_before_it_answers() {
    let stage = Stage::saying("content = \"one two three\"\nstall_after = 1").await;
    let trial = stage.open(json!({})).await;
    let mut streaming = stage.chat(&trial, &request(json!({"stream": true}))).await;
    let url = format!("{}/chat/completions", trial.base_urls.openai);
    let waiting = tokio::spawn(stage.http.post(url).json(&request(json!({}))).send());
    eventually("both are under way", async || stage.upstream.stats().running == 2).await;

    let status = stage.seal(&trial).await;
    assert_eq!((status.calls.total, status.calls.in_flight), (2, 0));
    eventually("upstream is idle", async || stage.upstream.stats().running == 0).await;
    assert_eq!(waiting.await.unwrap().unwrap().status().as_u16(), 410);
    while let Ok(Some(_)) = streaming.chunk().await {}
    let calls = stage.calls(&trial).await;
    assert!(calls.iter().all(|call| call.status == CallStatus::Cancelled));
    let again = stage.seal(&trial).await;
    assert_eq!(again.sealed_at, status.sealed_at);
    assert_eq!(stage.calls(&trial).await, calls, "nothing changes a sealed trial");
}

#[tokio::test]
async fn an_agent_that_does_not_read_cannot_hold_its_trial_open() {
    let words = "word ".repeat(60_000);
    let stage = Stage::saying(&format!("content = \"{words}\"")).await;
    let trial = stage.open(json!({})).await;
    let body = request(json!({"stream": true, "max_tokens": 30_000})).to_string();
    let head = format!(
        "POST /t/{}/v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        trial.key,
        body.len()
    );
    let mut deaf = TcpStream::connect(stage.proxy.agent_addrs()[0]).await.unwrap();
    deaf.write_all((head + &body).as_bytes()).await.unwrap();
    eventually("upstream works", async || stage.upstream.stats().running == 1).await;
    let status = tokio::time::timeout(limit(20), stage.seal(&trial)).await.unwrap();
    assert_eq!((status.calls.total, status.calls.in_flight), (1, 0));
    eventually("upstream is idle", async || stage.upstream.stats().running == 0).await;
}

#[tokio::test]
async fn a_proxy_that_goes_down_lets_calls_finish() {
    let stage = Stage::saying("content = \"one two three four five six\"\ntoken_delay_ms = 40").await;
    let trial = stage.open(json!({})).await;
    let response = stage.chat(&trial, &request(json!({"stream": true}))).await;
    let ready = stage.admin("/readyz");
    let Stage { proxy, http, data, .. } = stage;
    let down = tokio::spawn(proxy.shutdown(limit(20)));
    eventually("it reports that", async || {
        http.get(&ready).send().await.is_ok_and(|r| r.status().as_u16() == 503)
    })
    .await;
    assert!(response.text().await.unwrap().ends_with("data: [DONE]\n\n"));
    down.await.unwrap().unwrap();
    let stored = rolltap_proxy::store::read_dir(data.path()).unwrap();
    assert_eq!(stored.trials[0].calls[0].status, CallStatus::Complete);
}

#[tokio::test]
async fn a_proxy_that_must_go_down_cuts_calls_off_and_records_it() {
    let stage = Stage::saying("content = \"one two three\"\nstall_after = 1").await;
    let trial = stage.open(json!({})).await;
    let mut response = stage.chat(&trial, &request(json!({"stream": true}))).await;
    assert!(response.chunk().await.unwrap().is_some());
    let Stage { proxy, data, .. } = stage;
    let down = proxy.shutdown(Duration::from_millis(50)).await;
    assert!(matches!(down, Err(ShutdownError::CutOff(_))));
    let stored = rolltap_proxy::store::read_dir(data.path()).unwrap();
    assert_eq!(stored.trials[0].calls[0].status, CallStatus::Cancelled);
}
