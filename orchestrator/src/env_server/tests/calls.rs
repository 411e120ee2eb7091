//! Calls that are wrong or that arrive at the wrong time.

use std::num::NonZeroUsize;

use rolltap_proxy::UnsafeToken;
use serde_json::json;

use super::harness::{Stage, settings, until};
use crate::env_server::{self, GymSettings, GymStartError};

#[tokio::test]
async fn a_step_before_a_reset_and_an_unknown_environment_are_errors_with_a_remedy() {
    let stage = Stage::start().await;
    let env = stage.create(&stage.task("usual", &[]), json!({})).await;
    assert_eq!(env.step(json!("x")).await.error(), (409, "not_reset"));
    for (method, path) in [("POST", "/reset"), ("POST", "/step"), ("POST", "/lease"), ("GET", "")] {
        let body = json!({"action": "x"}).to_string();
        let reply = stage.send(method, &format!("/v1/envs/env-0{path}"), body).await;
        assert_eq!(reply.error(), (404, "unknown_env"), "{method} {path}");
    }
    let nowhere = stage.post("/v1/env", json!({})).await;
    assert_eq!(nowhere.error(), (404, "no_such_path"));
}

#[tokio::test]
async fn tasks_that_cannot_be_had_are_refused_when_the_environment_is_made() {
    let stage = Stage::start().await;
    let broken = stage.task("broken", &[("task.toml", "[agent]\ntimeout_sec = \"soon\"\n")]);
    let closed_net = stage.task(
        "closed",
        &[("task.toml", "[environment]\ndocker_image = \"none\"\nnetwork_mode = \"no-network\"\n")],
    );
    for (task, said) in [
        (json!("/no/such/task"), "/no/such/task"),
        (json!(broken), "timeout_sec"),
        (json!(closed_net), "network mode"),
        (json!({"path": "x", "git_commit_id": "1"}), "git_url"),
        (json!({"path": "x", "git_url": "/no/such/repository"}), "git"),
        (json!({"paht": "x"}), "did you mean \"path\""),
        (json!(3), "task is a number"),
    ] {
        let reply = stage.post("/v1/envs", json!({"task": task})).await;
        assert_eq!(reply.error(), (400, "bad_request"), "{reply:?}");
        assert!(reply.message().contains(said), "{said}: {reply:?}");
    }
    assert_eq!(stage.get("/v1/envs").await.ok(), json!([]));
}

#[tokio::test]
async fn bodies_that_are_too_large_or_no_json_are_refused_and_change_nothing() {
    let stage = Stage::start().await;
    let env = stage.ready(json!({})).await;
    let too_much = json!({"action": {"keystrokes": "x".repeat(9 << 20)}});
    assert_eq!(stage.post(&env.path("/step"), too_much).await.error(), (413, "bad_request"));
    for body in ["{\"action\": ", "{\"action\": {\"keystrokes\": \"\", \"duration\": NaN}}"] {
        let refused = stage.send("POST", &env.path("/step"), body.to_owned()).await;
        assert_eq!(refused.error(), (400, "bad_request"));
    }
    assert_eq!(env.keys("", 0.0).await["info"]["step"], json!(1), "none of these was a step");
}

#[tokio::test]
async fn one_call_at_a_time_and_a_reset_ends_a_step() {
    let stage = Stage::start().await;
    let env = stage.ready(json!({})).await;
    let long = env.step(json!({"keystrokes": "touch done\n", "duration": 60}));
    let meanwhile = async {
        until("the step is under way", || async { env.status().await == "busy" }).await;
        assert_eq!(env.step(json!("x")).await.error(), (409, "busy"));
        env.reset().await.ok()
    };
    let (ended, begun) = tokio::join!(long, meanwhile);
    assert_eq!(ended.error(), (409, "reset"));
    assert_eq!(begun["info"]["step"], json!(0));
    assert_eq!(env.complete().await["reward"], json!(0.0), "the new episode has nothing of the old one");
}

#[tokio::test]
async fn closing_ends_a_step_and_is_fine_twice() {
    let stage = Stage::start().await;
    let env = stage.ready(json!({})).await;
    let workdir = env.workdir().await;
    let long = env.step(json!({"keystrokes": "", "duration": 60}));
    let close = async {
        until("the step is under way", || async { env.status().await == "busy" }).await;
        stage.send("DELETE", &env.path(""), String::new()).await.ok()
    };
    let (ended, closed) = tokio::join!(long, close);
    assert_eq!((ended.error(), &closed["status"]), ((410, "closed"), &json!("closed")));
    assert!(!workdir.exists());
    stage.send("DELETE", &env.path(""), String::new()).await.ok();
    assert_eq!(env.reset().await.error(), (410, "closed"));
}

#[tokio::test]
async fn there_are_no_more_environments_than_may_be() {
    let stage = Stage::with(GymSettings { max_envs: NonZeroUsize::MIN, ..settings() }).await;
    let env = stage.ready(json!({})).await;
    let client = rolltap_testing::http_client();
    let body = json!({"task": stage.task("usual", &[])}).to_string();
    let refused = client.post(stage.url("/v1/envs")).body(body).send().await.unwrap();
    assert_eq!((refused.status().as_u16(), refused.headers().contains_key("retry-after")), (503, true));
    let refused: serde_json::Value = refused.json().await.unwrap();
    assert_eq!(refused["error"]["code"], "too_many");
    stage.send("DELETE", &env.path(""), String::new()).await.ok();
    stage.ready(json!({})).await;
}

#[tokio::test]
async fn a_server_that_others_reach_needs_a_token_and_asks_for_it() {
    let open = env_server::start(GymSettings { listen: "0.0.0.0:0".parse().unwrap(), ..settings() }).await;
    assert!(matches!(open.err(), Some(GymStartError::Token(UnsafeToken::Missing { .. }))));
    let short = env_server::start(GymSettings { token: Some("guessable".to_owned()), ..settings() }).await;
    assert!(matches!(short.err(), Some(GymStartError::Token(UnsafeToken::TooShort { length: 9, .. }))));

    let token = "0123456789abcdef".to_owned();
    let stage = Stage::with(GymSettings { token: Some(token.clone()), ..settings() }).await;
    assert_eq!(stage.get("/v1/envs").await.error(), (401, "unauthorized"));
    let client = rolltap_testing::http_client();
    let admitted = client.get(stage.url("/v1/envs")).bearer_auth(token).send().await.unwrap();
    assert_eq!(admitted.status(), 200);
}

#[tokio::test]
async fn web_pages_are_rejected_by_a_server_without_token() {
    let stage = Stage::start().await;
    let client = rolltap_testing::http_client();
    let page = client.get(stage.url("/v1/envs")).header("origin", "http://evil.example");
    assert_eq!(page.send().await.unwrap().status(), 403);
    let rebound = client.get(stage.url("/v1/envs")).header("host", "evil.example");
    assert_eq!(rebound.send().await.unwrap().status(), 403);
}
