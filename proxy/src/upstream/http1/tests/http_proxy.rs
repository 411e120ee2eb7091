//! Tests connections through an HTTP proxy.

use http::uri::Authority;
use tokio::io::copy_bidirectional;

use super::*;
use crate::upstream::HttpProxy;

/// Reads the request for a tunnel, answers it, and passes bytes on if the answer is 200. Returns the request.
async fn tunnel(proxy: &TcpListener, server: Option<&TcpListener>, answer: &str) -> String {
    let (mut stream, _) = proxy.accept().await.unwrap();
    let mut asked = Vec::new();
    while !asked.ends_with(b"\r\n\r\n") {
        assert!(stream.read_buf(&mut asked).await.unwrap() > 0, "a request");
    }
    stream.write_all(answer.as_bytes()).await.unwrap();
    if let Some(server) = server {
        let mut onward = TcpStream::connect(server.local_addr().unwrap()).await.unwrap();
        tokio::spawn(async move { copy_bidirectional(&mut stream, &mut onward).await });
    }
    String::from_utf8(asked).unwrap()
}

fn through(proxy: &TcpListener, user: &str) -> HttpProxy {
    format!("http://{user}{}", proxy.local_addr().unwrap()).parse().unwrap()
}

#[tokio::test]
async fn requests_share_one_tunnel_to_the_server() {
    let (proxy, server) =
        (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    // The HTTP proxy alone knows where this server is.
    let name = Authority::from_static("server.example");
    let connections = Connections::to(name, None, Some(through(&proxy, "user:secret@")));
    let request = request("");
    let tunnelling = tunnel(&proxy, Some(&server), "HTTP/1.1 200 Connection established\r\n\r\n");
    let serving = serve(&server, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let (answer, asked, mut stream) = tokio::join!(connections.request(&request), tunnelling, serving);
    assert_eq!(answer.unwrap().into_body().whole(LIMITS).await.unwrap(), "ok");
    assert!(asked.starts_with("CONNECT server.example:80 HTTP/1.1\r\n"), "{asked}");
    assert!(asked.contains("Proxy-Authorization: Basic dXNlcjpzZWNyZXQ=\r\n"), "{asked}");
    let again = async {
        read_request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
    };
    let (answer, ()) = tokio::join!(connections.request(&request), again);
    assert_eq!(answer.unwrap().into_body().whole(LIMITS).await.unwrap(), "ok");
    assert_eq!(connections.opened(), 1);
}

#[tokio::test]
async fn a_refused_tunnel_is_named_with_the_proxy_and_the_reason() {
    for (answer, part) in [
        ("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "a user name and a password"),
        ("HTTP/1.1 403 Forbidden\r\n\r\n", "may forbid CONNECT"),
        ("SSH-2.0-OpenSSH_9.2\r\n\r\n", "may forbid CONNECT"),
    ] {
        let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let used = through(&proxy, "");
        let connections = Connections::to(Authority::from_static("server.example"), None, Some(used.clone()));
        let request = request("");
        let (answer, _) = tokio::join!(connections.request(&request), tunnel(&proxy, None, answer));
        let failure = answer.unwrap_err();
        let error = failure.to_string();
        assert!(
            failure.is_conclusive() && error.contains(part) && error.contains(&used.to_string()),
            "{error}"
        );
    }
}
