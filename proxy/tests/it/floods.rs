//! Agents that take more than their share: connections, concurrent calls, memory.

use std::num::NonZeroUsize;
use std::time::Duration;

use rolltap_proxy::Settings;
use rolltap_proxy::api::Limits;
use rolltap_sim as sim;
use rolltap_testing::{eventually, limit};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{Stage, request, settings, simulator};
use crate::raw_upstream::{RawUpstream, STREAM, Script, Then};

async fn staged(upstream: sim::RunningSim, url: &str, set: impl FnOnce(&mut Settings)) -> Stage {
    let data = tempfile::tempdir().unwrap();
    let mut settings = settings(url, &data);
    set(&mut settings);
    let proxy = rolltap_proxy::start(settings).await.unwrap();
    Stage { upstream, proxy, data, http: rolltap_testing::http_client() }
}

#[tokio::test]
async fn connections_over_the_bound_wait_until_others_end() {
    let upstream = simulator(None).await;
    let url = format!("http://{}", upstream.addr());
    let stage =
        staged(upstream, &url, |settings| settings.max_connections = NonZeroUsize::new(2).unwrap()).await;
    let agents = stage.proxy.agent_addrs()[0];
    let get = format!("GET /t/{}/v1/models HTTP/1.1\r\nhost: x\r\n\r\n", stage.open(json!({})).await.key);
    let ask = async |connection: &mut TcpStream| {
        connection.write_all(get.as_bytes()).await.unwrap();
        connection.read_u8().await.unwrap()
    };
    let mut held = [TcpStream::connect(agents).await.unwrap(), TcpStream::connect(agents).await.unwrap()];
    for connection in &mut held {
        assert_eq!(ask(connection).await, b'H');
    }
    let mut waiting = TcpStream::connect(agents).await.unwrap();
    let mut answered = std::pin::pin!(ask(&mut waiting));
    let early = tokio::time::timeout(Duration::from_millis(200), &mut answered).await;
    assert!(early.is_err(), "the third is not answered while two are held");
    drop(held);
    assert_eq!(answered.await, b'H');
}

#[tokio::test]
async fn a_refusal_arrives_however_large_the_unread_body_is() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({"limits": {"max_body_bytes": 1000}})).await;
    let body = request(json!({"user": "x".repeat(4 << 20)})).to_string();
    let known = trial.base_urls.openai.as_str();
    let unknown = known.replace(trial.key.as_str(), "sk-unknown");
    let asked = [
        (unknown.as_str(), "/chat/completions", 401),
        (known, "/nothing", 404),
        (known, "/chat/completions", 413),
    ];
    for (base, path, status) in asked {
        for _ in 0..10 {
            // Each request has its own connection, whose first bytes are the request's.
            let http = rolltap_testing::http_client();
            let asked = http.post(format!("{base}{path}")).header("content-type", "application/json");
            let answer = asked.body(body.clone()).send().await.unwrap();
            assert_eq!(answer.status().as_u16(), status, "{path}");
        }
    }
}

#[tokio::test]
async fn a_trial_without_limits_has_the_proxys() {
    let hanging = Script { pieces: vec![STREAM.as_bytes().to_vec()], then: Then::Hang };
    let raw = RawUpstream::start(vec![hanging.clone(), hanging]).await;
    let limits = Limits { max_calls_in_flight: Some(1), max_calls: Some(2), ..Settings::DEFAULT_LIMITS };
    let stage = staged(simulator(None).await, &raw.url, |settings| settings.limits = limits).await;
    let (plain, own) =
        (stage.open(json!({})).await, stage.open(json!({"limits": {"max_calls_in_flight": 5}})).await);
    let body = request(json!({"stream": true}));
    let _first = stage.chat(&plain, &body).await;
    assert_eq!(stage.chat(&plain, &body).await.status().as_u16(), 429);
    let _another = stage.chat(&own, &body).await;
    let second = stage.chat(&own, &body).await;
    assert_eq!(second.status().as_u16(), 200);
    second.text().await.unwrap();
    assert_eq!(stage.chat(&own, &body).await.status().as_u16(), 429, "max_calls is the proxy's");
}

#[test]
fn without_a_setting_calls_at_once_have_a_bound() {
    let calls = Settings::DEFAULT_LIMITS.max_calls_in_flight.unwrap();
    assert!((64..=1024).contains(&calls), "for agents that work in parallel, and below the store's places");
}

#[tokio::test]
async fn bodies_that_one_trial_piles_up_are_refused_and_other_trials_are_served() {
    let stage = Stage::random().await;
    let (greedy, modest) = (stage.open(json!({})).await, stage.open(json!({})).await);
    // Each agent sends 255 of 256 MiB and never ends its body.
    let piece = vec![b' '; 255 << 20];
    let mut piled = Vec::new();
    for _ in 0..4 {
        let mut agent = TcpStream::connect(stage.proxy.agent_addrs()[0]).await.unwrap();
        let head = format!(
            "POST /t/{}/v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n",
            greedy.key,
            256 << 20
        );
        agent.write_all(head.as_bytes()).await.unwrap();
        agent.write_all(&piece).await.unwrap();
        piled.push(agent);
    }
    let body = request(json!({"padding": "x".repeat(8 << 20)}));
    eventually("the trial's share is taken", async || {
        stage.chat(&greedy, &body).await.status().as_u16() == 429
    })
    .await;
    assert_eq!(stage.chat(&modest, &body).await.status().as_u16(), 200);
    drop(piled);
    eventually("its room is given back", async || stage.chat(&greedy, &body).await.status().as_u16() == 200)
        .await;
}

#[tokio::test]
async fn silent_connections_block_no_other_trial() {
    let upstream = simulator(None).await;
    let url = format!("http://{}", upstream.addr());
    let few = NonZeroUsize::new(8).unwrap();
    let stage = staged(upstream, &url, |settings| settings.max_connections = few).await;
    let trial = stage.open(json!({})).await;
    let mut silent = Vec::new();
    for _ in 0..12 {
        silent.push(TcpStream::connect(stage.proxy.agent_addrs()[0]).await.unwrap());
    }
    let answer = tokio::time::timeout(limit(10), stage.chat(&trial, &request(json!({})))).await;
    assert_eq!(answer.unwrap().status().as_u16(), 200);
    assert!(metric(&stage, "rolltap_connections_refused_total{cause=\"silent\"}").await > 0);
}

#[tokio::test]
async fn connections_whose_requests_have_no_key_block_no_other_trial() {
    let upstream = simulator(None).await;
    let url = format!("http://{}", upstream.addr());
    let few = NonZeroUsize::new(4).unwrap();
    let stage = staged(upstream, &url, |settings| settings.max_connections = few).await;
    let trial = stage.open(json!({})).await;
    let mut strangers = Vec::new();
    for _ in 0..4 {
        let mut stranger = TcpStream::connect(stage.proxy.agent_addrs()[0]).await.unwrap();
        stranger.write_all(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        assert_eq!(stranger.read_u8().await.unwrap(), b'H');
        strangers.push(stranger);
    }
    let answer = tokio::time::timeout(limit(10), stage.chat(&trial, &request(json!({})))).await;
    assert_eq!(answer.unwrap().status().as_u16(), 200);
    assert_eq!(metric(&stage, "rolltap_calls_refused_total{code=\"invalid_api_key\"}").await, 4);
}

/// Returns the value of a metric, or 0 if it is absent.
async fn metric(stage: &Stage, name: &str) -> u64 {
    let text = stage.http.get(stage.admin("/metrics")).send().await.unwrap().text().await.unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.map_or(0, |value| value.trim().parse().unwrap())
}

#[tokio::test]
async fn an_address_has_its_share_of_connections_and_a_refusal_says_why() {
    let upstream = simulator(None).await;
    let url = format!("http://{}", upstream.addr());
    let set = |settings: &mut Settings| settings.max_connections_per_address = NonZeroUsize::new(2);
    let stage = staged(upstream, &url, set).await;
    let agents = stage.proxy.agent_addrs()[0];
    let get = format!("GET /t/{}/v1/models HTTP/1.1\r\nhost: x\r\n\r\n", stage.open(json!({})).await.key);
    let mut held = [TcpStream::connect(agents).await.unwrap(), TcpStream::connect(agents).await.unwrap()];
    for connection in &mut held {
        connection.write_all(get.as_bytes()).await.unwrap();
        assert_eq!(connection.read_u8().await.unwrap(), b'H');
    }
    let mut third = TcpStream::connect(agents).await.unwrap();
    let body = "x".repeat(1 << 20);
    let post =
        format!("POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    third.write_all(post.as_bytes()).await.unwrap();
    let mut refusal = String::new();
    // The connection ends after the answer.
    third.read_to_string(&mut refusal).await.unwrap();
    assert!(refusal.starts_with("HTTP/1.1 429 ") && refusal.contains("retry-after: 1\r\n"), "{refusal}");
    assert!(refusal.contains(r#""type":"rate_limit_error""#), "an error of Anthropic: {refusal}");
    assert!(refusal.contains("your address has 2 connections"), "{refusal}");
    // Another source has a share of its own.
    let other = tokio::net::TcpSocket::new_v4().unwrap();
    other.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = other.connect(agents).await.unwrap();
    other.write_all(get.as_bytes()).await.unwrap();
    assert_eq!(other.read_u8().await.unwrap(), b'H');
    assert_eq!(metric(&stage, "rolltap_connections_refused_total{cause=\"address\"}").await, 1);
    drop(held);
    eventually("a place is free again", async || {
        let mut again = TcpStream::connect(agents).await.unwrap();
        again.write_all(get.as_bytes()).await.unwrap();
        let mut status = [0; 12];
        again.read_exact(&mut status).await.is_ok() && status.ends_with(b"200")
    })
    .await;
}
