//! A vLLM-shaped upstream with little work per token: it assembles answers from prepared pieces, in the form of a real
//! one.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;
use hyper::{Request, Response, header};
use hyper_util::rt::TokioIo;
use tokio::time::Sleep;

/// The settings of an answer, which a request passes in the model's name.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Knobs {
    /// The smallest number of prompt ids to report. A larger request gets more.
    pub(crate) prompt: usize,
    /// The number of sampled tokens.
    pub(crate) tokens: usize,
    /// Microseconds between two tokens of a stream.
    pub(crate) delay_us: u64,
}

impl Knobs {
    pub(crate) fn as_model(&self) -> String {
        format!("{}-{}-{}", self.prompt, self.tokens, self.delay_us)
    }

    fn of_request(body: &[u8]) -> Self {
        let at = memchr::memmem::find(body, b"\"model\":\"").unwrap() + 9;
        let end = at + memchr::memchr(b'"', &body[at..]).unwrap();
        let mut numbers = std::str::from_utf8(&body[at..end]).unwrap().split('-').map(|n| n.parse().unwrap());
        let mut next = || numbers.next().unwrap();
        Self { prompt: next() as usize, tokens: next() as usize, delay_us: next() }
    }
}

static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Returns microseconds on the clock that upstream and load share.
pub(crate) fn now_us() -> u64 {
    ORIGIN.elapsed().as_micros() as u64
}

pub(crate) async fn start() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let service = hyper::service::service_fn(answer);
            let connection =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection);
        }
    });
    address
}

async fn answer(request: Request<Incoming>) -> Result<Response<Either<Full<Bytes>, Stream>>, Infallible> {
    if request.method() == hyper::Method::GET {
        return Ok(json(r#"{"data":[{"id":"m","root":"elsewhere"}]}"#.to_owned()));
    }
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let mut knobs = Knobs::of_request(&body);
    // The prompt of a conversation grows with its request body.
    knobs.prompt = knobs.prompt.max(body.len() / 4).min(knobs.prompt.max(65_536));
    if memchr::memmem::find(&body, b"\"stream\":true").is_some() {
        let stream = Stream { knobs, sent: 0, sleep: None };
        let response = Response::builder().header(header::CONTENT_TYPE, "text/event-stream; charset=utf-8");
        return Ok(response.body(Either::Right(stream)).unwrap());
    }
    let logprobs: Vec<_> = (0..knobs.tokens).map(entry).collect();
    let ids: Vec<_> = (0..knobs.tokens).map(|i| id(i).to_string()).collect();
    Ok(json(format!(
        r#"{{"id":"chatcmpl-0","object":"chat.completion","created":1,"model":"m","choices":[{{"index":0,"message":{{"role":"assistant","content":"{}"}},"logprobs":{{"content":[{}]}},"finish_reason":"length","stop_reason":null,"token_ids":[{}]}}],"usage":{{"prompt_tokens":{},"completion_tokens":{}}},"prompt_token_ids":{}}}"#,
        " word".repeat(knobs.tokens),
        logprobs.join(","),
        ids.join(","),
        knobs.prompt,
        knobs.tokens,
        prompt(knobs.prompt),
    )))
}

fn json(body: String) -> Response<Either<Full<Bytes>, Stream>> {
    let response = Response::builder().header(header::CONTENT_TYPE, "application/json");
    response.body(Either::Left(Full::new(body.into()))).unwrap()
}

/// Returns an id of four to six digits, as in a large vocabulary.
fn id(i: usize) -> usize {
    i * 7919 % 151_936
}

fn prompt(length: usize) -> String {
    static ALL: LazyLock<Vec<String>> =
        LazyLock::new(|| (0..65_536).map(|i| id(i + 3).to_string()).collect());
    format!("[{}]", ALL[..length].join(","))
}

fn entry(i: usize) -> String {
    let logprob = ["-0.3434734642505646", "-0.00012356207298580557", "-0.0", "-2.453125238418579"][i % 4];
    format!(r#"{{"token":" word","logprob":{logprob},"bytes":[32,119,111,114,100],"top_logprobs":[]}}"#)
}

/// A streaming answer: one chunk per token, each flushed alone as vLLM does.
pub(crate) struct Stream {
    knobs: Knobs,
    sent: usize,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Stream {
    fn chunk(&self) -> Option<String> {
        let begin = r#"data: {"id":"chatcmpl-0","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":"#;
        let end = self.knobs.tokens + 1;
        Some(match self.sent {
            0 => format!(
                "{begin}{{\"role\":\"assistant\",\"content\":\"\"}},\"logprobs\":null,\"finish_reason\":null}}],\"prompt_token_ids\":{}}}\n\n",
                prompt(self.knobs.prompt)
            ),
            sent if sent < end => format!(
                "{begin}{{\"content\":\" @{}\"}},\"logprobs\":{{\"content\":[{}]}},\"finish_reason\":{},\"token_ids\":[{}]}}]}}\n\n",
                now_us(),
                entry(sent),
                if sent + 1 == end { "\"length\"" } else { "null" },
                id(sent),
            ),
            sent if sent == end => "data: [DONE]\n\n".to_owned(),
            _ => return None,
        })
    }
}

impl Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        // Each chunk is flushed before the next one even if there is no delay.
        let delay = Duration::from_micros(this.knobs.delay_us.max(1));
        if this.knobs.delay_us > 0 && this.sent > 0 && this.sent <= this.knobs.tokens {
            let sleep = this.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(delay)));
            ready!(sleep.as_mut().poll(cx));
            let next = sleep.deadline() + delay;
            sleep.as_mut().reset(next);
        } else if this.sleep.is_none() && this.knobs.delay_us == 0 {
            this.sleep = Some(Box::pin(tokio::time::sleep(Duration::ZERO)));
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if this.knobs.delay_us == 0 {
            this.sleep = None;
        }
        let chunk = this.chunk();
        this.sent += 1;
        Poll::Ready(chunk.map(|chunk| Ok(Frame::data(chunk.into()))))
    }
}
