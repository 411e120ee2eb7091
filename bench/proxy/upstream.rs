//! A vLLM-shaped upstream with little work per token. It is a process, so that its work and the load's alternate as the
//! kernel decides, and not as one runtime does.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep};
use tokio_rustls::TlsAcceptor;

use crate::answer::{self, Answer, Events};

/// Prints its address on stdout and serves until it is killed. `tls` is `None` for HTTP without TLS.
pub(crate) async fn run(tls: Option<TlsAcceptor>) -> ! {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap());
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        match tls.clone() {
            None => drop(tokio::spawn(serve(stream))),
            Some(tls) => drop(tokio::spawn(async move { serve(tls.accept(stream).await.unwrap()).await })),
        }
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + 'static) {
    let mut server = hyper::server::conn::http1::Builder::new();
    let service = hyper::service::service_fn(answer);
    // The connection ends with an error if the agent aborts its call.
    drop(server.max_buf_size(1 << 20).serve_connection(TokioIo::new(stream), service).await);
}

async fn answer(request: Request<Incoming>) -> Result<Response<Either<Full<Bytes>, Stream>>, Infallible> {
    static CALLS: AtomicU64 = AtomicU64::new(1);
    let answer = match (request.method(), request.uri().path()) {
        (&Method::GET, "/v1/models") => json(
            StatusCode::OK,
            r#"{"object":"list","data":[{"id":"m","object":"model","created":1763700000,"owned_by":"vllm","root":"elsewhere","parent":null,"max_model_len":262144,"permission":[]}]}"#,
        ),
        (&Method::GET, "/version") => json(StatusCode::OK, r#"{"version":"0.32.0"}"#),
        (&Method::GET, "/health") => json(StatusCode::OK, ""),
        (&Method::POST, "/v1/chat/completions") => {
            // An agent that aborts its call may cut the request.
            let Ok(body) = request.into_body().collect().await else {
                return Ok(json(StatusCode::BAD_REQUEST, "{}"));
            };
            let (body, number) = (body.to_bytes(), CALLS.fetch_add(1, Ordering::Relaxed));
            let Some(answer) = Answer::to_request(&body, number) else {
                return Ok(json(StatusCode::BAD_REQUEST, "{}"));
            };
            if memchr::memmem::find(&body, b"\"stream\":true").is_none() {
                return Ok(json(StatusCode::OK, answer::whole(&answer)));
            }
            let response =
                Response::builder().header(header::CONTENT_TYPE, "text/event-stream; charset=utf-8");
            response.body(Either::Right(Stream::new(answer))).unwrap()
        }
        _ => json(StatusCode::NOT_FOUND, r#"{"detail":"Not Found"}"#),
    };
    Ok(answer)
}

fn json(status: StatusCode, body: impl Into<Bytes>) -> Response<Either<Full<Bytes>, Stream>> {
    let response = Response::builder().status(status).header(header::CONTENT_TYPE, "application/json");
    response.body(Either::Left(Full::new(body.into()))).unwrap()
}

/// A streaming answer. Each event is flushed alone, as by vLLM's server.
pub(crate) struct Stream {
    events: Events,
    pace: Option<Pace>,
    /// Whether the connection has flushed the previous event.
    is_flushed: bool,
}

/// The times at which a paced stream sends its tokens. They do not depend on how long the sending takes.
struct Pace {
    delay: Duration,
    sleep: Pin<Box<Sleep>>,
}

impl Stream {
    fn new(answer: Answer) -> Self {
        let delay = Duration::from_micros(answer.knobs.delay_us);
        let pace = (!delay.is_zero())
            .then(|| Pace { delay, sleep: Box::pin(tokio::time::sleep_until(Instant::now() + delay)) });
        Self { events: Events::new(answer), pace, is_flushed: false }
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
        if let Some(pace) = &mut this.pace {
            if this.events.is_token_next() {
                ready!(pace.sleep.as_mut().poll(cx));
                let next = pace.sleep.deadline() + pace.delay;
                pace.sleep.as_mut().reset(next);
            }
        } else if !this.is_flushed {
            // The connection flushes its buffer whenever its body is not ready.
            this.is_flushed = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        this.is_flushed = false;
        Poll::Ready(this.events.next().map(|event| Ok(Frame::data(event))))
    }
}
