//! Readers that send requests and do not read: they are disconnected, and other clients are not affected.

use std::time::Duration;

use rolltap_testing::eventually;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

use crate::harness::{Stage, request, settings, simulator};

#[tokio::test]
async fn a_reader_that_takes_nothing_is_cut_off_and_agents_do_not_notice() {
    let upstream = simulator(None).await;
    let data = TempDir::new().unwrap();
    let mut settings = settings(&format!("http://{}", upstream.addr()), &data);
    settings.reader_patience = Duration::from_millis(300);
    let proxy = rolltap_proxy::start(settings).await.unwrap();
    let stage = Stage { upstream, proxy, data, http: rolltap_testing::http_client() };
    // Each of the many answers is a row with the whole prompt, and together they exceed the socket buffers.
    let prompt = json!([{"role": "user", "content": "word ".repeat(10_000)}]);
    let body = request(json!({"messages": prompt, "n": 20, "max_tokens": 1}));
    for _ in 0..2 {
        let trial = stage.open(json!({})).await;
        assert_eq!(stage.chat(&trial, &body).await.status().as_u16(), 200);
        stage.seal(&trial).await;
        assert_eq!(stage.reward(&trial, json!({"reward": 1.0})).await.0, 200);
    }

    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut deaf = socket.connect(stage.proxy.admin_addr()).await.unwrap();
    deaf.write_all(b"GET /v1/rollouts HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let metrics = stage.admin("/metrics");
    let trial = stage.open(json!({})).await;
    eventually("it is cut off", async || {
        let small = request(json!({"max_tokens": 2}));
        assert_eq!(stage.chat(&trial, &small).await.status().as_u16(), 200, "meanwhile agents are served");
        let text = stage.http.get(&metrics).send().await.unwrap().text().await.unwrap();
        text.contains("rolltap_readers_cut_off_total 1")
    })
    .await;
    let mut taken = Vec::new();
    let end = deaf.read_to_end(&mut taken).await;
    assert!(end.is_err() || !taken.ends_with(b"0\r\n\r\n"), "it can detect that the answer is incomplete");
    let again = stage.http.get(stage.admin("/v1/rollouts")).send().await.unwrap().text().await.unwrap();
    assert_eq!(again.lines().count(), 2, "it may ask again");
}
