//! Rewards of later verifications, beside those of the trials.

use rolltap_rollout::row::RolloutRow;
use serde_json::{Value, json};

use crate::harness::{Stage, answer, request};

fn message(body: &Value) -> &str {
    body["error"]["message"].as_str().unwrap()
}

fn version(reward: f64) -> Value {
    json!({"rewards": {"reward": reward}, "version": "regrade-1"})
}

#[tokio::test]
async fn a_version_is_set_once_beside_the_reward_of_the_trial() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({})).await;
    stage.chat(&trial, &request(json!({}))).await;
    let (status, early) = stage.reward(&trial, version(1.0)).await;
    assert!(status == 409 && message(&early).contains("is not complete"), "{early}");
    stage.seal(&trial).await;
    let (status, early) = stage.reward(&trial, version(1.0)).await;
    assert!(status == 409 && message(&early).contains("set its own reward first"), "{early}");
    assert_eq!(stage.reward(&trial, json!({"reward": 0.0})).await.0, 200);
    let completed = stage.status(&trial).await.completed_at;

    let (status, set) = stage.reward(&trial, version(1.0)).await;
    let own = json!({"regrade-1": {"reward": 1.0, "rewards": {"reward": 1.0}, "valid": true, "failure_cause": null}});
    assert_eq!((status, &set["reward"], &set["reward_versions"]), (200, &json!(0.0), &own));
    assert_eq!(stage.reward(&trial, version(1.0)).await, (200, set));
    let (status, other) = stage.reward(&trial, version(0.5)).await;
    assert!(status == 409 && message(&other).contains("another reward of version regrade-1"), "{other}");
    let (status, _) = stage.reward(&trial, json!({"reward": 1.0, "version": "original"})).await;
    assert_eq!(status, 422, "the name of no version");

    let stage = stage.restarted().await;
    let status = stage.status(&trial).await;
    assert_eq!(
        (status.reward, json!(status.reward_versions), status.completed_at),
        (Some(0.0), own, completed)
    );
    assert_eq!(stage.reward(&trial, version(1.0)).await.0, 200, "it is the same after a restart");
    assert_eq!(stage.reward(&trial, version(0.5)).await.0, 409);
}

#[tokio::test]
async fn readers_choose_the_version() {
    let stage = Stage::random().await;
    let mut trials = Vec::new();
    for reward in [0.0, 1.0] {
        let trial = stage.open(json!({})).await;
        stage.chat(&trial, &request(json!({}))).await;
        stage.seal(&trial).await;
        stage.reward(&trial, json!({"reward": reward})).await;
        trials.push(trial);
    }
    let unknown = async |stage: &Stage, path: &str| answer(stage.http.get(stage.admin(path))).await;
    let (status, body) = unknown(&stage, "/v1/rollouts?reward_version=regrade-1").await;
    assert!(status == 404 && message(&body).contains("no trial has one"), "{body}");
    stage.reward(&trials[0], version(1.0)).await;
    let (status, body) = unknown(&stage, "/v1/rollouts?reward_version=regrade-2").await;
    assert!(status == 404 && message(&body).contains("there are: regrade-1"), "{body}");

    let stage = stage.restarted().await;
    let own = stage.feed("").await;
    assert_eq!(own.iter().map(|line| line.reward).collect::<Vec<_>>(), [Some(0.0), Some(1.0)]);
    assert!(own.iter().all(|line| line.reward_version.is_none() && line.rows()[0].reward_version.is_none()));
    let graded = stage.feed("?reward_version=regrade-1").await;
    assert_eq!(
        graded.iter().map(|line| &line.cursor).collect::<Vec<_>>(),
        own.iter().map(|line| &line.cursor).collect::<Vec<_>>()
    );
    assert_eq!((graded[0].reward, graded[0].rows()[0].reward), (Some(1.0), Some(1.0)));
    assert_eq!(graded[0].rows()[0].reward_version.as_deref(), Some("regrade-1"));
    // The other trial has no reward in the version, and its own reward is not comparable.
    assert_eq!((graded[1].reward, graded[1].reward_valid), (None, false));
    assert_eq!(graded[1].failure_cause.as_deref(), Some("no_reward_version"));

    let prepared = stage.feed("?reward_version=regrade-1&prepare=train").await;
    assert_eq!((prepared[0].reward, prepared[1].reward), (Some(1.0), None));
    let path = format!("/v1/trials/{}/rollout?reward_version=regrade-1", trials[0].trial_id);
    let rows = stage.http.get(stage.admin(&path)).send().await.unwrap().text().await.unwrap();
    let row: RolloutRow = serde_json::from_str(rows.lines().next().unwrap()).unwrap();
    assert_eq!((row.reward, row.reward_version.as_deref()), (Some(1.0), Some("regrade-1")));
}
