//! Tokens of the admin plane with roles, from a file that changes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use reqwest::Method;
use rolltap_proxy::{AdminRole, NewAdminToken, Settings, StartError, TokenName};
use rolltap_testing::{eventually, limit};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Stage, settings, simulator};

/// Makes a token with these roles.
pub(crate) fn token(name: &str, roles: &[AdminRole], expires: Option<&str>) -> NewAdminToken {
    let (name, roles) = (TokenName::new(name).unwrap(), BTreeSet::from_iter(roles.iter().copied()));
    NewAdminToken::generate(&name, &roles, expires.map(|expires| expires.parse().unwrap())).unwrap()
}

/// Writes a file with these tokens, by replacing it.
fn write(path: &Path, tokens: &[&NewAdminToken]) {
    let text: Vec<_> = tokens.iter().map(|token| token.entry()).collect();
    std::fs::write(path.with_extension("new"), text.join("\n")).unwrap();
    std::fs::rename(path.with_extension("new"), path).unwrap();
}

/// Returns the settings of a proxy with a file of tokens and an audit log.
fn guarded(upstream: &str, data: &TempDir) -> Settings {
    Settings {
        data_dir: data.path().join("data"),
        admin_tokens: Some(data.path().join("tokens.toml")),
        audit_log: Some(data.path().join("audit.jsonl")),
        ..settings(upstream, data)
    }
}

/// A proxy with a file of tokens and an audit log.
pub(crate) struct Guarded {
    pub(crate) stage: Stage,
    pub(crate) tokens: PathBuf,
    pub(crate) audit: PathBuf,
}

impl Guarded {
    pub(crate) async fn start(tokens: &[&NewAdminToken], set: impl FnOnce(&mut Settings)) -> Self {
        let upstream = simulator(None).await;
        let data = tempfile::tempdir().unwrap();
        let (file, audit) = (data.path().join("tokens.toml"), data.path().join("audit.jsonl"));
        write(&file, tokens);
        let mut settings = guarded(&format!("http://{}", upstream.addr()), &data);
        set(&mut settings);
        let proxy = rolltap_proxy::start(settings).await.unwrap();
        Self {
            stage: Stage { upstream, proxy, data, http: rolltap_testing::http_client() },
            tokens: file,
            audit,
        }
    }

    /// Stops the proxy and starts another one with the same captures, tokens and audit log.
    pub(crate) async fn restarted(self) -> Self {
        let Self { stage: Stage { upstream, proxy, data, http }, tokens, audit } = self;
        proxy.shutdown(limit(5)).await.unwrap();
        let settings = guarded(&format!("http://{}", upstream.addr()), &data);
        let proxy = rolltap_proxy::start(settings).await.unwrap();
        Self { stage: Stage { upstream, proxy, data, http }, tokens, audit }
    }

    /// Sends a request with this token. Returns the status and the body of the answer.
    pub(crate) async fn ask(
        &self,
        token: &str,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> (u16, String) {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let request = self.stage.http.request(method, self.stage.admin(path)).bearer_auth(token);
        let request = body.iter().fold(request, |request, body| request.json(body));
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let (_, text) = self.ask("", "GET", "/metrics", None).await;
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map_or(0, |value| value.trim().parse().unwrap())
    }
}

/// The routes of the OpenAPI document: method, path and the role that it lists.
fn routes() -> Vec<(String, String, Option<AdminRole>)> {
    let document = rolltap_proxy::openapi();
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let role = operation["security"][0]["token"][0].as_str();
            let role = role.map(|role| AdminRole::named(role).unwrap());
            all.push((method.to_uppercase(), path.replace("{id}", "7"), role));
        }
    }
    all
}

#[tokio::test]
async fn each_role_permits_its_routes_and_no_other() {
    let tokens = AdminRole::ALL.map(|role| token(role.as_str(), &[role], None));
    let all = token("all", &AdminRole::ALL, None);
    let file: Vec<_> = tokens.iter().chain([&all]).collect();
    let proxy =
        Guarded::start(&file, |settings| settings.admin_token = Some("the-single-token".into())).await;
    let mut guarded = 0;
    for (method, path, needed) in routes() {
        let Some(needed) = needed else {
            assert_eq!(proxy.ask("nobody's", &method, &path, None).await.0, 200, "{method} {path}");
            continue;
        };
        guarded += 1;
        for (role, token) in AdminRole::ALL.into_iter().zip(&tokens) {
            // A request without a body or for an unknown trial fails only behind the guard.
            let (status, body) = proxy.ask(token.reveal(), &method, &path, None).await;
            if role == needed {
                assert!(!matches!(status, 401 | 403), "{role}: {method} {path} is {status}: {body}");
            } else {
                assert_eq!(status, 403, "{role}: {method} {path}: {body}");
                let message = format!("needs the role {needed}, and the token {role} has only {role}");
                // An answer to HEAD has no body.
                let is_said = body.contains(&message) && body.contains(r#""type":"forbidden""#);
                assert!(is_said || method == "HEAD", "{body}");
            }
        }
        for whole in [all.reveal(), "the-single-token"] {
            let (status, body) = proxy.ask(whole, &method, &path, None).await;
            assert!(!matches!(status, 401 | 403), "{method} {path} is {status}: {body}");
        }
    }
    assert!(guarded > 15, "{guarded} routes");
}

#[tokio::test]
async fn a_wrong_an_expired_and_a_missing_token_get_the_same_answer() {
    let (valid, expired) =
        (token("a", &AdminRole::ALL, None), token("b", &AdminRole::ALL, Some("2020-01-01T00:00:00Z")));
    let proxy = Guarded::start(&[&valid, &expired], |_| {}).await;
    let near = valid.reveal().replace(&valid.reveal()[20..21], "_");
    let mut answers = Vec::new();
    for sent in [expired.reveal(), &near, "", "x", valid.reveal().trim_start_matches("rolltap-admin-")] {
        answers.push(proxy.ask(sent, "GET", "/v1/trials", None).await);
    }
    // The hash in the file is no token.
    let hash = valid.entry().split('"').nth(7).unwrap();
    answers.push(proxy.ask(hash, "GET", "/v1/trials", None).await);
    let without = proxy.stage.http.get(proxy.stage.admin("/v1/trials")).send().await.unwrap();
    answers.push((without.status().as_u16(), without.text().await.unwrap()));
    assert!(answers.iter().all(|answer| answer == &answers[0]), "{answers:?}");
    assert_eq!(answers[0].0, 401);
    assert!(
        answers[0].1.contains("wants a valid token of --admin-tokens as Authorization: Bearer TOKEN"),
        "{answers:?}"
    );
    assert_eq!(proxy.ask(valid.reveal(), "GET", "/v1/trials", None).await.0, 200);
    assert_eq!(proxy.metric("rolltap_admin_denied_total{cause=\"token\"}").await, 7);
}

#[tokio::test]
async fn a_changed_file_counts_without_a_restart_and_a_broken_one_changes_nothing() {
    let (old, new) = (token("old", &[AdminRole::Read], None), token("new", &[AdminRole::Read], None));
    let proxy = Guarded::start(&[&old], |_| {}).await;
    let permits =
        async |token: &NewAdminToken| proxy.ask(token.reveal(), "GET", "/v1/trials", None).await.0 == 200;
    assert_eq!((permits(&old).await, permits(&new).await), (true, false));
    write(&proxy.tokens, &[&old, &new]);
    eventually("the new token is valid", async || permits(&new).await).await;
    write(&proxy.tokens, &[&new]);
    eventually("the old token is revoked", async || !permits(&old).await).await;

    // Half of a file, then none.
    std::fs::write(&proxy.tokens, &old.entry()[..old.entry().len() / 2]).unwrap();
    let is_stale = async || proxy.metric("rolltap_admin_tokens_stale").await == 1;
    eventually("the metric shows the broken file", is_stale).await;
    assert_eq!((permits(&old).await, permits(&new).await), (false, true));
    std::fs::remove_file(&proxy.tokens).unwrap();
    old.append_to(&proxy.tokens).unwrap();
    eventually("the file is used again", async || permits(&old).await).await;
    assert_eq!((permits(&new).await, is_stale().await), (false, false));
}

#[tokio::test]
async fn a_proxy_starts_with_a_usable_file_alone_also_off_loopback() {
    let upstream = simulator(None).await;
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("tokens.toml");
    let everywhere = Settings {
        admin: ([0, 0, 0, 0], 0).into(),
        admin_tokens: Some(file.clone()),
        ..settings(&format!("http://{}", upstream.addr()), &data)
    };
    for (text, expected) in [(None, "No such file"), (Some("\n[[token]]\nname = 1"), "tokens.toml: line 3: ")]
    {
        if let Some(text) = text {
            std::fs::write(&file, text).unwrap();
        }
        let error = rolltap_proxy::start(everywhere.clone()).await.unwrap_err();
        assert!(
            matches!(error, StartError::AdminTokens(_)) && error.to_string().contains(expected),
            "{error}"
        );
    }
    let token = token("a", &[AdminRole::Read], None);
    write(&file, &[&token]);
    let proxy = rolltap_proxy::start(everywhere.clone()).await.unwrap();
    let url = format!("http://127.0.0.1:{}/v1/trials", proxy.admin_addr().port());
    let answer = rolltap_testing::http_client().get(url).bearer_auth(token.reveal()).send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);

    let no_log = Settings { audit_log: Some(data.path().join("nowhere/audit")), ..everywhere };
    let error = rolltap_proxy::start(no_log).await.unwrap_err();
    assert!(error.to_string().contains("nowhere/audit: No such file"), "{error}");
}

#[tokio::test]
async fn a_token_that_opens_and_rewards_runs_a_trial_and_changes_no_policy() {
    let runner = token("runner", &[AdminRole::Open, AdminRole::Reward, AdminRole::Read], None);
    let proxy = Guarded::start(&[&runner], |_| {}).await;
    let ask = async |method: &str, path: &str, body| proxy.ask(runner.reveal(), method, path, body).await.0;
    assert_eq!(ask("POST", "/v1/trials", Some(json!({"task_id": "t", "trial_id": "a"}))).await, 201);
    assert_eq!(ask("POST", "/v1/trials/a/seal", None).await, 200);
    assert_eq!(ask("PUT", "/v1/trials/a/reward", Some(json!({"rewards": {"reward": 1.0}}))).await, 200);
    assert_eq!(ask("GET", "/v1/rollouts", None).await, 200);
    assert_eq!(ask("POST", "/v1/policy", Some(json!({"version": "x"}))).await, 403);
    assert_eq!(ask("POST", "/v1/upstreams", Some(json!({"url": "http://127.0.0.1:1"}))).await, 403);
}
