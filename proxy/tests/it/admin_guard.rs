//! Web pages on the machine of a proxy whose admin plane has no token.

use rolltap_proxy::Settings;
use rolltap_proxy::api::TrialState;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::bad_request::status;
use crate::harness::{Stage, settings, simulator};

/// Sends a request with these header lines to the admin plane, and returns the answer.
async fn ask(stage: &Stage, request: &str, lines: &str) -> String {
    let mut client = TcpStream::connect(stage.proxy.admin_addr()).await.unwrap();
    let text = format!("{request} HTTP/1.1\r\n{lines}connection: close\r\n\r\n");
    client.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_name_that_was_rebound_to_loopback_is_no_name_of_the_admin_plane() {
    let stage = Stage::random().await;
    let port = stage.proxy.admin_addr().port();
    for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1", "[::2]", ""]
    {
        let answer = ask(&stage, "GET /v1/trials", &format!("host: {host}:{port}\r\n")).await;
        assert!(matches!(status(&answer), "400" | "403"), "{host}: {answer}");
    }
    let absolute = ask(&stage, "GET http://evil.example/v1/trials", "host: 127.0.0.1\r\n").await;
    assert_eq!(status(&absolute), "403");
    for host in ["127.0.0.1", "localhost", "LOCALHOST", "[::1]", "127.1.2.3"] {
        let answer = ask(&stage, "GET /v1/trials", &format!("host: {host}:{port}\r\n")).await;
        assert_eq!(status(&answer), "200", "{host}: {answer}");
    }
}

#[tokio::test]
async fn a_web_page_can_neither_seal_nor_pause_nor_open() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({})).await;
    let page = "host: localhost\r\norigin: http://evil.example\r\ncontent-length: 0\r\n";
    for request in [format!("POST /v1/trials/{}/seal", trial.trial_id), "POST /v1/policy/pause".to_owned()] {
        assert_eq!(status(&ask(&stage, &request, page).await), "403", "{request}");
    }
    // Older browsers send no origin with simple requests, but no browser lets a page send such a request with a JSON
    // content type.
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
        let lines = format!("host: localhost\r\ncontent-type: {kind}\r\ncontent-length: 0\r\n");
        let answer = ask(&stage, "POST /v1/trials", &lines).await;
        assert_eq!(status(&answer), "415", "{kind}: {answer}");
    }
    assert_eq!(stage.status(&trial).await.state, TrialState::Open);
}

#[tokio::test]
async fn a_client_with_the_token_may_call_by_any_name() {
    let upstream = simulator(None).await;
    let data = tempfile::tempdir().unwrap();
    let token = "0123456789abcdef";
    let settings = Settings {
        admin_token: Some(token.to_owned()),
        ..settings(&format!("http://{}", upstream.addr()), &data)
    };
    let proxy = rolltap_proxy::start(settings).await.unwrap();
    let stage = Stage { upstream, proxy, data, http: rolltap_testing::http_client() };
    let named = |token: &str| format!("host: proxy.example\r\nauthorization: Bearer {token}\r\n");
    assert_eq!(status(&ask(&stage, "GET /v1/trials", &named(token)).await), "200");
    for guess in ["", "0123456789abcde", "0123456789abcdef0", "0123456789ABCDEF"] {
        assert_eq!(status(&ask(&stage, "GET /v1/trials", &named(guess)).await), "401", "{guess}");
    }
}
