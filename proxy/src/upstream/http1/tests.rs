//! Tests connections with a server on a real socket.

mod http_proxy;
mod tls;

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::Method;
use http_body::{Body, Frame};
use http_body_util::{Empty, Full, StreamBody};
use proptest::prelude::*;
use rolltap_testing::{eventually, limit};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::connections::Readiness;
use super::*;
use crate::upstream::send_error::SendFailure;

const STREAM: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
const LIMITS: ReadLimits = ReadLimits { bytes: 1 << 20, silence: Duration::from_secs(60) };

async fn server() -> (TcpListener, Arc<Connections>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, Connections::to(address.parse().unwrap(), None, None))
}

fn request(body: impl Into<Bytes>) -> Request {
    RequestHead::new(&Method::POST, "h:1", "", "/x").unwrap().with_body(body.into())
}

/// Reads a request with an empty body.
async fn read_request(stream: &mut (impl AsyncRead + Unpin)) {
    let mut received = Vec::new();
    while !received.ends_with(b"\r\n\r\n") {
        assert!(stream.read_buf(&mut received).await.unwrap() > 0, "a request");
    }
}

/// Accepts a connection, reads a request with an empty body, and writes `answer`.
async fn serve(listener: &TcpListener, answer: &str) -> TcpStream {
    let (mut stream, _) = listener.accept().await.unwrap();
    read_request(&mut stream).await;
    stream.write_all(answer.as_bytes()).await.unwrap();
    stream
}

/// Returns the server's side of a connection whose stream was read to its last event, before the end of its framing.
async fn read_to_last_event(listener: &TcpListener, connections: &Arc<Connections>) -> TcpStream {
    let answer = format!("{STREAM}3\r\nend\r\n");
    let serving = serve(listener, &answer);
    let request = request("");
    let (answer, stream) = tokio::join!(connections.request(&request), serving);
    let mut body = answer.unwrap().into_body();
    assert_eq!(next(&mut body).await.unwrap().unwrap(), "end");
    body.needs_no_more();
    stream
}

async fn next(body: &mut AnswerBody) -> Option<Result<Bytes, AnswerError>> {
    tokio::time::timeout(limit(10), poll_fn(|cx| body.poll_data(cx))).await.unwrap()
}

#[tokio::test]
async fn a_stream_that_was_read_to_its_last_event_leaves_its_connection_for_another_request() {
    let (listener, connections) = server().await;
    let mut stream = read_to_last_event(&listener, &connections).await;
    assert_eq!(connections.idle_states(), [Readiness::Unfinished]);
    // The end of the framing arrives after the body was dropped.
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    eventually("the answer ends", async || connections.idle_states() == [Readiness::Ready]).await;
    let again = async {
        read_request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
    };
    let request = request("");
    let (answer, ()) = tokio::join!(connections.request(&request), again);
    assert_eq!(answer.unwrap().into_body().whole(LIMITS).await.unwrap(), "ok");
    assert_eq!(connections.idle_states(), [Readiness::Ready]);
}

#[tokio::test]
async fn a_connection_with_bytes_that_no_request_asked_for_is_not_used_again() {
    for more in ["1\r\nx\r\n", "0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "garbage"] {
        let (listener, connections) = server().await;
        let mut stream = read_to_last_event(&listener, &connections).await;
        stream.write_all(more.as_bytes()).await.unwrap();
        eventually("the connection closes", async || connections.idle_states().is_empty()).await;
        let again = serve(&listener, "HTTP/1.1 204 No Content\r\n\r\n");
        let request = request("");
        let (answer, _stream) = tokio::join!(connections.request(&request), again);
        assert_eq!(answer.unwrap().into_body().whole(LIMITS).await.unwrap(), "", "{more}");
    }
}

#[tokio::test]
async fn an_answer_that_is_dropped_in_its_middle_closes_its_connection() {
    let (listener, connections) = server().await;
    let request = request("");
    let answer = format!("{STREAM}3\r\nend\r\n");
    let serving = serve(&listener, &answer);
    let (answer, mut stream) = tokio::join!(connections.request(&request), serving);
    drop(answer);
    let end = tokio::time::timeout(limit(10), stream.read(&mut [0; 9])).await.unwrap();
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    assert!(connections.idle_states().is_empty());
}

/// A server that rejects a large request does not read the rest of it.
#[tokio::test]
async fn an_answer_to_the_first_half_of_a_request_arrives() {
    let (listener, connections) = server().await;
    let request = request(vec![b'x'; 32 << 20]);
    let serving = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        assert!(stream.read(&mut [0; 1000]).await.unwrap() > 0);
        stream.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig").await.unwrap();
        stream
    };
    let (answer, _stream) = tokio::join!(connections.request(&request), serving);
    let answer = answer.unwrap();
    assert_eq!(answer.status(), 413);
    assert_eq!(answer.into_body().whole(LIMITS).await.unwrap(), "big");
    assert!(connections.idle_states().is_empty(), "the rest of the request was not sent");
}

#[tokio::test]
async fn a_connection_that_the_server_closed_is_not_used_again() {
    let (listener, connections) = server().await;
    let request = request("");
    for _ in 0..2 {
        let serving = serve(&listener, "HTTP/1.1 204 No Content\r\n\r\n");
        let (answer, stream) = tokio::join!(connections.request(&request), serving);
        assert_eq!(answer.unwrap().into_body().whole(LIMITS).await.unwrap(), "");
        drop(stream);
        eventually("the connection closes", async || connections.idle_states().is_empty()).await;
    }
}

#[tokio::test]
async fn an_answer_that_is_too_long_or_cut_is_an_error() {
    let answers = [
        ("content-length: 2000000\r\n\r\n", "longer"),
        ("content-length: 9\r\n\r\nhalf", "closed"),
        ("transfer-encoding: chunked\r\n\r\n9\r\nhalf", "closed"),
        ("transfer-encoding: chunked\r\n\r\nzz\r\n", "chunk"),
    ];
    for (rest, said) in answers {
        let (listener, connections) = server().await;
        let answer = format!("HTTP/1.1 200 OK\r\n{rest}");
        let serving = async { drop(serve(&listener, &answer).await) };
        let request = request("");
        let (answer, ()) = tokio::join!(connections.request(&request), serving);
        let error = answer.unwrap().into_body().whole(LIMITS).await.unwrap_err().to_string();
        assert!(error.contains(said), "{rest}: {error}");
        assert!(connections.idle_states().is_empty());
    }
}

#[tokio::test]
async fn no_server_and_a_server_that_closes_are_different_failures() {
    let (listener, connections) = server().await;
    let request = request("");
    let (answer, _) = tokio::join!(connections.request(&request), async { drop(listener.accept().await) });
    assert!(matches!(answer, Err(SendFailure::Closed(_))));
    drop(listener);
    assert!(matches!(connections.request(&request).await, Err(SendFailure::Connect(_))));
}

/// Reads a whole request with a chunked body.
async fn read_chunks(stream: &mut TcpStream) -> String {
    let mut received = Vec::new();
    while !received.ends_with(b"\r\n0\r\n\r\n") {
        assert!(stream.read_buf(&mut received).await.unwrap() > 0, "a request");
    }
    String::from_utf8(received).unwrap()
}

fn head(method: Method) -> RequestHead {
    RequestHead::new(&method, "h:1", "", "/x").unwrap()
}

#[tokio::test]
async fn a_body_is_sent_as_it_arrives() {
    let (listener, connections) = server().await;
    let (pieces, mut body) = mpsc::channel::<Result<Frame<Bytes>, &str>>(1);
    let mut body = StreamBody::new(stream::poll_fn(move |cx| body.poll_recv(cx)));
    let serving = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        pieces.send(Ok(Frame::data("one ".into()))).await.unwrap();
        let mut received = vec![0; 300];
        let mut length = 0;
        while !received[..length].ends_with(b"4\r\none \r\n") {
            length += stream.read(&mut received[length..]).await.unwrap();
        }
        // The first piece has arrived while the second one does not exist yet.
        pieces.send(Ok(Frame::data("two".into()))).await.unwrap();
        drop(pieces);
        assert_eq!(read_chunks(&mut stream).await, "3\r\ntwo\r\n0\r\n\r\n");
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
        stream
    };
    let (answer, _stream) = tokio::join!(connections.stream(head(Method::POST), &mut body), serving);
    assert_eq!(answer.unwrap().into_body().whole(LIMITS).await.unwrap(), "ok");
    assert_eq!(connections.idle_states(), [Readiness::Ready]);
}

#[tokio::test]
async fn a_body_that_breaks_off_ends_its_request() {
    let (listener, connections) = server().await;
    let frames = [Ok(Frame::data(Bytes::from("half"))), Err("the agent is gone")];
    let mut body = StreamBody::new(stream::iter(frames));
    let serving = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).await.unwrap();
        String::from_utf8(received).unwrap()
    };
    let sending = async {
        let failed = connections.stream(head(Method::POST), &mut body).await.unwrap_err();
        assert!(failed.to_string().contains("broke off: the agent is gone"), "{failed}");
    };
    let ((), received) = tokio::join!(sending, serving);
    assert!(received.ends_with("4\r\nhalf\r\n"), "the server sees that the body has no end: {received}");
    assert!(connections.idle_states().is_empty());
}

#[tokio::test]
async fn a_body_is_not_read_before_there_is_a_connection() {
    let (listener, connections) = server().await;
    drop(listener);
    let mut body = Full::new(Bytes::from("body"));
    let failed = connections.stream(head(Method::POST), &mut body).await;
    assert!(matches!(failed, Err(SendFailure::Connect(_))));
    assert!(!body.is_end_stream());
}

#[tokio::test]
async fn an_answer_to_head_has_no_body() {
    let (listener, connections) = server().await;
    let serving = serve(&listener, "HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n");
    let mut body = Empty::<Bytes>::new();
    let (answer, _stream) = tokio::join!(connections.stream(head(Method::HEAD), &mut body), serving);
    assert_eq!(answer.unwrap().into_body().whole(LIMITS).await.unwrap(), "");
    assert_eq!(connections.idle_states(), [Readiness::Ready]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(rolltap_testing::sample(24, 500)))]

    /// The server writes its answer in pieces, which arrive as one or several reads.
    #[test]
    fn a_body_is_what_the_server_sent(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..3000), 0..5),
        is_chunked in any::<bool>(),
        piece in 1..5000_usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let body = chunks.concat();
        let mut answer = if is_chunked {
            STREAM.as_bytes().to_vec()
        } else {
            format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes()
        };
        for chunk in &chunks {
            let (size, end) = if is_chunked { (format!("{:x}\r\n", chunk.len()), "\r\n") } else { (String::new(), "") };
            answer.extend([size.as_bytes(), chunk, end.as_bytes()].concat());
        }
        if is_chunked {
            answer.extend(b"0\r\n\r\n");
        }
        let read = runtime.block_on(async {
            let (listener, connections) = server().await;
            let serving = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                read_request(&mut stream).await;
                for piece in answer.chunks(piece) {
                    stream.write_all(piece).await.unwrap();
                    tokio::task::yield_now().await;
                }
                stream
            };
            let request = request("");
            let reading = async { connections.request(&request).await.unwrap().into_body().whole(LIMITS).await };
            let (read, _stream) = tokio::join!(reading, serving);
            assert_eq!(connections.idle_states(), [Readiness::Ready]);
            read.unwrap()
        });
        prop_assert_eq!(read, body);
    }
}
