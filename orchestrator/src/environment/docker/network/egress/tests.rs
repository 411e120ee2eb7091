//! The egress proxy on loopback addresses. This machine has many of them, and each plays a container.

use std::net::{IpAddr, Ipv4Addr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

use super::*;

const GATEWAY: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// The addresses of two containers.
const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 1, 1));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 1, 2));

fn hosts(entries: &[&str]) -> AllowedHosts {
    AllowedHosts::parse(entries.iter().copied()).unwrap()
}

async fn start() -> Egress {
    Egress::start(GATEWAY, |_| false).await.unwrap()
}

async fn connect(egress: &Egress, from: IpAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    socket.connect(egress.address).await.unwrap()
}

/// Sends a request to the egress proxy and reads until the end of the answer.
async fn answer(egress: &Egress, from: IpAddr, request: &str) -> String {
    let mut stream = connect(egress, from).await;
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

fn get(url: &str, more: &str) -> String {
    format!("GET {url} HTTP/1.1\r\nHost: elsewhere\r\n{more}Connection: close\r\n\r\n")
}

/// Starts a server that answers each connection once, with the request in capitals.
async fn server() -> u16 {
    let listener = TcpListener::bind((GATEWAY, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut asked = vec![0; 4096];
            let length = stream.read(&mut asked).await.unwrap();
            let asked = String::from_utf8_lossy(&asked[..length]).to_uppercase();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nKeep-Alive: 5\r\n\r\n", asked.len());
            stream.write_all(format!("{head}{asked}").as_bytes()).await.unwrap();
        }
    });
    port
}

#[tokio::test]
async fn a_plain_request_goes_to_the_allowed_host_of_its_url() {
    let (egress, port) = (start().await, server().await);
    egress.permit(ONE, hosts(&["localhost"]));
    let more = "Proxy-Authorization: secret\r\nProxy-Connection: x\r\nX-Kept: yes\r\n";
    let said = answer(&egress, ONE, &get(&format!("http://localhost:{port}/a?b=c"), more)).await;
    assert!(said.starts_with("HTTP/1.1 200 OK\r\n"), "{said}");
    for expected in ["GET /A?B=C HTTP/1.1", &format!("HOST: LOCALHOST:{port}"), "X-KEPT: YES"] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    for gone in ["SECRET", "PROXY-CONNECTION", "Keep-Alive"] {
        assert!(!said.contains(gone), "{gone}: {said}");
    }
}

#[tokio::test]
async fn a_tunnel_carries_anything_to_an_allowed_address_until_it_is_revoked() {
    let egress = start().await;
    let listener = TcpListener::bind((GATEWAY, 0)).await.unwrap();
    egress.permit(ONE, hosts(&["127.0.0.0/24"]));
    let mut stream = connect(&egress, ONE).await;
    let authority = listener.local_addr().unwrap();
    stream.write_all(format!("CONNECT {authority} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
    let (mut served, _) = listener.accept().await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 200 OK"), "{}", String::from_utf8_lossy(&head));
    stream.write_all(b"\0ping").await.unwrap();
    let mut ping = [0; 5];
    served.read_exact(&mut ping).await.unwrap();
    served.write_all(b"pong").await.unwrap();
    let mut pong = [0; 4];
    stream.read_exact(&mut pong).await.unwrap();
    assert_eq!((&ping, &pong), (b"\0ping", b"pong"));

    egress.revoke(ONE);
    assert!(matches!(stream.read(&mut pong).await, Ok(0) | Err(_)));
    let refused = answer(&egress, ONE, &get("http://localhost/", "")).await;
    assert!(refused.ends_with("this container may reach no host\n"), "{refused}");
}

#[tokio::test]
async fn what_is_not_allowed_is_refused_with_the_reason() {
    let (egress, port) = (start().await, server().await);
    egress.permit(ONE, hosts(&["localhost", "*.example.com", "192.0.2.0/24"]));
    egress.permit(OTHER, hosts(&["example.org"]));
    let url = format!("http://localhost:{port}/");
    for (from, request, status, why) in [
        (
            ONE,
            get(&format!("http://127.0.0.1:{port}/"), ""),
            403,
            "127.0.0.1 is not among the task's allowed_hosts",
        ),
        (OTHER, get(&url, ""), 403, "localhost is not among the task's allowed_hosts"),
        (GATEWAY, get(&url, ""), 403, "this container may reach no host"),
        (ONE, get("/v1/models", ""), 400, "this is an HTTP proxy"),
        (ONE, get("ftp://localhost/", ""), 400, "this is an HTTP proxy"),
        (
            ONE,
            "CONNECT example.com:443 HTTP/1.1\r\nConnection: close\r\n\r\n".to_owned(),
            502,
            "cannot be reached",
        ),
    ] {
        let said = answer(&egress, from, &request).await;
        // The existence of a forbidden name is not looked up, so the last request may be rejected for either reason.
        let refused = said.contains("example.com is not among the task's allowed_hosts");
        assert!(refused || said.starts_with(&format!("HTTP/1.1 {status} ")) && said.contains(why), "{said}");
    }
    assert!(answer(&egress, ONE, &get(&url, "")).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn this_host_is_never_behind_the_proxy() {
    let egress = Egress::start(GATEWAY, is_of_this_host).await.unwrap();
    egress.permit(ONE, hosts(&["localhost", "127.0.0.0/8", "::1"]));
    let port = server().await;
    for host in ["localhost", "127.0.0.1", "127.9.9.9", "[::1]", "[::ffff:127.0.0.1]"] {
        let said = answer(&egress, ONE, &get(&format!("http://{host}:{port}/"), "")).await;
        assert!(said.starts_with("HTTP/1.1 403 "), "{host}: {said}");
    }
    assert!(is_of_this_host("169.254.169.254".parse().unwrap()));
    assert!(!is_of_this_host("192.0.2.1".parse().unwrap()));
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(rolltap_testing::sample(64, 640)))]
    #[test]
    fn no_request_makes_it_fall(request in "(GET|CONNECT|POST|X) [ -~]{0,40} HTTP/1.1\r\n([a-zA-Z-]{1,12}: [ -~]{0,20}\r\n){0,4}\r\n") {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let egress = start().await;
            egress.permit(ONE, hosts(&["nothing.invalid"]));
            let mut stream = connect(&egress, ONE).await;
            stream.write_all(request.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
            let mut said = Vec::new();
            let _ = stream.read_to_end(&mut said).await;
            assert!(!said.starts_with(b"HTTP/1.1 200"));
            assert!(answer(&egress, OTHER, &get("http://x/", "")).await.contains("403"));
        });
    }
}
