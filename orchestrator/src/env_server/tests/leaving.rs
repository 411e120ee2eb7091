//! Tests of callers that leave and servers that end.

use std::time::{Duration, Instant};

use rolltap_testing::limit;
use serde_json::json;

use super::harness::{Stage, settings, until};
use crate::env_server::GymSettings;

#[tokio::test]
async fn an_idle_environment_is_removed() {
    let stage = Stage::start().await;
    let env = stage.ready(json!({"lease_seconds": 1.5})).await;
    let kept = stage.ready(json!({})).await;
    let workdir = env.workdir().await;
    let long = env.keys("", 3.0).await;
    assert_eq!(long["done"], json!(false), "a client that waits is not removed");
    until("the lease is over", || async { !workdir.exists() }).await;
    until("the call is an error", || async { env.reset().await.error() == (410, "expired") }).await;
    assert!(env.reset().await.message().contains("lease of 1.5 s"));
    assert_eq!(stage.get("/v1/envs").await.ok()[0]["env_id"], json!(kept.id));
}

#[tokio::test]
async fn any_call_renews_a_lease() {
    let lease = limit(2);
    let stage = Stage::with(GymSettings { lease, ..settings() }).await;
    let env = stage.ready(json!({})).await;
    let begun = Instant::now();
    while begun.elapsed() < lease.mul_f64(1.5) {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let leased = stage.post(&env.path("/lease"), json!({})).await.ok();
        assert_eq!(leased["lease_seconds"], json!(lease.as_secs_f64()));
    }
    assert_eq!(env.status().await, "running");
}

#[tokio::test]
async fn a_caller_that_leaves_in_mid_step_leaves_an_episode_that_goes_on() {
    let stage = Stage::start().await;
    let env = stage.ready(json!({})).await;
    let body = json!({"action": {"keystrokes": "touch done\n", "duration": 2}}).to_string();
    let impatient = rolltap_testing::client_builder().timeout(Duration::from_millis(300)).build().unwrap();
    let left = impatient.post(stage.url(&env.path("/step"))).body(body).send().await;
    assert!(left.unwrap_err().is_timeout());
    assert_eq!(env.status().await, "busy", "the step continues");
    until("the step is over", || async { env.status().await == "running" }).await;
    let last = stage.get(&env.path("")).await.ok()["last"].clone();
    assert_eq!(last["info"]["step"], json!(1), "its answer is stored: {last}");
    let judged = env.complete().await;
    assert_eq!((&judged["reward"], &judged["info"]["step"]), (&json!(1.0), &json!(2)));
}

#[tokio::test]
async fn a_server_that_ends_ends_steps_and_removes_all_environments() {
    let stage = Stage::start().await;
    let mut workdirs = Vec::new();
    for _ in 0..3 {
        workdirs.push(stage.ready(json!({})).await.workdir().await);
    }
    let env = stage.ready(json!({})).await;
    let (url, body) = (stage.url(&env.path("/step")), json!({"action": {"keystrokes": "", "duration": 60}}));
    let long = tokio::spawn(rolltap_testing::http_client().post(url).body(body.to_string()).send());
    until("the step is under way", || async { env.status().await == "busy" }).await;
    stage.server.shutdown().await;
    let ended = long.await.unwrap().unwrap();
    assert_eq!(ended.status(), 503);
    assert!(workdirs.iter().all(|dir| !dir.exists()));
}
