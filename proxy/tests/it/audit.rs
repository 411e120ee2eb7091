//! The audit log of the admin plane.

use std::collections::BTreeSet;
use std::path::Path;

use rolltap_proxy::{AdminRole, NewAdminToken, TokenName};
use rolltap_testing::eventually;
use serde_json::{Value, json};

use crate::admin_tokens::Guarded;

fn token(name: &str, roles: &[AdminRole]) -> NewAdminToken {
    let (name, roles) = (TokenName::new(name).unwrap(), BTreeSet::from_iter(roles.iter().copied()));
    NewAdminToken::generate(&name, &roles, None).unwrap()
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn actions_are_in_the_log_before_their_answer_and_secrets_are_not() {
    let all = token("all", &AdminRole::ALL);
    let proxy = Guarded::start(&[&all], |_| {}).await;
    let ask = async |method: &str, path: &str, body| {
        let (status, text) = proxy.ask(all.reveal(), method, path, body).await;
        // The record is there as soon as the answer is.
        (status, text, lines(&proxy.audit).pop())
    };
    let open =
        json!({"task_id": "t", "trial_id": "a", "group_id": "g/1", "metadata": {"secret": "of-the-body"}});
    let (_, opened, record) = ask("POST", "/v1/trials", Some(open.clone())).await;
    let record = record.unwrap();
    let source = record["source"].as_str().unwrap().parse::<std::net::SocketAddr>().unwrap();
    let time = record["time"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert!(source.ip().is_loopback() && time.duration_since(jiff::Timestamp::now()).as_secs().abs() < 3600);
    let expected = json!({"time": record["time"], "token": "all", "role": "open", "method": "POST",
        "route": "/v1/trials", "trial_id": "a", "group_id": "g/1", "status": 201, "source": record["source"]});
    assert_eq!(record, expected);

    let mut expected = vec![expected];
    for (method, path, body, fields) in [
        ("POST", "/v1/trials", Some(open), json!({"route": "/v1/trials", "status": 409})),
        (
            "POST",
            "/v1/trials/a/seal",
            None,
            json!({"route": "/v1/trials/{id}/seal", "trial_id": "a", "status": 200}),
        ),
        (
            "PUT",
            "/v1/trials/a/reward",
            Some(json!({"rewards": {"named-reward": 0.125}})),
            json!({"route": "/v1/trials/{id}/reward", "trial_id": "a", "status": 200}),
        ),
        ("GET", "/v1/rollouts", None, json!({"route": "/v1/rollouts", "status": 200})),
        (
            "GET",
            "/v1/trials/a/calls",
            None,
            json!({"route": "/v1/trials/{id}/calls", "trial_id": "a", "status": 200}),
        ),
        (
            "POST",
            "/v1/groups/g%2F1/close",
            None,
            json!({"route": "/v1/groups/{id}/close", "group_id": "g/1", "status": 200}),
        ),
        (
            "POST",
            "/v1/upstreams",
            Some(json!({"url": "http://127.0.0.1:1", "api_key": "key-of-the-upstream"})),
            json!({"route": "/v1/upstreams", "upstream_id": 1, "status": 201}),
        ),
        ("POST", "/v1/trials/no%0Aname/seal", None, json!({"route": "/v1/trials/{id}/seal", "status": 400})),
    ] {
        let (status, answer, record) = ask(method, path, body).await;
        let record = record.unwrap();
        assert_eq!(record["status"], status, "{answer}");
        for (name, value) in fields.as_object().unwrap() {
            assert_eq!(&record[name], value, "{name} of {record}");
        }
        expected.push(record);
    }
    // Reads of a status are not recorded.
    for path in ["/v1/trials", "/v1/trials/a", "/v1/policy", "/healthz"] {
        ask("GET", path, None).await;
    }
    assert_eq!(lines(&proxy.audit), expected);
    let text = std::fs::read_to_string(&proxy.audit).unwrap();
    let key = serde_json::from_str::<Value>(&opened).unwrap()["key"].as_str().unwrap().to_owned();
    for secret in [all.reveal(), &key, "of-the-body", "0.125", "named-reward", "key-of-the-upstream"] {
        assert!(!text.contains(secret), "{secret} is in {text}");
    }
}

#[tokio::test]
async fn denied_requests_are_in_the_log_within_bounds() {
    let reader = token("reader", &[AdminRole::Read]);
    let proxy = Guarded::start(&[&reader], |_| {}).await;
    assert_eq!(proxy.ask(reader.reveal(), "POST", "/v1/policy/pause", None).await.0, 403);
    for _ in 0..100 {
        assert_eq!(proxy.ask("guess", "GET", "/v1/trials/a", None).await.0, 401);
    }
    eventually("the first are written", async || lines(&proxy.audit).len() >= 20).await;
    let written = lines(&proxy.audit);
    assert!(written.len() < 101, "{} lines", written.len());
    let facts = |line: &Value| {
        ["token", "status", "denied", "route", "trial_id"]
            .map(|name| line[name].as_str().unwrap_or("-").to_owned())
    };
    assert_eq!(facts(&written[0]), ["reader", "-", "role", "/v1/policy/pause", "-"]);
    assert_eq!(facts(&written[1]), ["-", "-", "token", "/v1/trials/{id}", "a"]);
    assert_eq!((&written[0]["status"], &written[1]["status"]), (&json!(403), &json!(401)));
    assert_eq!(proxy.metric("rolltap_admin_denied_total{cause=\"token\"}").await, 100);
    // The number of those without a record is in the next record.
    eventually("a later one has the number", async || {
        proxy.ask("guess", "GET", "/v1/trials/a", None).await;
        lines(&proxy.audit).iter().any(|line| line["suppressed"].as_u64() > Some(0))
    })
    .await;
}

#[tokio::test]
async fn while_the_log_cannot_be_written_actions_are_refused_before_they_have_an_effect() {
    let all = token("all", &AdminRole::ALL);
    let proxy = Guarded::start(&[&all], |settings| {
        let audit = settings.audit_log.clone().unwrap();
        std::os::unix::fs::symlink("/dev/full", audit).unwrap();
    })
    .await;
    let open = async |id: &str| {
        proxy.ask(all.reveal(), "POST", "/v1/trials", Some(json!({"task_id": "t", "trial_id": id}))).await
    };
    // The first action has its effect, and its record waits.
    assert_eq!(open("first").await.0, 201);
    let (status, body) = open("second").await;
    assert!(status == 503 && body.contains("the audit log cannot be written"), "{status}: {body}");
    assert_eq!(proxy.ask(all.reveal(), "GET", "/v1/rollouts", None).await.0, 503);
    assert_eq!(proxy.ask(all.reveal(), "GET", "/v1/trials/second", None).await.0, 404);
    assert_eq!(proxy.metric("rolltap_audit_log_failing").await, 1);
    std::fs::remove_file(&proxy.audit).unwrap();
    assert_eq!(open("second").await.0, 201);
    let ids: Vec<_> = lines(&proxy.audit).iter().map(|line| line["trial_id"].clone()).collect();
    assert_eq!(ids, ["first", "second"]);
    assert_eq!(proxy.metric("rolltap_audit_log_failing").await, 0);
}

#[tokio::test]
async fn a_client_that_leaves_before_the_answer_is_in_the_log() {
    let all = token("all", &AdminRole::ALL);
    let proxy = Guarded::start(&[&all], |_| {}).await;
    let waiting = proxy.ask(all.reveal(), "GET", "/v1/rollouts?wait=600", None);
    let left = tokio::time::timeout(std::time::Duration::from_millis(300), waiting).await;
    assert!(left.is_err());
    eventually("the record is written", async || lines(&proxy.audit).len() == 1).await;
    let record = lines(&proxy.audit).pop().unwrap();
    assert_eq!((&record["route"], &record["status"]), (&json!("/v1/rollouts"), &Value::Null));
}
