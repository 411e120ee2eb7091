//! `rolltap doctor` on the simulator, and on what may stand in front of a server.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use rolltap_testing::http_client;
use serde_json::Value;

use super::jobs::task;
use super::program::{Ended, repository, rolltap, simulator, unused_address};

/// Runs the command beside the servers of this test.
async fn doctor(dir: &Path, args: &[&str]) -> Ended {
    output_of(rolltap(dir, &[&["doctor"], args].concat())).await
}

async fn output_of(mut command: Command) -> Ended {
    tokio::task::spawn_blocking(move || command.output().unwrap().into()).await.unwrap()
}

/// Returns the verdict and the text of a check in a JSON report.
fn finding(report: &Value, check: &str) -> (String, String) {
    let findings = report["findings"].as_array().unwrap();
    let found = findings.iter().find(|finding| finding["check"] == check);
    let found = found.unwrap_or_else(|| panic!("no check {check:?} in {report:#}"));
    let text = format!("{} → {}", found["found"], found["remedy"]);
    (found["verdict"].as_str().unwrap().to_owned(), text)
}

#[tokio::test]
async fn nothing_is_broken_before_the_simulator() {
    let dir = tempfile::tempdir().unwrap();
    let (_sim, url) = simulator(dir.path(), None);
    let ended = doctor(dir.path(), &["--upstream", &url]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for check in ["prompt ids", "sampled ids", "logprobs", "stream", "responses", "messages", "n = 2"] {
        let line =
            ended.stdout.lines().find(|line| line.get(10..).is_some_and(|rest| rest.starts_with(check)));
        assert!(line.is_some_and(|line| line.starts_with("ok ")), "{check}: {}", ended.stdout);
    }
    assert!(ended.stdout.contains("\n0 broken, "), "{}", ended.stdout);
}

#[tokio::test]
async fn a_directory_without_a_tokenizer_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (_sim, url) = simulator(dir.path(), None);
    let ended = doctor(dir.path(), &["--upstream", &url, "--tokenizer", "nowhere"]).await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("nowhere"), "{}", ended.stderr);
}

#[tokio::test]
async fn prompts_that_are_rendered_otherwise_are_a_line_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let (_sim, url) = simulator(dir.path(), None);
    let tokenizer = repository("proxy/tests/fixtures/render");
    let ended = doctor(dir.path(), &["--upstream", &url, "--tokenizer", &tokenizer, "--json"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(finding(&report, "second turn").0, "degraded", "{report:#}");
    let (verdict, text) = finding(&report, "rendering");
    assert_eq!(verdict, "degraded", "{text}");
    for part in ["(assistant, user)", "--chat-template", "save_pretrained", "--tokenizer"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // Without exact prefix nothing is compared.
    let ended =
        doctor(dir.path(), &["--upstream", &url, "--tokenizer", &tokenizer, "--history", "off"]).await;
    assert!(ended.code == Some(0) && !ended.stdout.contains("rendering"), "{ended:?}");
}

/// A gateway in front of a server.
#[derive(Clone)]
struct Gateway {
    upstream: String,
    /// Turns the body of an answer into what the gateway sends.
    change: fn(Bytes) -> Bytes,
}

async fn pass(State(gateway): State<Gateway>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let path = head.uri.path_and_query().unwrap();
    let asked = http_client().request(head.method, format!("{}{path}", gateway.upstream)).body(body);
    let kind = head.headers.get("content-type").cloned().unwrap_or_else(|| "text/plain".parse().unwrap());
    let answer = asked.header("content-type", kind).send().await.unwrap();
    let builder = Response::builder().status(answer.status()).header("via", "1.1 gateway");
    let builder = match answer.headers().get("content-type") {
        Some(kind) => builder.header("content-type", kind.clone()),
        None => builder,
    };
    builder.body(Body::from((gateway.change)(answer.bytes().await.unwrap()))).unwrap()
}

/// Starts a gateway. Returns its URL.
async fn gateway(upstream: &str, change: fn(Bytes) -> Bytes) -> String {
    let gateway = Gateway { upstream: upstream.to_owned(), change };
    serve(Router::new().fallback(pass).with_state(gateway)).await
}

async fn serve(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    format!("http://{address}")
}

/// Removes what OpenAI's format does not have, as routers do that write answers anew.
fn strip(body: Bytes) -> Bytes {
    fn of(text: &str) -> String {
        let Ok(mut value) = serde_json::from_str::<Value>(text) else { return text.to_owned() };
        if let Some(answer) = value.as_object_mut() {
            answer.remove("prompt_token_ids");
        }
        for choice in value["choices"].as_array_mut().into_iter().flatten() {
            choice.as_object_mut().unwrap().retain(|key, _| key != "token_ids" && key != "logprobs");
        }
        value.to_string()
    }
    let text = String::from_utf8(body.to_vec()).unwrap();
    let is_stream = text.starts_with("data: ");
    let lines = text.lines().map(|line| match line.strip_prefix("data: ") {
        Some(data) => format!("data: {}\n", of(data)),
        None => format!("{line}\n"),
    });
    if is_stream { lines.collect::<String>().into() } else { of(&text).into() }
}

#[tokio::test]
async fn a_router_that_removes_ids_is_found_and_stops_a_job() {
    let dir = tempfile::tempdir().unwrap();
    let (_sim, url) = simulator(dir.path(), None);
    let router = gateway(&url, strip).await;
    let ended = doctor(dir.path(), &["--upstream", &router, "--json"]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    for check in ["prompt ids", "sampled ids", "logprobs", "stream", "n = 2", "messages"] {
        let (verdict, text) = finding(&report, check);
        assert!(verdict == "broken" && text.contains("router"), "{check}: {verdict} {text}");
    }
    assert!(finding(&report, "router").1.contains("via: 1.1 gateway"), "{report:#}");

    let task = task(dir.path(), "hello", "exit 0");
    let run = ["run", "-p", task.to_str().unwrap(), "-a", "terminal", "-e", "local", "--upstream", &router];
    let refused = output_of(rolltap(dir.path(), &run)).await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    for part in ["would capture nothing", "rolltap doctor --upstream", "--no-preflight"] {
        assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
    }
    assert!(!dir.path().join("jobs").exists(), "a job that does not start leaves nothing");
}

/// Answers as a vLLM from before token ids.
fn of_an_old_vllm(body: Bytes) -> Bytes {
    if body.starts_with(b"{\"version\"") {
        Bytes::from_static(b"{\"version\":\"0.9.2\"}")
    } else {
        strip(body)
    }
}

#[tokio::test]
async fn an_old_vllm_is_broken_and_needs_an_update() {
    let dir = tempfile::tempdir().unwrap();
    let (_sim, url) = simulator(dir.path(), None);
    let old = gateway(&url, of_an_old_vllm).await;
    let ended = doctor(dir.path(), &["--upstream", &old, "--json"]).await;
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let (verdict, text) = finding(&report, "version");
    assert!(verdict == "broken" && text.contains("0.9.2") && text.contains("0.10.2 or later"), "{text}");
}

#[tokio::test]
async fn what_answers_instead_of_a_server_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let html = Router::new().fallback(async || axum::response::Html("<html>Sign in</html>"));
    let redirect = Router::new().fallback(async || axum::response::Redirect::temporary("https://elsewhere/"));
    for (router, part) in [(html, "HTML page"), (redirect, "https://elsewhere/")] {
        let url = serve(router).await;
        let ended = doctor(dir.path(), &["--upstream", &url]).await;
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stdout.contains(part), "{}", ended.stdout);
    }
    let ended = doctor(dir.path(), &["--upstream", &unused_address()]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.contains("reachable") && ended.stdout.contains("refused"), "{}", ended.stdout);
}
