use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use axum::routing::post;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Starts a server that gives these answers in turn and repeats the last one. Returns its base URL, the counter of its
/// calls, and the last request's bearer token and body.
async fn server(
    answers: Vec<(u16, HeaderMap, String)>,
) -> (String, Arc<AtomicUsize>, Arc<Mutex<(String, Value)>>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let last = Arc::new(Mutex::new((String::new(), Value::Null)));
    let (count, seen) = (Arc::clone(&calls), Arc::clone(&last));
    let handler = move |headers: HeaderMap, body: String| {
        let call = count.fetch_add(1, Ordering::SeqCst);
        let key = headers["authorization"].to_str().unwrap().to_owned();
        *seen.lock().unwrap() = (key, serde_json::from_str(&body).unwrap());
        let (status, headers, body) = answers[call.min(answers.len() - 1)].clone();
        async move { (StatusCode::from_u16(status).unwrap(), headers, body).into_response() }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    let app = Router::new().route("/v1/chat/completions", post(handler));
    tokio::spawn(async move { axum::serve(listener, app).await });
    (base_url, calls, last)
}

fn answer(status: u16, body: impl ToString) -> (u16, HeaderMap, String) {
    (status, HeaderMap::new(), body.to_string())
}

fn completion(content: &str) -> (u16, HeaderMap, String) {
    let choice =
        json!({"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"});
    answer(200, json!({"choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}))
}

/// Returns a client that does not wait between attempts.
fn client(base_url: &str) -> ChatClient {
    let mut client = ChatClient::new(AgentSettings::new(base_url, "secret", "tiny")).unwrap();
    client.first_wait = Duration::ZERO;
    client
}

fn hello() -> Vec<Said<'static>> {
    vec![Said { role: Role::User, content: "hello" }]
}

#[tokio::test]
async fn the_request_is_plain_and_the_content_comes_back_as_it_is() {
    let content = " {\"a\":1}\r\n\u{1f980} ";
    let (url, _, last) = server(vec![completion(content)]).await;
    let reply = client(&format!("{url}/")).complete(&hello()).await.unwrap();
    let expected = Reply {
        content: content.into(),
        usage: Some(Usage { prompt_tokens: 7, completion_tokens: 3, cached_tokens: 0 }),
        ..Reply::default()
    };
    assert_eq!(reply, expected);
    let (key, body) = last.lock().unwrap().clone();
    assert_eq!(key, "Bearer secret");
    assert_eq!(body, json!({"model": "tiny", "messages": [{"role": "user", "content": "hello"}]}));
}

#[tokio::test]
async fn sampling_settings_are_sent_only_if_set() {
    let (url, _, last) = server(vec![completion("")]).await;
    let mut client = client(&url);
    client.settings.temperature = Some(0.0);
    client.settings.max_tokens = Some(5);
    client.complete(&hello()).await.unwrap();
    let body = last.lock().unwrap().1.clone();
    assert_eq!((&body["temperature"], &body["max_tokens"]), (&json!(0.0), &json!(5)));
}

#[tokio::test]
async fn a_length_finish_and_missing_content_are_understood() {
    let choice = json!({"message": {"content": null}, "finish_reason": "length"});
    let (url, ..) = server(vec![answer(200, json!({"choices": [choice]}))]).await;
    let reply = client(&url).complete(&hello()).await.unwrap();
    assert_eq!(reply, Reply { cut_off: true, ..Reply::default() });
}

#[tokio::test]
async fn a_busy_or_broken_server_is_asked_again() {
    let (url, calls, _) = server(vec![answer(503, "down"), answer(429, "busy"), completion("ok")]).await;
    assert_eq!(client(&url).complete(&hello()).await.unwrap().content, "ok");
    assert_eq!(calls.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn retries_end() {
    let (url, calls, _) = server(vec![answer(500, r#"{"error": {"message": "engine died"}}"#)]).await;
    let error = client(&url).complete(&hello()).await.unwrap_err();
    assert_eq!(error.to_string(), format!("the model at {url}/chat/completions answered 500: engine died"));
    assert_eq!(calls.load(Ordering::SeqCst), 5);
}

#[tokio::test]
async fn the_servers_own_wait_is_respected() {
    let mut headers = HeaderMap::new();
    headers.insert("retry-after", "1".parse().unwrap());
    let (url, ..) = server(vec![(429, headers, String::new()), completion("ok")]).await;
    let start = std::time::Instant::now();
    client(&url).complete(&hello()).await.unwrap();
    assert!(start.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn a_refusal_is_final() {
    for status in [400, 401, 404, 410, 302] {
        let (url, calls, _) = server(vec![answer(status, "no"), completion("ok")]).await;
        let error = client(&url).complete(&hello()).await.unwrap_err();
        assert!(matches!(&error, ChatError::Refused { status: got, .. } if *got == status), "{error}");
        assert_eq!(calls.load(Ordering::SeqCst), 1, "{status}");
    }
}

#[tokio::test]
async fn a_full_context_is_an_error_of_its_own() {
    let (url, calls, _) = server(vec![answer(400, "This model's maximum context length is 5 tokens.")]).await;
    let error = client(&url).complete(&hello()).await.unwrap_err();
    assert!(matches!(error, ChatError::ContextExceeded { .. }), "{error}");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_answer_that_is_no_completion_is_an_error_with_its_beginning() {
    for (body, cause) in [("<html>hi</html>", "expected value"), ("{\"choices\": []}", "no choices")] {
        let (url, ..) = server(vec![answer(200, body)]).await;
        let error = client(&url).complete(&hello()).await.unwrap_err().to_string();
        assert!(error.contains(cause) && error.contains(&format!("{body:?}")), "{error}");
    }
}

#[tokio::test]
async fn an_absent_server_is_an_error_with_the_address_and_the_cause() {
    // This port was free a moment ago, and no process listens on it.
    let port = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let error =
        client(&format!("http://127.0.0.1:{port}/v1")).complete(&hello()).await.unwrap_err().to_string();
    assert!(error.contains(&format!("http://127.0.0.1:{port}/v1/chat/completions")), "{error}");
    assert!(error.contains("refused"), "{error}");
}

#[tokio::test]
async fn silence_is_a_timeout_and_not_asked_again() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = AgentSettings::new(format!("http://{}/v1", listener.local_addr().unwrap()), "k", "m");
    client.call_timeout = Duration::from_millis(200);
    let error = ChatClient::new(client).unwrap().complete(&hello()).await.unwrap_err();
    assert!(matches!(error, ChatError::Timeout { .. }), "{error}");
}

#[tokio::test]
async fn an_unusable_address_is_an_error_before_anything_else() {
    for address in ["localhost", "localhost:8000/v1", "http://", ""] {
        let error = ChatClient::new(AgentSettings::new(address, "k", "m")).err().unwrap().to_string();
        assert!(error.contains(&format!("address {address:?}")), "{error}");
        assert!(error.contains("http://HOST:PORT/v1"), "{error}");
    }
}

proptest! {
    #[test]
    fn any_body_is_read_without_panic(body in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(client("http://127.0.0.1:1/v1").reply(&body).is_err());
    }
}

#[test]
fn fuzz_chat_reply() {
    let client = std::panic::AssertUnwindSafe(client("http://127.0.0.1:1/v1"));
    rolltap_testing::fuzz!("chat_reply", |body| drop(client.reply(body)));
}
