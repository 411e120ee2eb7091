//! An upstream that misbehaves: the agent sees the same as without the proxy, the record states the defect, and the
//! next call succeeds.

use rolltap_proxy::api::TrialOpened;
use rolltap_rollout::call::{Call, CallStatus, Flaw};
use rolltap_testing::{eventually, limit};
use serde_json::{Value, json};

use crate::harness::{Stage, request, simulator};
use crate::raw_upstream::{
    DONE, FIRST, LAST, RawUpstream, STREAM, Script, TOKEN, Then, chunk, chunked, sound, stream, whole,
};

/// The part of an answer that the agent got.
struct Got {
    status: u16,
    text: String,
    /// True if the connection ended before the answer did.
    broke: bool,
}

/// Makes one call that gets this answer, and then one that is answered correctly. Returns the answer and the record of
/// the first.
async fn call_answered(script: Script, streaming: bool) -> (Got, Call) {
    call_answered_by(vec![script], streaming).await
}

async fn call_answered_by(scripts: Vec<Script>, streaming: bool) -> (Got, Call) {
    let upstream = RawUpstream::start(scripts).await;
    let stage = Stage::before(simulator(None).await, &upstream.url).await;
    let trial = stage.open(json!({})).await;
    let got = tokio::time::timeout(limit(30), ask(&stage, &trial, streaming)).await.unwrap();
    eventually("the call is recorded", async || stage.calls(&trial).await.len() == 1).await;

    let next = ask(&stage, &trial, true).await;
    assert!(next.text.ends_with(DONE) && !next.broke, "the proxy serves on");
    let mut calls = stage.calls(&trial).await;
    let sound = calls.pop().unwrap();
    assert_eq!((sound.status, &sound.flaws[..]), (CallStatus::Complete, &[][..]));
    (got, calls.remove(0))
}

async fn ask(stage: &Stage, trial: &TrialOpened, streaming: bool) -> Got {
    let mut response = stage.chat(trial, &request(json!({"stream": streaming}))).await;
    let status = response.status().as_u16();
    let mut bytes = Vec::new();
    let broke = loop {
        match response.chunk().await {
            Ok(Some(more)) => bytes.extend_from_slice(&more),
            Ok(None) => break false,
            Err(_) => break true,
        }
    };
    Got { status, text: String::from_utf8_lossy(&bytes).into_owned(), broke }
}

fn ids(call: &Call) -> Vec<i32> {
    call.choices.iter().flat_map(|choice| &choice.token_ids).map(|id| id.as_i32()).collect()
}

#[tokio::test]
async fn a_stream_that_breaks_off_anywhere_keeps_what_came_and_breaks_off_for_the_agent() {
    let half = &TOKEN.as_bytes()[..60];
    let events = [FIRST.as_bytes(), TOKEN.as_bytes(), half];
    let sent = || [STREAM.as_bytes().to_vec()].into_iter().chain(events.map(chunk));
    for (name, script, said) in [
        ("half an event, then the end of the body", stream(&events), "in an event"),
        ("half an event, then the end", Script { pieces: sent().collect(), then: Then::Close }, "broke off"),
        (
            "half a chunk, then the end",
            Script { pieces: sent().chain([b"ff\r\ndata".to_vec()]).collect(), then: Then::Close },
            "broke off",
        ),
        ("no [DONE]", stream(&events[..2]), "no [DONE]"),
        (
            "a chunk of no size",
            Script { pieces: sent().chain([b"zz\r\n".to_vec()]).collect(), then: Then::Close },
            "broke off",
        ),
    ] {
        let (got, call) = call_answered(script, true).await;
        assert!(got.broke && got.status == 200 && !got.text.contains("[DONE]"), "{name}: {}", got.text);
        assert_eq!(call.status, CallStatus::Failed, "{name}");
        assert!(call.error.as_ref().unwrap().contains(said), "{name}: {:?}", call.error);
        assert_eq!((ids(&call), call.prompt_token_ids.len()), (vec![7], 2), "{name}");
        assert!(!call.is_trainable(), "{name}");
    }
}

#[tokio::test]
async fn the_framing_of_a_stream_does_not_matter() {
    let text = [FIRST, TOKEN, ": a comment\n\n", LAST, DONE].concat();
    let head = STREAM.as_bytes().to_vec();
    let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
    let crlf = text.replace('\n', "\r\n");
    let with = |mut pieces: Vec<Vec<u8>>| {
        pieces.insert(0, head.clone());
        Script { pieces, then: Then::Listen }
    };
    let extended = format!("{:x};a=b;c=\"d\"\r\n{text}\r\n0;e\r\nx-trailer: 1\r\n\r\n", text.len());
    let closed = format!("HTTP/1.1 200 OK\r\ncontent-type: Text/Event-Stream\r\n\r\n{text}");
    let early = format!("HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n{STREAM}");
    for (name, script) in [
        ("byte by byte", with(chunked(&bytes))),
        ("all at once", with(chunked(&[text.as_bytes()]))),
        ("lines that end with CR LF", with(chunked(&[crlf.as_bytes()]))),
        ("chunk extensions and trailers", with(vec![extended.into_bytes()])),
        ("ended by closing", Script { pieces: vec![closed.into_bytes()], then: Then::Close }),
        (
            "an interim answer first",
            Script {
                pieces: [vec![early.into_bytes()], chunked(&[text.as_bytes()])].concat(),
                then: Then::Listen,
            },
        ),
    ] {
        let (got, call) = call_answered(script, true).await;
        assert!(!got.broke && got.text.trim_end().ends_with("data: [DONE]"), "{name}: {}", got.text);
        assert!(got.text.contains(": a comment"), "{name}");
        assert_eq!((call.status, &call.flaws[..]), (CallStatus::Complete, &[][..]), "{name}");
        assert_eq!(ids(&call), [7, 8], "{name}");
    }
}

#[tokio::test]
async fn what_comes_after_the_end_is_no_part_of_the_record() {
    let garbage = "data: {\"choices\":[{\"index\":0,\"token_ids\":[9]}]}\n\ngarbage";
    let together = [DONE, garbage].concat();
    for events in [vec![DONE, garbage], vec![together.as_str()]] {
        let events: Vec<_> = [FIRST, TOKEN, LAST].into_iter().chain(events).map(str::as_bytes).collect();
        let (got, call) = call_answered(stream(&events), true).await;
        assert!(got.text.contains(DONE) && !got.broke);
        assert_eq!((call.status, ids(&call)), (CallStatus::Complete, vec![7, 8]));
    }
}

#[tokio::test]
async fn an_error_inside_a_200_passes_and_the_call_counts_as_failed() {
    let error = r#"{"error":{"message":"the engine died","type":"InternalServerError","code":500}}"#;
    let event = format!("data: {error}\n\n");
    let streamed = stream(&[FIRST, TOKEN, &event, DONE].map(str::as_bytes));
    for (script, streaming) in [(streamed, true), (whole("200 OK", "application/json", error), false)] {
        let (got, call) = call_answered(script, streaming).await;
        assert!(got.text.contains(error) && got.status == 200 && !got.broke);
        assert_eq!(call.status, CallStatus::Failed);
        assert!(call.error.unwrap().contains("the engine died"));
    }
}

#[tokio::test]
async fn events_that_cannot_be_read_pass_and_make_the_call_untrainable() {
    let not_utf8 = [b"data: {\"choices\":[{\"index\":0,\"token_ids\":[9],\"x\":\"\xff\"}]}\n\n".as_slice()];
    for bad in [
        b"data: {\"choices\": [\n\n".as_slice(),
        b"data: 5\n\n",
        b"data: {\"choices\": 5}\n\n",
        b"data: {\"choices\":[{\"index\":-1,\"token_ids\":[9]}]}\n\n",
        b"data: {\"choices\":[{\"index\":0,\"token_ids\":[\"9\"]}]}\n\n",
        not_utf8[0],
    ] {
        let events = [FIRST.as_bytes(), TOKEN.as_bytes(), bad, LAST.as_bytes(), DONE.as_bytes()];
        let (got, call) = call_answered(stream(&events), true).await;
        let bad = String::from_utf8_lossy(bad).into_owned();
        assert!(got.text.contains(DONE) && !got.broke, "{bad}");
        assert_eq!(call.flaws.first(), Some(&Flaw::Unreadable), "{bad}");
        assert!(!call.is_trainable(), "{bad}");
    }
}

#[tokio::test]
async fn a_whole_answer_of_the_wrong_kind_passes_and_is_not_trained_on() {
    for (status, content_type, body) in [
        ("200 OK", "text/html", "<html>a gateway's page</html>"),
        ("200 OK", "application/json", "{\"choices\":[{\"index\":0,\"message\":{\"content\":\"cut"),
        ("200 OK", "application/json", ""),
        ("200 OK", "application/json", "[]"),
        ("200 OK", "application/json", "{}"),
        ("200 OK", "application/json", r#"{"choices":[{"index":0,"token_ids":[1],"finish_reason":"stop"}]}"#),
    ] {
        let (got, call) = call_answered(whole(status, content_type, body), false).await;
        assert_eq!((got.status, got.broke), (200, false), "{body}");
        if !body.contains("token_ids") {
            assert_eq!(got.text, body);
        }
        if content_type == "text/html" {
            let error = call.error.clone().unwrap_or_default();
            assert!(call.status == CallStatus::Failed && error.contains("a gateway"), "{call:?}");
        }
        assert!(!call.is_trainable(), "{body}: {call:?}");
    }
    for (status, code) in [("503 Service Unavailable", 503), ("404 Not Found", 404), ("500 X", 500)] {
        let (got, call) = call_answered(whole(status, "text/html", "<h1>busy</h1>"), true).await;
        assert_eq!((got.status, got.text.as_str()), (code, "<h1>busy</h1>"));
        assert_eq!((call.status, call.http_status), (CallStatus::Failed, Some(code)));
        let error = call.error.unwrap();
        assert!(error.contains("a gateway") && error.contains(&code.to_string()), "{error}");
    }
}

#[tokio::test]
async fn an_answer_that_is_no_http_is_a_502_with_the_reason() {
    let headers = "x: 1\r\n".repeat(2000);
    let closing = |text: &str| Script { pieces: vec![text.as_bytes().to_vec()], then: Then::Close };
    for (name, script) in [
        ("nothing", closing("")),
        ("another protocol", closing("SSH-2.0-OpenSSH_9.2\r\n")),
        ("half a head", closing("HTTP/1.1 200 OK\r\ncontent-ty")),
        ("a flood of headers", closing(&format!("HTTP/1.1 200 OK\r\n{headers}\r\n"))),
        ("an endless header", closing(&format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(1 << 20)))),
        (
            "half a body",
            closing("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{"),
        ),
    ] {
        // A connection without an answer may already have been closing, so the call is sent once more.
        let times = if matches!(name, "nothing" | "half a head") { 2 } else { 1 };
        let (got, call) = call_answered_by(vec![script; times], false).await;
        assert_eq!(got.status, 502, "{name}: {}", got.text);
        let error: Value = serde_json::from_str(&got.text).unwrap();
        assert!(error["error"]["message"].is_string(), "{name}");
        assert_eq!(call.status, CallStatus::Failed, "{name}");
        assert!(call.error.is_some(), "{name}");
    }
}

#[tokio::test]
async fn an_upstream_that_stalls_delays_no_other_call() {
    let stalled = Script { pieces: vec![STREAM.as_bytes().to_vec(), chunk(FIRST)], then: Then::Hang };
    let upstream = RawUpstream::start(vec![stalled.clone(), stalled, sound()]).await;
    let stage = Stage::before(simulator(None).await, &upstream.url).await;
    let trial = stage.open(json!({})).await;
    let first = stage.chat(&trial, &request(json!({"stream": true}))).await;
    let second = stage.chat(&trial, &request(json!({"stream": true}))).await;
    assert!(ask(&stage, &trial, true).await.text.ends_with(DONE));
    assert_eq!((stage.status(&trial).await.calls.in_flight, upstream.heard().len()), (2, 3));
    drop((first, second));
    eventually("both are recorded", async || stage.status(&trial).await.calls.total == 3).await;
}

#[tokio::test]
async fn a_redirect_is_the_proxys_operator_to_follow_and_not_the_agents() {
    let elsewhere = "http://127.0.0.1:9/v1/chat/completions";
    let head =
        format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: {elsewhere}\r\ncontent-length: 0\r\n\r\n");
    let redirecting = Script { pieces: vec![head.into_bytes()], then: Then::Listen };
    let (got, call) = call_answered(redirecting, true).await;
    assert_eq!(got.status, 502);
    assert!(got.text.contains(elsewhere) && got.text.contains("--upstream"), "{}", got.text);
    assert_eq!(call.status, CallStatus::Failed);
}

#[tokio::test]
async fn an_upstream_that_sends_no_ids_or_logprobs_is_counted_by_what_it_leaves_out() {
    let without = |members: &[&str]| {
        let strip = |event: &str| {
            let mut chunk: Value = serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap();
            for member in members {
                chunk.as_object_mut().unwrap().remove(*member);
                chunk["choices"][0].as_object_mut().unwrap().remove(*member);
            }
            format!("data: {chunk}\n\n").into_bytes()
        };
        let events = [FIRST, TOKEN, LAST].map(strip);
        stream(&[&*events[0], &*events[1], &*events[2], DONE.as_bytes()])
    };
    let scripts = vec![without(&["token_ids", "prompt_token_ids"]), without(&["logprobs"])];
    let upstream = RawUpstream::start(scripts).await;
    let stage = Stage::before(simulator(None).await, &upstream.url).await;
    let trial = stage.open(json!({})).await;
    for _ in 0..3 {
        ask(&stage, &trial, true).await;
    }
    let status = stage.status(&trial).await;
    let flaws = [
        (Flaw::MissingPromptIds, 1),
        (Flaw::MissingTokenIds, 1),
        (Flaw::MissingLogprobs, 1),
        (Flaw::LengthMismatch, 2),
    ];
    assert_eq!(status.flaws, flaws.into());
    assert_eq!((status.calls.complete, status.empty_calls()), (3, 1));
    let metrics = stage.http.get(stage.admin("/metrics")).send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("rolltap_call_flaws_total{flaw=\"missing_logprobs\"} 1"), "{metrics}");
}
