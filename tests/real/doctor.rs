//! `rolltap doctor` on real vLLM, on vLLM behind nginx with TLS, and on vLLM behind vLLM's own router.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use rolltap_testing::{TestAuthority, eventually, free_port, get};
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{bare_vllm, testbed, vllm};

/// Runs the command. Returns its exit code and its report.
async fn doctor(args: &[&str]) -> (Option<i32>, Value) {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_rolltap"));
    let output = command.arg("doctor").args(args).arg("--json").kill_on_drop(true).output().await.unwrap();
    let report = serde_json::from_slice(&output.stdout);
    let report =
        report.unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code(), report)
}

/// Returns the verdict of a check, and the whole finding as text.
fn verdict(report: &Value, check: &str) -> (String, String) {
    let findings = report["findings"].as_array().unwrap();
    let found = findings.iter().find(|finding| finding["check"] == check);
    let found = found.unwrap_or_else(|| panic!("no check {check:?} in {report:#}"));
    (found["verdict"].as_str().unwrap().to_owned(), found.to_string())
}

/// Asserts that captures are complete.
fn assert_captured(report: &Value) {
    let checks =
        ["prompt ids", "sampled ids", "logprobs", "completions", "responses", "messages", "generateContent"];
    for check in checks.into_iter().chain(["tools", "n = 2", "long prompt", "version", "metrics"]) {
        let (verdict, text) = verdict(report, check);
        assert_eq!(verdict, "ok", "{text}");
    }
}

#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn nothing_is_broken_at_vllm_itself() {
    let (code, report) = doctor(&["--upstream", &vllm()]).await;
    assert_eq!(code, Some(0), "{report:#}");
    assert_captured(&report);
    assert!(verdict(&report, "version").1.contains("vLLM 0."), "{report:#}");
    // Whether the second turn is spliced depends on the template of the model: it removes earlier reasoning.
    assert_ne!(verdict(&report, "second turn").0, "broken", "{report:#}");
}

#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn the_given_tokenizer_renders_the_second_turn() {
    let (own, other) = (testbed("ROLLTAP_TESTBED_MODEL"), testbed("ROLLTAP_TESTBED_LONG_MODEL"));
    let (code, report) = doctor(&["--upstream", &bare_vllm(), "--tokenizer", &own]).await;
    assert_eq!(code, Some(0), "{report:#}");
    let (verdict_of_own, text) = verdict(&report, "second turn");
    assert_eq!(verdict_of_own, "ok", "{text}");
    // The tokenizer of another model renders other ids, so the prompt of the second turn is not proven.
    let (code, report) = doctor(&["--upstream", &bare_vllm(), "--tokenizer", &other]).await;
    assert_eq!(code, Some(0), "{report:#}");
    let (verdict_of_other, text) = verdict(&report, "second turn");
    assert_eq!(verdict_of_other, "degraded", "{text}");
    assert!(text.contains("--tokenizer"), "{text}");
    let (verdict_of_rendering, text) = verdict(&report, "rendering");
    assert!(verdict_of_rendering == "degraded" && text.contains("--chat-template"), "{text}");
}

#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn a_rendering_that_differs_beside_a_spliced_second_turn_is_found() {
    let own = testbed("ROLLTAP_TESTBED_MODEL");
    let template = std::fs::read_to_string(Path::new(&own).join("chat_template.jinja")).unwrap();
    let dir = TempDir::new().unwrap();
    let other = dir.path().join("other.jinja");
    // Only the long prompt is rendered otherwise.
    let condition = "{% if messages[0].content|length > 1000 %}Long{% endif %}";
    std::fs::write(&other, format!("{condition}{template}")).unwrap();
    let other = ["--upstream", &bare_vllm(), "--tokenizer", &own, "--chat-template", other.to_str().unwrap()];
    let (code, report) = doctor(&other).await;
    assert_eq!((code, verdict(&report, "second turn").0.as_str()), (Some(0), "ok"), "{report:#}");
    let (verdict, text) = verdict(&report, "rendering");
    assert!(verdict == "degraded" && text.contains("assistant, user"), "{text}");
}

/// A program in front of a server. It ends with the value.
struct Gateway(Child);

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Gateway {
    /// Starts vLLM's router.
    async fn router(upstream: &str, port: u16) -> Self {
        let mut command = Command::new(testbed("ROLLTAP_TESTBED_ROUTER"));
        let ports = [port, free_port()].map(|port| port.to_string());
        command.args(["--worker-urls", upstream, "--port", &ports[0], "--prometheus-port", &ports[1]]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let router = Self(command.spawn().unwrap());
        let url = format!("http://127.0.0.1:{port}/health");
        let answers = async || get(&url).await.is_ok_and(|answer| answer.status().is_success());
        eventually("the router answers", answers).await;
        router
    }

    /// Starts nginx with TLS. `extra` has directives of the location.
    async fn nginx(dir: &Path, upstream: &str, port: u16, extra: &str) -> Self {
        let at = dir.display();
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {at}/{name};"))
            .concat();
        let config = format!(
            "daemon off; master_process off; pid {at}/pid; error_log {at}/error.log; events {{}}
             http {{ access_log off; {temporary}
               server {{ listen 127.0.0.1:{port} ssl; ssl_certificate {at}/tls.crt; ssl_certificate_key {at}/tls.key;
                 location / {{ proxy_pass {upstream}; proxy_http_version 1.1; proxy_set_header Connection \"\"; {extra} }} }} }}"
        );
        std::fs::write(dir.join("nginx.conf"), config).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-c").arg(dir.join("nginx.conf")).arg("-e").arg(dir.join("start.log"));
        let nginx = Self(command.stdin(Stdio::null()).spawn().unwrap());
        let address = ("127.0.0.1", port);
        eventually("nginx listens", async || tokio::net::TcpStream::connect(address).await.is_ok()).await;
        nginx
    }
}

#[tokio::test]
#[ignore = "needs vLLM and nginx: run ./scripts/test"]
async fn a_gateway_that_collects_events_and_refuses_long_prompts_is_found() {
    let (dir, authority) = (TempDir::new().unwrap(), TestAuthority::default());
    let [certificate, key] = authority.certificate("127.0.0.1").pem();
    std::fs::write(dir.path().join("tls.crt"), certificate).unwrap();
    std::fs::write(dir.path().join("tls.key"), key).unwrap();
    let (bad, good) = (free_port(), free_port());
    let buffered = "proxy_buffering on; client_max_body_size 3k;";
    let _bad = Gateway::nginx(dir.path(), &vllm(), bad, buffered).await;
    let (ca, url) = (authority.file(), format!("https://127.0.0.1:{bad}"));
    let ca = ca.path().to_str().unwrap();
    let (code, report) = doctor(&["--upstream", &url, "--upstream-ca", ca]).await;
    assert_eq!(code, Some(1), "{report:#}");
    let (collected, text) = verdict(&report, "stream");
    assert!(collected == "degraded" && text.contains("proxy_buffering off"), "{text}");
    let (refused, text) = verdict(&report, "long prompt");
    assert!(refused == "broken" && text.contains("client_max_body_size"), "{text}");
    assert!(verdict(&report, "router").1.contains("nginx"), "{report:#}");

    let (code, report) = doctor(&["--upstream", &url]).await;
    assert_eq!(code, Some(1), "{report:#}");
    assert!(verdict(&report, "reachable").1.contains("--upstream-ca"), "{report:#}");

    let dir = dir.path().join("good");
    std::fs::create_dir(&dir).unwrap();
    for file in ["tls.crt", "tls.key"] {
        std::fs::copy(dir.join("..").join(file), dir.join(file)).unwrap();
    }
    let _good = Gateway::nginx(&dir, &vllm(), good, "proxy_buffering off; client_max_body_size 0;").await;
    let url = format!("https://127.0.0.1:{good}");
    let (code, report) = doctor(&["--upstream", &url, "--upstream-ca", ca]).await;
    assert_eq!(code, Some(0), "{report:#}");
    assert_captured(&report);
}

#[tokio::test]
#[ignore = "needs vLLM and its router: run ./scripts/test"]
async fn vllms_own_router_is_named_and_passes_ids_on() {
    let port = free_port();
    let _router = Gateway::router(&vllm(), port).await;
    let (code, report) = doctor(&["--upstream", &format!("http://127.0.0.1:{port}")]).await;
    assert_eq!(code, Some(0), "{report:#}");
    for check in ["prompt ids", "sampled ids", "logprobs", "stream", "responses", "n = 2", "long prompt"] {
        let (verdict, text) = verdict(&report, check);
        assert_eq!(verdict, "ok", "{text}");
    }
    assert!(verdict(&report, "router").1.contains("access-control-allow-origin"), "{report:#}");
}
