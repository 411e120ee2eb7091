//! Agents that misbehave, down to the bytes: each gets a clear answer, and the proxy keeps serving.

use rolltap_proxy::api::TrialOpened;
use rolltap_rollout::call::CallStatus;
use rolltap_testing::{eventually, limit};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{Stage, answer, request, simulator};
use crate::raw_upstream::{RawUpstream, sound};

/// Starts a proxy in front of an upstream that answers correctly and records its requests.
pub(crate) async fn set() -> (Stage, RawUpstream, TrialOpened) {
    let upstream = RawUpstream::start(vec![sound()]).await;
    let stage = Stage::before(simulator(None).await, &upstream.url).await;
    let trial = stage.open(json!({})).await;
    (stage, upstream, trial)
}

fn path(trial: &TrialOpened) -> String {
    format!("/t/{}/v1/chat/completions", trial.key)
}

/// Returns the head of a call with these additional lines.
pub(crate) fn head(trial: &TrialOpened, lines: &str) -> String {
    format!("POST {} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{lines}\r\n", path(trial))
}

/// Sends the pieces and reads until the proxy closes.
pub(crate) async fn exchange(stage: &Stage, pieces: &[&[u8]]) -> String {
    let mut agent = TcpStream::connect(stage.proxy.agent_addrs()[0]).await.unwrap();
    agent.set_nodelay(true).unwrap();
    for piece in pieces {
        if agent.write_all(piece).await.is_err() {
            break; // rejected before the request was complete
        }
        tokio::task::yield_now().await;
    }
    let mut answer = Vec::new();
    let read = tokio::time::timeout(limit(20), agent.read_to_end(&mut answer));
    let _ = read.await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

pub(crate) fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

pub(crate) async fn serves_on(stage: &Stage, trial: &TrialOpened) {
    let answer = stage.chat(trial, &request(json!({"stream": true}))).await;
    assert!(answer.text().await.unwrap().ends_with("data: [DONE]\n\n"));
}

#[tokio::test]
async fn bodies_that_are_no_request_are_refused_with_the_reason_and_never_reach_upstream() {
    let (stage, upstream, trial) = set().await;
    for (body, said) in [
        (b"".as_slice(), "not a JSON object"),
        (b"{\"model\": ", "line 1 column"),
        (b"[]", "not a JSON object"),
        (b"\"text\"", "not a JSON object"),
        (b"{\"a\":1} {", "trailing"),
        (b"{\"a\":\"\xff\"}", "not UTF-8 text (byte 6)"),
        (b"\xff\xfe{\0}\0", "not UTF-8 text (byte 0)"),
        (b"{\"a\":01}", "line 1 column"),
        (b"{'a':1}", "line 1 column"),
    ] {
        let lines = format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
        let answer = exchange(&stage, &[head(&trial, &lines).as_bytes(), body]).await;
        assert_eq!(status(&answer), "400", "{body:?}: {answer}");
        assert!(answer.contains(said), "{body:?}: {answer}");
    }
    assert_eq!(upstream.heard().len(), 0);
    let calls = stage.calls(&trial).await;
    assert_eq!(calls.len(), 9);
    assert!(calls.iter().all(|call| call.status == CallStatus::Failed && call.error.is_some()));
    serves_on(&stage, &trial).await;
}

#[tokio::test]
async fn what_is_odd_but_json_reaches_upstream_byte_for_byte() {
    let (stage, upstream, trial) = set().await;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let huge = "x".repeat(8 << 20);
    for members in [
        r#""messages":5,"n":"two","stream":"yes""#.to_owned(),
        r#""n":-1,"max_tokens":1e400,"temperature":[]"#.to_owned(),
        r#""unknown":{"x":[1.50,1E3,-0.0]},"\u0061":"\ud800""#.to_owned(),
        r#""model":{"a":1},"messages":[null,5,{"content":{}}]"#.to_owned(),
        r#""a":1,"a":2,"":3"#.to_owned(),
        format!(r#""deep":{deep}"#),
        format!(r#""messages":[{{"role":"user","content":"{huge}"}}]"#),
    ] {
        let body = format!("{{{members}}}");
        let before = upstream.heard().len();
        let url = format!("{}/chat/completions", trial.base_urls.openai);
        let answer = stage.http.post(url).body(body).send().await.unwrap();
        let shown = members.get(..60).unwrap_or(&members);
        assert_eq!(answer.status().as_u16(), 200, "{shown}");
        answer.text().await.unwrap();
        let heard = upstream.heard();
        assert_eq!(heard.len(), before + 1, "{shown}");
        assert!(heard[before].ends_with(format!("{members}}}").as_bytes()), "{shown}");
    }
    serves_on(&stage, &trial).await;
}

#[tokio::test]
async fn the_framing_of_a_request_does_not_matter() {
    let (stage, upstream, trial) = set().await;
    let body = request(json!({"stream": true})).to_string();
    let whole = format!("{}{body}", head(&trial, &format!("content-length: {}\r\n", body.len())));
    let bytes: Vec<&[u8]> = whole.as_bytes().chunks(1).collect();
    let (front, back) = body.split_at(9);
    let chunked = format!(
        "{}9;a=b\r\n{front}\r\n{:X}\r\n{back}\r\n0\r\nx-trailer: 1\r\n\r\n",
        head(&trial, "transfer-encoding: chunked\r\n"),
        back.len()
    );
    let absolute = whole.replacen("POST /", "POST http://x/", 1);
    let old = whole.replacen("HTTP/1.1", "HTTP/1.0", 1);
    for (name, pieces) in [
        ("byte by byte", bytes),
        ("chunks with extensions and a trailer", vec![chunked.as_bytes()]),
        ("an absolute target", vec![absolute.as_bytes()]),
        ("HTTP/1.0", vec![old.as_bytes()]),
    ] {
        let answer = exchange(&stage, &pieces).await;
        assert!(status(&answer) == "200" && answer.contains("data: [DONE]"), "{name}: {answer}");
    }
    assert!(upstream.heard().windows(2).all(|two| two[0] == two[1]));
    assert_eq!(stage.status(&trial).await.calls.complete, 4);
}

#[tokio::test]
async fn broken_framing_and_floods_are_refused() {
    let (stage, upstream, trial) = set().await;
    let flood = "x-y: z\r\n".repeat(5000);
    let long = format!("x: {}\r\n", "y".repeat(1 << 20));
    for (name, text, allowed) in [
        ("a flood of headers", head(&trial, &flood), "431"),
        ("an endless header", head(&trial, &long), "431"),
        ("a length that is none", head(&trial, "content-length: many\r\n"), "400"),
        ("two lengths", head(&trial, "content-length: 1\r\ncontent-length: 2\r\n"), "400"),
        ("a chunk of no size", head(&trial, "transfer-encoding: chunked\r\n") + "zz\r\n", "400"),
        ("another protocol", "\u{16}\u{3}\u{1}\u{2}\r\n\r\n".to_owned(), "400"),
        ("no key", "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}".to_owned(), "401"),
    ] {
        let answer = exchange(&stage, &[text.as_bytes()]).await;
        // If more bytes arrive than are read, the connection may be reset before the agent reads the answer.
        assert!(status(&answer) == allowed || answer.is_empty() && allowed == "431", "{name}: {answer}");
    }
    assert_eq!((upstream.heard().len(), stage.status(&trial).await.calls.complete), (0, 0));
    serves_on(&stage, &trial).await;
}

#[tokio::test]
async fn a_body_over_the_limit_is_a_413_that_names_it() {
    let (stage, upstream, _) = set().await;
    let trial = stage.open(json!({"limits": {"max_body_bytes": 1000}})).await;
    let body = request(json!({"padding": "x".repeat(1000)})).to_string();
    for lines in [format!("content-length: {}\r\n", body.len()), "transfer-encoding: chunked\r\n".to_owned()]
    {
        let framed = if lines.starts_with('t') {
            format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
        } else {
            body.clone()
        };
        let answer = exchange(&stage, &[head(&trial, &lines).as_bytes(), framed.as_bytes()]).await;
        assert!(status(&answer) == "413" && answer.contains("1000"), "{lines}: {answer}");
    }
    assert_eq!(upstream.heard().len(), 0);
    serves_on(&stage, &trial).await;
}

#[tokio::test]
async fn agents_that_never_finish_their_request_delay_no_others() {
    let (stage, upstream, trial) = set().await;
    let mut stalled = Vec::new();
    for text in [head(&trial, "content-length: 99\r\n") + "{", "POST /t/".to_owned(), String::new()] {
        for _ in 0..20 {
            let mut agent = TcpStream::connect(stage.proxy.agent_addrs()[0]).await.unwrap();
            agent.write_all(text.as_bytes()).await.unwrap();
            stalled.push(agent);
        }
    }
    serves_on(&stage, &trial).await;
    drop(stalled);
    eventually("nothing is under way", async || stage.status(&trial).await.calls.in_flight == 0).await;
    assert_eq!(upstream.heard().len(), 1);
    serves_on(&stage, &trial).await;
}

#[tokio::test]
async fn a_compressed_body_is_refused_by_the_name_of_its_encoding() {
    let (stage, upstream, trial) = set().await;
    for encoding in ["gzip", "zstd"] {
        let url = format!("{}/chat/completions", trial.base_urls.openai);
        let sent = stage.http.post(url).header("content-encoding", encoding).body("\u{1}compressed");
        let (status, body) = answer(sent).await;
        assert_eq!(status, 415);
        assert!(body["error"]["message"].as_str().unwrap().contains(encoding), "{body}");
    }
    assert_eq!(upstream.heard().len(), 0);
}

#[tokio::test]
async fn a_request_is_named_by_its_id_upstream_and_in_every_answer() {
    let (stage, upstream, trial) = set().await;
    let url = format!("{}/chat/completions/", trial.base_urls.openai);
    let asked = |body: Value| stage.http.post(&url).header("x-request-id", "mine").json(&body).send();
    let response = asked(request(json!({"stream": true}))).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["x-request-id"]),
        (200, &"mine".parse().unwrap())
    );
    assert!(upstream.heads()[0].contains("x-request-id: mine"));
    let refused = asked(json!({"priority": 1})).await.unwrap();
    assert_eq!(
        (refused.status().as_u16(), &refused.headers()["x-request-id"]),
        (400, &"mine".parse().unwrap())
    );

    let unnamed = stage.http.get(&url).send().await.unwrap();
    assert_eq!((unnamed.status().as_u16(), &unnamed.headers()["allow"]), (405, &"POST".parse().unwrap()));
    assert_eq!(unnamed.headers()["x-request-id"].len(), 32);
}
