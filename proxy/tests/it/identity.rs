//! Authentication and authorisation of calls.

use reqwest::StatusCode;
use rolltap_proxy::{Settings, StartError, UnsafeToken};
use serde_json::{Value, json};

use crate::harness::{self, Stage, request};

#[tokio::test]
async fn a_key_counts_in_the_path_and_in_every_header() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({})).await;
    let bearer = format!("Bearer {}", trial.key);
    for (header, value) in [
        ("authorization", &bearer),
        ("x-api-key", &trial.key),
        ("api-key", &trial.key),
        ("x-goog-api-key", &trial.key),
    ] {
        let call = stage
            .http
            .post(stage.agent("/v1/chat/completions"))
            .header(header, value)
            .json(&request(json!({})));
        assert_eq!(call.send().await.unwrap().status(), StatusCode::OK, "{header}");
    }
    assert_eq!(stage.status(&trial).await.calls.complete, 4);
}

#[tokio::test]
async fn trials_are_listed_in_pages() {
    let stage = Stage::random().await;
    for name in ["c", "a", "e", "b", "d"] {
        stage.open(json!({"trial_id": name})).await;
    }
    let page = async |query: &str| {
        let answer = stage.http.get(stage.admin(&format!("/v1/trials{query}"))).send().await.unwrap();
        let next = answer.headers().get("link").map(|link| link.to_str().unwrap().to_owned());
        let listed: Vec<Value> = answer.json().await.unwrap();
        let names: String = listed.iter().map(|trial| trial["trial_id"].as_str().unwrap()).collect();
        (names, next)
    };
    let link = |query: &str| Some(format!("</v1/trials{query}>; rel=\"next\""));
    assert_eq!(page("").await, ("abcde".to_owned(), None));
    assert_eq!(page("?limit=2").await, ("ab".to_owned(), link("?limit=2&after=b")));
    assert_eq!(page("?limit=2&after=b").await, ("cd".to_owned(), link("?limit=2&after=d")));
    assert_eq!(page("?limit=2&after=d").await, ("e".to_owned(), None));
    for wrong in ["?limit=0", "?limit=x", "?after=", "?page=2"] {
        let answer = stage.http.get(stage.admin(&format!("/v1/trials{wrong}"))).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 400, "{wrong}");
    }
}

#[tokio::test]
async fn without_a_key_of_ours_nothing_is_answered() {
    let stage = Stage::random().await;
    let (one, other) = (stage.open(json!({})).await, stage.open(json!({})).await);
    let stranger = format!("sk-{}", "0".repeat(64));
    for (headers, status) in [
        (vec![], 401),
        (vec![("authorization", "Bearer sk-dummy".to_owned())], 401),
        (vec![("x-api-key", stranger)], 401),
        (vec![("x-api-key", one.key.clone()), ("api-key", other.key.clone())], 400),
    ] {
        let call = stage.http.post(stage.agent("/v1/chat/completions")).json(&request(json!({})));
        let call = headers.iter().fold(call, |call, (name, value)| call.header(*name, value));
        let response = call.send().await.unwrap();
        assert_eq!(response.status().as_u16(), status, "{headers:?}");
        let body: Value = response.json().await.unwrap();
        assert_eq!(body["error"]["code"], "invalid_api_key");
    }
    assert_eq!(stage.upstream.stats().requests, 0, "nothing of it reached upstream");
}

#[tokio::test]
async fn a_sealed_trial_answers_410_and_one_that_used_its_calls_429() {
    let stage = Stage::random().await;
    let limited = stage.open(json!({"limits": {"max_calls": 1}})).await;
    assert_eq!(stage.chat(&limited, &request(json!({}))).await.status().as_u16(), 200);
    assert_eq!(stage.chat(&limited, &request(json!({}))).await.status().as_u16(), 429);
    stage.seal(&limited).await;
    let sealed = stage.chat(&limited, &request(json!({}))).await;
    assert_eq!(sealed.status().as_u16(), 410);
    assert_eq!(sealed.json::<Value>().await.unwrap()["error"]["code"], "trial_sealed");
    assert_eq!(stage.status(&limited).await.calls.total, 1);
}

#[tokio::test]
async fn the_engine_is_not_the_agents_to_steer() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({})).await;
    let refused =
        stage.chat(&trial, &request(json!({"kv_transfer_params": {"prompt_token_ids": [1]}}))).await;
    assert_eq!(refused.status().as_u16(), 400);
    assert!(refused.text().await.unwrap().contains("kv_transfer_params"));
}

/// A token that is long enough.
const TOKEN: &str = "correct-horse-battery";

#[tokio::test]
async fn the_admin_plane_wants_its_token_and_never_opens_without_off_loopback() {
    let upstream = harness::simulator(None).await;
    let data = tempfile::tempdir().unwrap();
    let open = harness::settings(&format!("http://{}", upstream.addr()), &data);
    let off_loopback = Settings { admin: ([0, 0, 0, 0], 0).into(), ..open.clone() };
    assert!(matches!(
        rolltap_proxy::start(off_loopback).await,
        Err(StartError::Token(UnsafeToken::Missing { .. }))
    ));

    let short = Settings { admin_token: Some("fifteen-letters".into()), ..open.clone() };
    let refused = rolltap_proxy::start(short).await.unwrap_err();
    assert!(matches!(refused, StartError::Token(UnsafeToken::TooShort { length: 15, .. })), "{refused}");
    let proxy = rolltap_proxy::start(Settings { admin_token: Some(TOKEN.into()), ..open }).await.unwrap();
    let http = rolltap_testing::http_client();
    let status = async |token: &str| {
        let url = format!("http://{}/v1/trials", proxy.admin_addr());
        http.get(url).bearer_auth(token).send().await.unwrap().status().as_u16()
    };
    assert_eq!((status(TOKEN).await, status("guess").await), (200, 401));
    let health = http.get(format!("http://{}/healthz", proxy.admin_addr())).send().await.unwrap();
    assert_eq!(health.status().as_u16(), 200);
}

#[tokio::test]
async fn what_the_admin_plane_cannot_take_it_explains() {
    let stage = Stage::random().await;
    for (body, part) in [
        (json!({}), "task_id"),
        (json!({"task_id": "t", "trial_id": "../x"}), "TrialId"),
        (json!({"task_id": "t", "smapling": {}}), "unknown key \"smapling\" (did you mean \"sampling\"?)"),
        (json!({"task_id": "t", "sampling": {"messages": []}}), "sampling.messages"),
    ] {
        let response = stage.http.post(stage.admin("/v1/trials")).json(&body).send().await.unwrap();
        let status = response.status();
        let error: Value = response.json().await.unwrap();
        assert!(status.is_client_error(), "{body}");
        assert!(error["error"]["message"].as_str().unwrap().contains(part), "{error}");
    }
    stage.open(json!({"trial_id": "once"})).await;
    let again = stage.http.post(stage.admin("/v1/trials")).json(&json!({"task_id": "t", "trial_id": "once"}));
    assert_eq!(again.send().await.unwrap().status().as_u16(), 409);
    let unknown = stage.http.get(stage.admin("/v1/trials/nobody")).send().await.unwrap();
    assert_eq!(unknown.status().as_u16(), 404);
    let open_rollout = stage.http.get(stage.admin("/v1/trials/once/rollout")).send().await.unwrap();
    assert_eq!(open_rollout.status().as_u16(), 409);
}

#[tokio::test]
async fn any_key_opens_a_trial_where_that_is_wanted() {
    let stage = Stage::random().await;
    let data = tempfile::tempdir().unwrap();
    let upstream = format!("http://{}", stage.upstream.addr());
    let mut settings = harness::settings(&upstream, &data);
    settings.implicit_trials = rolltap_proxy::ImplicitTrials::OnLoopback;
    let stage = Stage { proxy: rolltap_proxy::start(settings.clone()).await.unwrap(), ..stage };
    let call = async |key: &str| {
        let url = stage.agent("/v1/chat/completions");
        stage
            .http
            .post(url)
            .bearer_auth(key)
            .json(&harness::request(json!({})))
            .send()
            .await
            .unwrap()
            .status()
    };
    let (one, again) = tokio::join!(call("EMPTY"), call("EMPTY"));
    assert!(one.is_success() && again.is_success());
    assert!(call("other").await.is_success());
    let trials: Vec<rolltap_proxy::api::TrialStatus> =
        stage.http.get(stage.admin("/v1/trials")).send().await.unwrap().json().await.unwrap();
    let mut calls: Vec<_> = trials.iter().map(|trial| trial.calls.total).collect();
    calls.sort_unstable();
    assert_eq!(calls, [1, 2]);
    settings.listen.push(([0, 0, 0, 0], 0).into());
    let refused = rolltap_proxy::start(settings).await.unwrap_err();
    assert!(matches!(refused, rolltap_proxy::StartError::ImplicitTrialsOffLoopback(_)), "{refused}");
}
