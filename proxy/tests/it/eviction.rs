//! Open trials that are evicted, and reloaded at their next call.

use std::time::Duration;

use rolltap_testing::eventually;
use serde_json::json;
use tempfile::TempDir;

use crate::conversation::{ROOM, ask, assistant, user, words};
use crate::harness::{Stage, request, settings, simulator};
use crate::model_server::{Ids, ModelServer, model_dir};

/// Returns the value of one of the proxy's metrics, or 0 if it is absent.
async fn metric(stage: &Stage, name: &str) -> u64 {
    let text = stage.http.get(stage.admin("/metrics")).send().await.unwrap().text().await.unwrap();
    let line = text.lines().find(|line| line.split(' ').next() == Some(name));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_default()
}

async fn evicted(stage: &Stage) -> u64 {
    metric(stage, "rolltap_trials_evicted_total").await
}

/// Starts a proxy that holds no idle trial in memory.
async fn forgetful(server: &ModelServer) -> Stage {
    let data = TempDir::new().unwrap();
    let mut settings = settings(&server.url, &data);
    settings.render.tokenizer = Some(model_dir());
    settings.memory = 0;
    let proxy = rolltap_proxy::start(settings).await.unwrap();
    Stage { upstream: simulator(None).await, proxy, data, http: rolltap_testing::http_client() }
}

#[tokio::test]
async fn a_conversation_goes_on_token_for_token_after_each_sleep() {
    let server = ModelServer::start(Ids::Taken, ROOM).await;
    let stage = forgetful(&server).await;
    let trial = stage.open(json!({"limits": {"max_calls": 4}})).await;
    let mut messages = vec![user("Hi")];
    for turn in 1..=4 {
        let (_, content) = ask(&stage, &trial, &messages, turn % 2 == 0).await;
        messages.extend([assistant(&content), user("and there?")]);
        eventually("the trial is evicted", async || evicted(&stage).await >= turn).await;
        // A status request does not reload the trial.
        assert_eq!(
            (stage.status(&trial).await.calls.total, stage.calls(&trial).await.len()),
            (turn, turn as usize)
        );
    }
    assert_eq!(words(&stage, &trial).await, ["first_call", "spliced", "spliced", "spliced"]);
    let (refused, why) = ask(&stage, &trial, &messages, false).await;
    assert_eq!(refused, 429, "its limits hold: {why}");
    let sealed = stage.seal(&trial).await;
    assert_eq!((sealed.calls.total, sealed.calls.complete, sealed.branches), (4, 4, 1));
    let rows = stage.rollout(&trial).await;
    assert_eq!((rows.len(), rows[0].calls.len()), (1, 4), "one sequence");
}

/// Sub-agents and restarts: each prompt is stored separately and counts in full.
#[tokio::test]
async fn conversations_side_by_side_weigh_what_their_prompts_take() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({})).await;
    for number in 0..20 {
        let text = format!("word{number} ").repeat(3000);
        let body = request(json!({"messages": [user(&text)], "max_tokens": 1}));
        assert_eq!(stage.chat(&trial, &body).await.status().as_u16(), 200);
    }
    let ids = 4 * stage.status(&trial).await.prompt_tokens;
    assert!(ids > 20 * 3000 * 4, "{ids} bytes of ids");
    // The texts of the messages count too.
    let least = ids + 20 * 3000 * 6;
    eventually("the prompts are counted", async || {
        metric(&stage, "rolltap_trial_memory_bytes").await >= least
    })
    .await;
}

#[tokio::test]
async fn nothing_is_lost_of_trials_that_are_called_while_they_fall_asleep() {
    let server = ModelServer::start(Ids::Taken, ROOM).await;
    let stage = forgetful(&server).await;
    let mut trials = Vec::new();
    for _ in 0..8 {
        trials.push(stage.open(json!({})).await);
    }
    // The loop is long enough for several memory checks, so that trials are evicted between calls and right before
    // them.
    let agents = trials.iter().map(async |trial| {
        let mut calls = 0;
        let body = request(json!({"messages": [user("Hi")]}));
        while evicted(&stage).await < 12 {
            assert_eq!(stage.chat(trial, &body).await.status(), 200);
            calls += 1;
            // The pause is longer than the idle time before an eviction, and its length varies.
            tokio::time::sleep(Duration::from_millis(100 + 37 * (calls % 10))).await;
        }
        calls as usize
    });
    let made = futures_util::future::join_all(agents).await;
    for (trial, made) in trials.iter().zip(made) {
        let status = stage.seal(trial).await;
        assert_eq!((status.calls.total, stage.calls(trial).await.len()), (made as u64, made));
    }
}
