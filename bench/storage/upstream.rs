//! An upstream that answers each turn of the conversations with its scripted answer.

use std::convert::Infallible;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, header};
use hyper_util::rt::TokioIo;
use memchr::memmem;

use crate::conversation::{self, Answer, Conversation, NAME, Size};
use crate::text::Text;

pub(crate) async fn start(text: Arc<Text>, size: Size) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let text = Arc::clone(&text);
            let service = service_fn(move |request| answer(Arc::clone(&text), size, request));
            let http = hyper::server::conn::http1::Builder::new();
            tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}

async fn answer(
    text: Arc<Text>,
    size: Size,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.method() == hyper::Method::GET {
        return Ok(json(r#"{"data":[{"id":"m","root":"elsewhere"}]}"#.to_owned()));
    }
    if !request.uri().path().ends_with("/chat/completions") {
        // The upstream does not tokenise, so prompts are sent as messages.
        return Ok(Response::builder().status(404).body(Full::default()).unwrap());
    }
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let at = memmem::find(&body, format!("{NAME} ").as_bytes()).unwrap() + NAME.len() + 1;
    let digits = body[at..].iter().take_while(|byte| byte.is_ascii_digit());
    let number = digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0'));
    let mut turns = memmem::find_iter(&body, br#""role":"assistant""#).count();
    let mut written = None;
    conversation::play(&text, number, size, |conversation, answer| {
        if turns == 0 {
            written = Some(write(number, conversation, answer));
        }
        turns = turns.wrapping_sub(1);
        written.is_none()
    });
    Ok(json(written.unwrap()))
}

fn json(body: String) -> Response<Full<Bytes>> {
    let response = Response::builder().header(header::CONTENT_TYPE, "application/json");
    response.body(Full::new(body.into())).unwrap()
}

fn write(number: usize, conversation: &Conversation, answer: &Answer) -> String {
    let mut random = (number * 1009 + conversation.prompt.len()) as u64;
    let mut logprobs = String::new();
    for _ in &answer.ids {
        let entry = r#"{"token":"x","bytes":[120],"top_logprobs":[],"logprob":"#;
        write!(logprobs, "{entry}{:?}}},", f64::from(logprob(&mut random))).unwrap();
    }
    format!(
        r#"{{"id":"chatcmpl-{number}","object":"chat.completion","created":1,"model":"m","choices":[{{"index":0,"message":{{"role":"assistant","content":{}}},"logprobs":{{"content":[{}]}},"finish_reason":"stop","stop_reason":null,"token_ids":{:?}}}],"usage":{{"prompt_tokens":{},"completion_tokens":{}}},"prompt_token_ids":{:?}}}"#,
        serde_json::Value::from(answer.text.as_str()),
        logprobs.trim_end_matches(','),
        answer.ids,
        conversation.prompt.len(),
        answer.ids.len(),
        conversation.prompt,
    )
}

/// Returns a logprob like those of a policy that is sure of most tokens: e to the power of a normal number around -5.
/// All bits of the mantissa are noise, so these logprobs compress no better than real ones.
fn logprob(random: &mut u64) -> f32 {
    let mut unit = || {
        *random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (*random ^ (*random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    };
    let normal = (0..12).map(|_| unit()).sum::<f64>() - 6.0;
    (-(3.0 * normal - 5.0).exp()) as f32
}
