//! Secrets that pass through a proxy with the most detailed log: no secret is in the log or in the captures.

use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use rolltap_testing::limit;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::collector::Collector;
use super::program::{Running, rolltap};

const UPSTREAM_KEY: &str = "the-key-of-the-upstream";
const ADMIN_TOKEN: &str = "the-token-of-the-admin-plane";
const COLLECTOR_KEY: &str = "the-key-of-the-collector";
/// The first bytes of a zstd frame.
const FRAME: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const DICTIONARY: &[u8] = include_bytes!("../../proxy/src/store/format/dictionary.txt");

/// Starts a server that repeats secrets in its errors, in each of the ways that servers do.
async fn indiscreet() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let tell = async |headers: HeaderMap, body: String| {
        let authorization =
            headers.get("authorization").map(|value| value.to_str().unwrap()).unwrap_or_default();
        let message = format!(
            "refused {authorization}\nFORGED LINE\\x1b[31m; Cookie: session=crumbs\\nX-Company-Token: company-secret; \
             hf_abcdefghijklmnopqrstuvwxyz; body {body}"
        );
        (StatusCode::UNAUTHORIZED, json!({"error": {"message": message, "code": 401}}).to_string())
    };
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(tell)).await });
    url
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

async fn post(url: &str, headers: &[(&str, &str)], body: &Value) -> String {
    let call = headers
        .iter()
        .fold(rolltap_testing::http_client().post(url), |call, (name, value)| call.header(*name, *value));
    call.json(body).send().await.unwrap().text().await.unwrap()
}

/// Returns the compressed parts of captures. No record of a short trial needs more than the base dictionary.
fn decompressed(captures: &[u8]) -> String {
    let mut out = Vec::new();
    for start in memchr::memmem::find_iter(captures, &FRAME) {
        let frame = zstd::Decoder::with_dictionary(&captures[start..], DICTIONARY).unwrap();
        frame.single_frame().read_to_end(&mut out).unwrap();
    }
    String::from_utf8_lossy(&out).into_owned()
}

// The collector runs while the test waits for the proxy.
#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_in_the_log_or_in_the_captures_and_no_other_user_can_read_them() {
    no_secret_is_disclosed("text").await;
}

// The collector runs while the test waits for the proxy.
#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_in_a_log_of_json_or_in_the_spans() {
    let log = no_secret_is_disclosed("json").await;
    for line in log.lines() {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for field in ["timestamp", "level", "target"] {
            assert!(event[field].is_string(), "{field} in {line}");
        }
    }
    assert!(log.contains("\"level\":\"WARN\""), "{log}");
}

/// Sends secrets in all the ways that agents and servers do. Returns the log, which has this format.
async fn no_secret_is_disclosed(format: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let token_file = dir.path().join("token");
    fs::write(&token_file, ADMIN_TOKEN).unwrap();
    fs::set_permissions(&token_file, Permissions::from_mode(0o644)).unwrap();
    let config =
        "redact = { headers = [\"X-Company-Token\"], patterns = ['hf_[a-z]{20,}'] }\nupstream_api_key = ";
    fs::write(dir.path().join("proxy.toml"), format!("{config}{UPSTREAM_KEY:?}")).unwrap();
    let log_path = dir.path().join("log");
    let upstream = indiscreet().await;
    let args = ["proxy", "--config", "proxy.toml", "--upstream", &upstream, "--listen", "127.0.0.1:0"];
    let mut command =
        rolltap(dir.path(), &[&args[..], &["--admin", "127.0.0.1:0", "--data", "d/data"]].concat());
    let collector = Collector::answering(StatusCode::OK).await;
    command.args(["--admin-token-file", "token", "--log-format", format, "--otlp-endpoint", &collector.url]);
    command.env("ROLLTAP_LOG", "trace").env("OTEL_EXPORTER_OTLP_HEADERS", format!("x-key={COLLECTOR_KEY}"));
    let mut proxy = Running::logging_to(&mut command, File::create(&log_path).unwrap());
    let (agents, admin) = (proxy.next_url(), proxy.next_url());

    let bearer = format!("Bearer {ADMIN_TOKEN}");
    let opened =
        post(&format!("{admin}/v1/trials"), &[("authorization", &bearer)], &json!({"task_id": "t"})).await;
    let trial: Value = serde_json::from_str(&opened).unwrap();
    let key = trial["key"].as_str().unwrap();
    let messages = json!([{"role": "user", "content": "Hello"}]);
    let mut told = Vec::new();
    for (path, body) in [
        ("/v1/chat/completions", json!({"model": key, "messages": messages})),
        ("/v1/completions", json!({"prompt": "Hello", "stream": true})),
        ("/v1/responses", json!({"model": "m", "input": "Hello"})),
        ("/v1/messages", json!({"model": "m", "max_tokens": 9, "messages": messages})),
        ("/v1/messages/count_tokens", json!({"model": "m", "messages": messages})),
        (
            "/v1beta/models/m:generateContent",
            json!({"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}),
        ),
        ("/v1/nowhere", json!({})),
        ("/v1/chat/completions", json!([])),
    ] {
        let headers = [("authorization", "Bearer sk-of-somebody-else"), ("cookie", "session=crumbs")];
        told.push(post(&format!("{agents}/t/{key}{path}"), &headers, &body).await);
        told.push(post(&format!("{agents}/T/{key}{path}"), &[("x-api-key", key)], &body).await);
    }
    proxy.signal("TERM");
    assert_eq!(proxy.wait(limit(20)).0, Some(0));

    let log = fs::read_to_string(&log_path).unwrap();
    assert!(log.contains("token file token can be read by every user"), "{log}");
    assert!(log.lines().all(|line| !line.starts_with("FORGED")), "{log}");
    let exports = collector.exports();
    assert!(exports.iter().all(|export| export.headers["x-key"] == COLLECTOR_KEY));
    assert!(collector.spans().len() > 8, "the calls have no spans");
    let spans: String =
        exports.iter().map(|export| String::from_utf8_lossy(&export.body).into_owned()).collect();
    assert!(!spans.contains("Hello"), "a prompt is in a span: {spans}");
    let data = dir.path().join("d/data");
    assert_eq!(mode(&data), 0o700);
    let mut kept = Vec::new();
    for file in fs::read_dir(&data).unwrap() {
        let path = file.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
        kept.extend(fs::read(path).unwrap());
    }
    let decompressed = decompressed(&kept);
    assert!(decompressed.contains("Hello"), "the requests are not in the captures: {decompressed}");
    let kept = String::from_utf8_lossy(&kept) + &*decompressed;
    let hash_of_key = key.strip_prefix("sk-").unwrap();
    for secret in [
        UPSTREAM_KEY,
        ADMIN_TOKEN,
        COLLECTOR_KEY,
        hash_of_key,
        "session=crumbs",
        "company-secret",
        "hf_abcdef",
        "sk-of-somebody-else",
    ] {
        assert!(!log.contains(secret), "{secret} is in the log: {log}");
        assert!(!kept.contains(secret), "{secret} is in the captures");
        assert!(!spans.contains(secret), "{secret} is in a span");
        // The agent knows its own key, but other readers of the text must not see it.
        assert!(told.iter().all(|text| !text.contains(secret)), "{secret} was disclosed: {told:?}");
    }
    log
}
