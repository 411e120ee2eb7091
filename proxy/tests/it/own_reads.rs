//! Runners that read the calls and answers of a trial with the key of that trial.

use reqwest::header::AUTHORIZATION;
use rolltap_proxy::api::TrialOpened;
use rolltap_proxy::{AdminRole, NewAdminToken};
use rolltap_testing::eventually;
use serde_json::{Value, json};

use crate::admin_tokens::{Guarded, token};
use crate::harness::request;

/// The reads that the key of a trial permits.
const OWN: [&str; 3] = ["calls", "calls?messages=true", "answers"];

/// Returns a token of a worker, which opens and rewards trials and reads nothing.
fn worker() -> NewAdminToken {
    token("worker", &[AdminRole::Open, AdminRole::Reward], None)
}

/// Opens a trial with this name, and makes a call as its agent.
async fn with_a_call(proxy: &Guarded, worker: &NewAdminToken, name: &str) -> TrialOpened {
    let body = json!({"task_id": "t", "trial_id": name});
    let (status, opened) = proxy.ask(worker.reveal(), "POST", "/v1/trials", Some(body)).await;
    assert_eq!(status, 201, "{opened}");
    let opened = serde_json::from_str(&opened).unwrap();
    assert_eq!(proxy.stage.chat(&opened, &request(json!({}))).await.status(), 200);
    opened
}

/// Reads the calls and the answers of a trial with this key or token. Returns the statuses.
async fn read(proxy: &Guarded, key: &str, trial: &str) -> Vec<u16> {
    let mut statuses = Vec::new();
    for what in OWN {
        let (status, body) = proxy.ask(key, "GET", &format!("/v1/trials/{trial}/{what}"), None).await;
        assert_eq!(body.lines().count(), 1, "the one call, its answer, or the error: {body}");
        statuses.push(status);
    }
    statuses
}

#[tokio::test]
async fn the_key_of_a_trial_reads_its_calls_and_answers_and_no_others() {
    let worker = worker();
    let proxy = Guarded::start(&[&worker], |_| {}).await;
    let (own, other) =
        (with_a_call(&proxy, &worker, "own").await, with_a_call(&proxy, &worker, "other").await);
    assert_eq!(read(&proxy, worker.reveal(), "own").await, [403; 3]);
    assert_eq!(read(&proxy, &own.key, "own").await, [200; 3]);
    // A trial that does not exist has the same answer as another trial.
    for trial in ["other", "nobody", "OWN", "own%20", "%6Fther"] {
        assert_eq!(read(&proxy, &own.key, trial).await, [403; 3], "{trial}");
    }
    assert_eq!(read(&proxy, &other.key, "own").await, [403; 3]);
    let (_, body) = proxy.ask(&own.key, "GET", "/v1/trials/other/calls", None).await;
    assert!(body.contains("needs the role read") && body.contains(r#""type":"forbidden""#), "{body}");
    // The path is decoded before it is compared.
    assert_eq!(read(&proxy, &own.key, "%6Fwn").await, [200; 3]);
}

#[tokio::test]
async fn the_key_of_a_trial_permits_no_other_request() {
    let worker = worker();
    let proxy = Guarded::start(&[&worker], |_| {}).await;
    let own = with_a_call(&proxy, &worker, "own").await;
    let permitted = ["/v1/trials/{id}/calls", "/v1/trials/{id}/answers"];
    let document = rolltap_proxy::openapi();
    let mut refused = 0;
    for (route, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let admits_key = operation["security"].as_array().unwrap().contains(&json!({"trialKey": []}));
            assert_eq!(
                admits_key,
                method == "get" && permitted.contains(&route.as_str()),
                "{method} {route}"
            );
            let is_open = operation["security"] == json!([]);
            let path = route.replace("{id}", "own");
            let (status, body) = proxy.ask(&own.key, &method.to_uppercase(), &path, None).await;
            match is_open || admits_key {
                true => assert_eq!(status, 200, "{method} {path}: {body}"),
                false => assert_eq!(status, 403, "{method} {path}: {body}"),
            }
            refused += usize::from(status == 403);
        }
    }
    assert!(refused > 15, "{refused} routes");
    assert_eq!(proxy.ask(worker.reveal(), "POST", "/v1/trials/own/seal", None).await.0, 200);
    assert_eq!(proxy.ask(&own.key, "GET", "/v1/trials/own/rollout", None).await.0, 403);
}

#[tokio::test]
async fn only_a_whole_key_as_a_bearer_token_is_taken_for_a_key() {
    let worker = worker();
    let proxy = Guarded::start(&[&worker], |_| {}).await;
    let own = with_a_call(&proxy, &worker, "own").await;
    let unknown = format!("sk-{}", "0".repeat(64));
    let shorter = &own.key[..own.key.len() - 1];
    let without_prefix = own.key.trim_start_matches("sk-");
    let longer = format!("{}0", own.key);
    let mut answers = Vec::new();
    for wrong in ["", "sk-", "guess", shorter, without_prefix, &longer, &unknown, &own.key.to_uppercase()] {
        answers.push(proxy.ask(wrong, "GET", "/v1/trials/own/calls", None).await);
    }
    let url = proxy.stage.admin("/v1/trials/own/calls");
    for (header, value) in [
        ("x-api-key", own.key.clone()),
        ("api-key", own.key.clone()),
        (AUTHORIZATION.as_str(), own.key.clone()),
        (AUTHORIZATION.as_str(), format!("bearer {}", own.key)),
    ] {
        let answer = proxy.stage.http.get(&url).header(header, value).send().await.unwrap();
        answers.push((answer.status().as_u16(), answer.text().await.unwrap()));
    }
    let (status, message) = &answers[0];
    assert!(*status == 401 && message.contains("wants a valid token of --admin-tokens"), "{message}");
    assert!(answers.iter().all(|answer| answer == &answers[0]), "{answers:?}");
}

#[tokio::test]
async fn a_key_reads_its_sealed_trial_also_after_an_eviction_and_a_restart() {
    let worker = worker();
    // A proxy without memory evicts each idle trial.
    let proxy = Guarded::start(&[&worker], |settings| settings.memory = 0).await;
    let own = with_a_call(&proxy, &worker, "own").await;
    let other = with_a_call(&proxy, &worker, "other").await;
    let evicted = async || proxy.metric("rolltap_trials_evicted_total").await >= 2;
    eventually("the trials are evicted", evicted).await;
    assert_eq!(read(&proxy, &own.key, "own").await, [200; 3]);
    assert_eq!(proxy.ask(worker.reveal(), "POST", "/v1/trials/own/seal", None).await.0, 200);
    assert_eq!(read(&proxy, &own.key, "own").await, [200; 3]);

    let proxy = proxy.restarted().await;
    assert_eq!(read(&proxy, &own.key, "own").await, [200; 3]);
    assert_eq!(read(&proxy, &own.key, "other").await, [403; 3]);
    assert_eq!(read(&proxy, &other.key, "other").await, [200; 3]);
}

#[tokio::test]
async fn the_audit_log_names_the_trial_of_a_key() {
    let worker = worker();
    let proxy = Guarded::start(&[&worker], |_| {}).await;
    let own = with_a_call(&proxy, &worker, "own").await;
    with_a_call(&proxy, &worker, "other").await;
    let records = async || {
        let text = std::fs::read_to_string(&proxy.audit).unwrap();
        assert!(!text.contains(&own.key[3..]), "the key is in {text}");
        text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(proxy.ask(&own.key, "GET", "/v1/trials/own/calls", None).await.0, 200);
    let record = records().await.pop().unwrap();
    let expected = json!({"time": record["time"], "token": null, "key_of_trial": "own", "role": "read",
        "method": "GET", "route": "/v1/trials/{id}/calls", "trial_id": "own", "status": 200,
        "source": record["source"]});
    assert_eq!(record, expected);

    assert_eq!(proxy.ask(&own.key, "GET", "/v1/trials/other/calls", None).await.0, 403);
    eventually("the denied request is written", async || records().await.len() == 4).await;
    let record = records().await.pop().unwrap();
    let expected = json!({"time": record["time"], "token": null, "key_of_trial": "own", "role": "read",
        "method": "GET", "route": "/v1/trials/{id}/calls", "trial_id": "other", "status": 403,
        "source": record["source"], "denied": "role"});
    assert_eq!(record, expected);
    assert_eq!(proxy.metric("rolltap_admin_denied_total{cause=\"role\"}").await, 1);
}
