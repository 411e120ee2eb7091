//! The pages of `rolltap proxy` in its admin plane: who gets them.

use std::path::Path;

use reqwest::header::{CONTENT_SECURITY_POLICY, HOST, LOCATION, ORIGIN, WWW_AUTHENTICATE};
use serde_json::json;

use super::program::{Running, rolltap, run};

/// Starts a proxy with these further arguments. Returns the addresses of its admin plane and of its pages.
fn proxy(dir: &Path, more: &[&str]) -> (Running, String, String) {
    let args =
        ["proxy", "--upstream", "http://127.0.0.1:1", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let mut proxy = Running::spawn(rolltap(dir, &args).args(more));
    let (_agents, admin, pages) = (proxy.next_url(), proxy.next_url(), proxy.next_url());
    assert_eq!(pages, format!("{admin}/ui"));
    (proxy, admin, pages)
}

/// Makes a token with this role in `tokens.toml`.
fn token(dir: &Path, role: &str) -> String {
    let ended = run(dir, &["admin-token", "--file", "tokens.toml", "--name", role, "--role", role]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.stdout.trim_end().to_owned()
}

#[tokio::test]
async fn without_a_token_programs_of_this_machine_get_the_pages() {
    let dir = tempfile::tempdir().unwrap();
    let (_proxy, admin, pages) = proxy(dir.path(), &[]);
    let http = rolltap_testing::http_client();
    let empty = http.get(format!("{pages}/jobs/rolltap-data")).send().await.unwrap().text().await.unwrap();
    assert!(empty.contains("no trials yet") && !empty.contains("is gone"), "{empty}");
    let opened = http.post(format!("{admin}/v1/trials")).json(&json!({"task_id": "t"})).send().await.unwrap();
    assert_eq!(opened.status(), 201);
    let trial = opened.json::<serde_json::Value>().await.unwrap()["trial_id"].as_str().unwrap().to_owned();
    for (address, expected) in [
        (pages.clone(), "/ui/jobs/rolltap-data\""),
        (format!("{pages}/"), "/ui/jobs/rolltap-data\""),
        (format!("{pages}/jobs/rolltap-data"), trial.as_str()),
        (format!("{pages}/jobs/rolltap-data/trials/{trial}"), "No token of this trial was sampled"),
    ] {
        let answer = http.get(&address).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{address}");
        assert!(
            answer.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap().starts_with("default-src 'none'")
        );
        let text = answer.text().await.unwrap();
        assert!(text.contains(expected), "{address}: {text}");
        assert!(!text.contains("=\"/jobs") && !text.contains("=\"/assets"), "{text}");
    }
    let missing = http.get(format!("{pages}/nothing")).send().await.unwrap();
    assert_eq!((missing.status().as_u16(), missing.headers().contains_key(LOCATION)), (404, false));
    // Other web pages, and names that were rebound to this machine.
    for (name, value) in [(ORIGIN, "http://evil.example"), (HOST, "evil.example")] {
        let answer = http.get(&pages).header(name, value).send().await.unwrap();
        assert_eq!(answer.status(), 403, "{value}");
        assert!(!answer.headers().contains_key(WWW_AUTHENTICATE));
    }
}

#[tokio::test]
async fn with_tokens_a_browser_sends_one_of_the_role_read_as_its_password() {
    let dir = tempfile::tempdir().unwrap();
    let (reader, opener) = (token(dir.path(), "read"), token(dir.path(), "open"));
    let (_proxy, admin, pages) =
        proxy(dir.path(), &["--admin-tokens", "tokens.toml", "--audit-log", "audit"]);
    let http = rolltap_testing::http_client();
    let first = http.get(&pages).send().await.unwrap();
    assert_eq!(first.status(), 401);
    assert!(first.headers()[WWW_AUTHENTICATE].to_str().unwrap().starts_with("Basic realm="));
    let asset = http.get(format!("{pages}/assets/0/style.css")).send().await.unwrap();
    assert_eq!(asset.status(), 401);
    let log = || std::fs::read_to_string(dir.path().join("audit")).unwrap_or_default();
    assert_eq!(log(), "", "a browser asks without a password first");
    for (password, expected) in [(&reader, 200), (&opener, 403), (&"wrong".to_owned(), 401)] {
        let answer = http.get(&pages).basic_auth("anyone", Some(password)).send().await.unwrap();
        assert_eq!(answer.status(), expected);
        assert_eq!(answer.headers().contains_key(WWW_AUTHENTICATE), expected == 401);
    }
    assert_eq!(http.get(&pages).bearer_auth(&reader).send().await.unwrap().status(), 200);
    // Other routes take no password, because a browser would send it for requests of other web pages.
    let trials = http.get(format!("{admin}/v1/trials")).basic_auth("anyone", Some(&reader));
    assert_eq!(trials.send().await.unwrap().status(), 401);
    rolltap_testing::eventually("both denials are in the audit log", async || {
        log().matches("\"route\":\"/ui\"").count() == 2
    })
    .await;
}

#[tokio::test]
async fn a_page_that_follows_a_job_ends_with_the_proxy() {
    let dir = tempfile::tempdir().unwrap();
    let (proxy, _, pages) = proxy(dir.path(), &[]);
    let http = rolltap_testing::http_client();
    let mut stream = http.get(format!("{pages}/jobs/rolltap-data/changes")).send().await.unwrap();
    assert!(stream.chunk().await.unwrap().is_some_and(|event| event.starts_with(b"event: change")));
    proxy.signal("TERM");
    while stream.chunk().await.unwrap().is_some() {}
    let (code, stderr) = proxy.wait(rolltap_testing::limit(60));
    assert_eq!(code, Some(0), "{stderr}");
    assert!(!stderr.contains("cut off"), "{stderr}");
}
