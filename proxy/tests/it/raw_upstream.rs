//! An upstream that sends exactly the bytes of its script, whether or not they are valid HTTP or a valid answer of
//! vLLM.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The answer to one call, piece by piece.
#[derive(Clone)]
pub(crate) struct Script {
    pub(crate) pieces: Vec<Vec<u8>>,
    pub(crate) then: Then,
}

/// The action after the last piece.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Then {
    Close,
    /// Waits until the proxy closes.
    Hang,
    /// Reads the next request on the connection.
    Listen,
}

/// Its address, and the requests that it got.
pub(crate) struct RawUpstream {
    pub(crate) url: String,
    heard: Arc<Mutex<Vec<Heard>>>,
}

/// A call as received: its head, in lower case except for the method, and its body.
#[derive(Clone)]
struct Heard {
    head: String,
    body: Vec<u8>,
}

pub(crate) const STREAM: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
pub(crate) const FIRST: &str = concat!(
    r#"data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"#,
    r#""delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"#,
    "\"prompt_token_ids\":[1,2]}\n\n"
);
pub(crate) const TOKEN: &str = concat!(
    r#"data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"#,
    r#""delta":{"content":"x"},"logprobs":{"content":[{"token":"x","logprob":-0.5,"bytes":[120],"#,
    "\"top_logprobs\":[]}]},\"finish_reason\":null,\"token_ids\":[7]}]}\n\n"
);
pub(crate) const LAST: &str = concat!(
    r#"data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"#,
    r#""delta":{"content":"."},"logprobs":{"content":[{"token":".","logprob":-0.25,"bytes":[46],"#,
    "\"top_logprobs\":[]}]},\"finish_reason\":\"stop\",\"stop_reason\":null,\"token_ids\":[8]}]}\n\n"
);
pub(crate) const DONE: &str = "data: [DONE]\n\n";

/// Returns one chunk of a chunked body.
pub(crate) fn chunk(data: impl AsRef<[u8]>) -> Vec<u8> {
    let data = data.as_ref();
    [format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat()
}

/// Returns a chunked body of these pieces, with its end.
pub(crate) fn chunked(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut chunks: Vec<_> = pieces.iter().map(chunk).collect();
    chunks.push(b"0\r\n\r\n".to_vec());
    chunks
}

/// Returns a script for a whole answer.
pub(crate) fn whole(status: &str, content_type: &str, body: &str) -> Script {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    Script { pieces: vec![head.into_bytes()], then: Then::Listen }
}

/// Returns a script for a stream of these events, with correct framing.
pub(crate) fn stream(events: &[&[u8]]) -> Script {
    let mut pieces = vec![STREAM.as_bytes().to_vec()];
    pieces.extend(chunked(events));
    Script { pieces, then: Then::Listen }
}

/// Returns a script for an answer in vLLM's form.
pub(crate) fn sound() -> Script {
    stream(&[FIRST, TOKEN, LAST, DONE].map(str::as_bytes))
}

impl RawUpstream {
    /// Starts an upstream that answers the calls by the scripts in their order, and all further calls correctly.
    pub(crate) async fn start(scripts: Vec<Script>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let heard = Arc::new(Mutex::new(Vec::new()));
        let upstream = Self { url, heard: Arc::clone(&heard) };
        let scripts = Arc::new(scripts);
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(serve(connection, Arc::clone(&scripts), Arc::clone(&heard)));
            }
        });
        upstream
    }

    /// Returns the bodies of the calls so far.
    pub(crate) fn heard(&self) -> Vec<Vec<u8>> {
        self.heard.lock().unwrap().iter().map(|call| call.body.clone()).collect()
    }

    /// Returns the heads of the calls so far.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heard.lock().unwrap().iter().map(|call| call.head.clone()).collect()
    }
}

async fn serve(mut connection: TcpStream, scripts: Arc<Vec<Script>>, heard: Arc<Mutex<Vec<Heard>>>) {
    connection.set_nodelay(true).unwrap();
    while let Some((head, body)) = read_request(&mut connection).await {
        let script = if head.starts_with("POST ") {
            let mut heard = heard.lock().unwrap();
            heard.push(Heard { head, body });
            scripts.get(heard.len() - 1).cloned().unwrap_or_else(sound)
        } else {
            whole("404 Not Found", "application/json", "{}")
        };
        for piece in &script.pieces {
            if connection.write_all(piece).await.is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
        match script.then {
            Then::Listen => {}
            Then::Close => return,
            Then::Hang => {
                let _ = connection.read(&mut [0; 64]).await;
                return;
            }
        }
    }
}

async fn read_request(connection: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        (connection.read_buf(&mut bytes).await.ok()? > 0).then_some(())?;
    };
    let mut body = bytes.split_off(head_end);
    let head = String::from_utf8(bytes).unwrap().to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    while body.len() < length.unwrap_or(0) {
        (connection.read_buf(&mut body).await.ok()? > 0).then_some(())?;
    }
    Some((head.replacen("post ", "POST ", 1), body))
}
