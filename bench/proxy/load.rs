//! Agents that call as fast as the answers arrive, and check that each answer is complete.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, header};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use memchr::memmem;

use crate::upstream::{Knobs, now_us};

/// The load that the agents produce.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) at_once: usize,
    /// Calls of all agents together.
    pub(crate) calls: usize,
    pub(crate) stream: bool,
    /// Bytes of a request. With several turns, each request is longer than the previous one by this number.
    pub(crate) body: usize,
    pub(crate) turns: usize,
}

/// The counts of the answers.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) calls: usize,
    pub(crate) tokens: usize,
    /// Microseconds between upstream's write and the agent's read, for each token of a stream.
    pub(crate) one_way: Vec<u64>,
}

/// Puts the load on `target`. Returns the counts, and the largest value of `resident` during the load.
pub(crate) async fn run(
    load: &Load,
    knobs: &Knobs,
    target: SocketAddr,
    path: &str,
    resident: impl Fn() -> f64,
) -> (Seen, f64) {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Client<HttpConnector, Full<Bytes>> = Client::builder(TokioExecutor::new()).build(connector);
    let url: Arc<str> = format!("http://{target}{path}").into();
    let bodies: Arc<Vec<Bytes>> = Arc::new((1..=load.turns).map(|turn| body(load, knobs, turn)).collect());
    let left = Arc::new(AtomicUsize::new(load.calls));
    let mut agents = tokio::task::JoinSet::new();
    for _ in 0..load.at_once {
        agents.spawn(agent(*knobs, client.clone(), Arc::clone(&url), Arc::clone(&bodies), Arc::clone(&left)));
    }
    let (mut seen, mut largest) = (Seen::default(), resident());
    loop {
        tokio::select! {
            of_agent = agents.join_next() => {
                let Some(of_agent) = of_agent.map(Result::unwrap) else { return (seen, largest) };
                seen.calls += of_agent.calls;
                seen.tokens += of_agent.tokens;
                seen.one_way.extend(of_agent.one_way);
            }
            () = tokio::time::sleep(Duration::from_millis(50)) => largest = largest.max(resident()),
        }
    }
}

fn body(load: &Load, knobs: &Knobs, turn: usize) -> Bytes {
    let text = "def f(x):\\n    return x + 1  # tool output \\u00e9\\n".repeat(load.body * turn / 50);
    let stream = if load.stream { ",\"stream\":true" } else { "" };
    let model = knobs.as_model();
    format!(
        r#"{{"model":"{model}","logprobs":true,"return_token_ids":true{stream},"messages":[{{"role":"user","content":"{text}"}}]}}"#
    )
    .into()
}

async fn agent(
    knobs: Knobs,
    client: Client<HttpConnector, Full<Bytes>>,
    url: Arc<str>,
    bodies: Arc<Vec<Bytes>>,
    left: Arc<AtomicUsize>,
) -> Seen {
    let mut seen = Seen::default();
    for body in bodies.iter().cycle() {
        if left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err() {
            break;
        }
        let request = Request::post(&*url).header(header::CONTENT_TYPE, "application/json");
        let request = request.body(Full::new(body.clone())).unwrap();
        let mut answer = client.request(request).await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.status());
        let mut tokens = 0;
        while let Some(frame) = answer.frame().await {
            let Ok(data) = frame.unwrap().into_data() else { continue };
            tokens += memmem::find_iter(&data, b"\"logprob\":").count();
            if knobs.delay_us > 0 {
                let came = now_us();
                seen.one_way.extend(memmem::find_iter(&data, b" @").map(|at| came - number(&data[at + 2..])));
            }
        }
        // A read may cut an entry in two, so the count of a whole answer may miss a few.
        assert!(tokens + 4 + tokens / 10 >= knobs.tokens, "{tokens} of {} tokens", knobs.tokens);
        seen.calls += 1;
        seen.tokens += knobs.tokens;
    }
    seen
}

fn number(text: &[u8]) -> u64 {
    text.iter()
        .take_while(|byte| byte.is_ascii_digit())
        .fold(0, |number, &byte| number * 10 + u64::from(byte - b'0'))
}
