//! HTTP proxies of the environment, mutual TLS of the admin plane, and planes in plain text.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rolltap_testing::{TestAuthority, eventually, http_client, until};
use serde_json::{Value, json};

use super::jobs::task;
use super::program::{Running, rolltap, run};

/// An HTTP proxy that refuses everything, and lists the first line of each request.
struct HttpProxy {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl HttpProxy {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let list = Arc::clone(&asked);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut line = String::new();
                let _ = BufReader::new(&stream).read_line(&mut line);
                list.lock().unwrap().push(line.trim().to_owned());
                let _ = stream.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n");
            }
        });
        Self { url, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    async fn is_asked(&self, line: &str) {
        eventually(line, async || self.asked().iter().any(|asked| asked.starts_with(line))).await;
    }
}

/// Starts a proxy whose upstream and collector have names that no resolver knows.
fn proxy_with(dir: &Path, environment: &HttpProxy, more: &[&str]) -> (Running, String) {
    let args = ["proxy", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let servers =
        ["--upstream", "http://upstream.invalid:8000", "--otlp-endpoint", "http://collector.invalid:4318"];
    let mut command = rolltap(dir, &[&args[..], &servers, more].concat());
    for variable in
        ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy", "HTTP_PROXY"]
    {
        command.env_remove(variable);
    }
    let mut proxy = Running::spawn(command.env("http_proxy", &environment.url));
    let _agents = proxy.next_url();
    let admin = proxy.next_url();
    (proxy, admin)
}

/// Opens and seals a trial, which makes a span.
async fn trial(admin: &str) {
    let http = http_client();
    let opened = http.post(format!("{admin}/v1/trials")).json(&json!({"task_id": "t"})).send().await.unwrap();
    let opened: Value = opened.json().await.unwrap();
    let url = format!("{admin}/v1/trials/{}/seal", opened["trial_id"].as_str().unwrap());
    assert!(http.post(url).send().await.unwrap().status().is_success());
}

#[tokio::test]
async fn the_http_proxy_of_the_environment_gets_spans_and_no_calls() {
    let dir = tempfile::tempdir().unwrap();
    let (environment, named) = (HttpProxy::start(), HttpProxy::start());
    let (direct, admin) = proxy_with(dir.path(), &environment, &[]);
    trial(&admin).await;
    environment.is_asked("CONNECT collector.invalid:4318 ").await;
    let others: Vec<String> = environment
        .asked()
        .into_iter()
        .filter(|line| !line.starts_with("CONNECT collector.invalid:4318 "))
        .collect();
    assert!(others.is_empty(), "checks of the upstream do not use the environment: {others:?}");
    drop(direct);

    let dir = tempfile::tempdir().unwrap();
    let (_proxy, _admin) = proxy_with(dir.path(), &environment, &["--upstream-http-proxy", &named.url]);
    named.is_asked("CONNECT upstream.invalid:8000 ").await;
    assert!(environment.asked().iter().all(|line| !line.contains("upstream")), "{:?}", environment.asked());
}

#[test]
fn a_job_and_a_health_check_identify_themselves_to_an_admin_plane_with_mutual_tls() {
    let dir = tempfile::tempdir().unwrap();
    let (authority, clients) = (TestAuthority::default(), TestAuthority::default());
    let ([certificate, key], [own, own_key]) =
        (authority.certificate("127.0.0.1").files(), clients.certificate("runner").files());
    let (ca, of_clients) = (authority.file(), clients.file());
    let [certificate, key, own, own_key, ca, of_clients] =
        [&certificate, &key, &own, &own_key, &ca, &of_clients]
            .map(|file| file.path().to_str().unwrap().to_owned());
    let mut sim = Running::start(dir.path(), &["sim", "--listen", "127.0.0.1:0"]);
    let upstream = sim.next_url();
    let args = ["proxy", "--upstream", &upstream, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let tls = ["--tls-cert", &certificate, "--tls-key", &key, "--admin-client-ca", &of_clients];
    let mut proxy = Running::start(dir.path(), &[&args[..], &tls].concat());
    let _agents = proxy.next_url();
    let admin = proxy.next_url();
    assert!(admin.starts_with("https://"), "{admin}");

    let anonymous = run(dir.path(), &["health", &admin, "--ca", &ca]);
    assert_eq!(anonymous.code, Some(1), "{anonymous:?}");
    let known =
        run(dir.path(), &["health", &admin, "--ca", &ca, "--client-cert", &own, "--client-key", &own_key]);
    assert_eq!(known.code, Some(0), "{known:?}");

    let task = task(dir.path(), "hello", "echo 1 > /logs/verifier/reward.txt");
    let task = task.to_str().unwrap();
    let job = ["run", "-q", "-p", task, "-a", "nop", "-e", "local", "--proxy", &admin, "--proxy-ca", &ca];
    let refused = run(dir.path(), &job);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    let identity = ["--proxy-client-cert", &own, "--proxy-client-key", &own_key];
    let done = run(dir.path(), &[&job[..], &identity].concat());
    assert_eq!(done.code, Some(0), "{done:?}");
    let alone = run(dir.path(), &[&job[..], &identity[..2]].concat());
    assert!(alone.code == Some(2) && alone.stderr.contains("--proxy-client-key"), "{alone:?}");
}

/// Returns the warnings of a proxy at this address about plain text.
fn warnings(dir: &Path, listen: &str) -> usize {
    let log = dir.join("log");
    let args = ["proxy", "--upstream", "http://127.0.0.1:9", "--listen", listen, "--admin", "127.0.0.1:0"];
    let mut proxy = Running::logging_to(&mut rolltap(dir, &args), std::fs::File::create(&log).unwrap());
    let (_agents, admin) = (proxy.next_url(), proxy.next_url());
    until("the proxy is healthy", || run(dir, &["health", &admin]).code == Some(0));
    std::fs::read_to_string(log).unwrap().matches("cross the network in plain text").count()
}

#[test]
fn a_plane_in_plain_text_that_others_reach_warns_once() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(warnings(dir.path(), "127.0.0.1:0"), 0);
    assert_eq!(warnings(dir.path(), "0.0.0.0:0"), 1);
}

#[test]
fn a_job_whose_agents_reach_it_in_plain_text_warns_once() {
    let dir = tempfile::tempdir().unwrap();
    let task = task(dir.path(), "hello", "echo 1 > /logs/verifier/reward.txt");
    // An address of documentation. A dry run does not listen.
    for (listen, url, expected) in [
        ("203.0.113.1:7070", "http://rolltap.test:7070", 1),
        ("203.0.113.1:7070", "https://rolltap.test", 0),
        ("127.0.0.1:7070", "http://rolltap.test:7070", 0),
    ] {
        let plan = ["run", "-p", task.to_str().unwrap(), "-a", "nop", "-e", "local", "--dry-run"];
        let reach = ["--upstream", "http://127.0.0.1:9", "--listen", listen, "--public-url", url];
        let ended = run(dir.path(), &[&plan[..], &reach].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let warnings = ended.stderr.matches("cross the network in plain text").count();
        assert_eq!(warnings, expected, "{listen} {url}: {}", ended.stderr);
    }
}
