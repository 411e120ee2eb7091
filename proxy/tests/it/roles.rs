//! The roles of calls, and the calls that are trained.

use reqwest::StatusCode;
use rolltap_proxy::api::TrialOpened;
use rolltap_rollout::call::CallRole::{Compaction, Main, Probe, SubAgent, Title};
use rolltap_rollout::row::RolloutRow;
use serde_json::{Value, json};

use crate::harness::{Stage, request};

/// Sends a request like those of Claude Code, as far as the role depends on it.
async fn message(stage: &Stage, trial: &TrialOpened, extra: Value) {
    let mut body =
        json!({"model": "sim", "max_tokens": 16, "messages": [{"role": "user", "content": "Hello"}]});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    let url = format!("{}/v1/messages", trial.base_urls.anthropic);
    assert_eq!(stage.http.post(url).json(&body).send().await.unwrap().status(), StatusCode::OK);
}

fn masks(rows: &[RolloutRow]) -> Vec<(&str, u8)> {
    let of = |row: &RolloutRow| {
        assert!(row.sampled_mask.contains(&1));
        row.trainable_mask.iter().copied().max().unwrap()
    };
    rows.iter().map(|row| (row.calls[0].role.as_str(), of(row))).collect()
}

#[tokio::test]
async fn an_agents_chores_are_recognised_and_train_nothing_unless_the_trial_trains_them() {
    let stage = Stage::random().await;
    let usual = stage.open(json!({"history": "off"})).await;
    let other =
        stage.open(json!({"history": "off", "training": {"title": "train", "sub_agent": "mask"}})).await;
    for trial in [&usual, &other] {
        message(&stage, trial, json!({"max_tokens": 1})).await;
        message(
            &stage,
            trial,
            json!({"system": "Generate a concise, sentence-case title (3-7 words) for it."}),
        )
        .await;
        message(&stage, trial, json!({"system": [{"type": "text", "text": "You are Claude Code."}]})).await;
        let helper = "You are an agent for Claude Code, Anthropic's official CLI for Claude. Given";
        message(&stage, trial, json!({"system": helper})).await;
        let summary = "Your task is to create a detailed summary of the conversation so far.";
        let messages = json!([{"role": "user", "content": [{"type": "text", "text": summary}]}]);
        message(&stage, trial, json!({"messages": messages})).await;
        stage.seal(trial).await;
        let roles: Vec<_> = stage.calls(trial).await.iter().map(|call| call.role).collect();
        assert_eq!(roles, [Probe, Title, Main, SubAgent, Compaction]);
    }
    let rows = stage.rollout(&usual).await;
    let expected = [("probe", 0), ("title", 0), ("main", 1), ("sub_agent", 1), ("compaction", 1)];
    assert_eq!(masks(&rows), expected);
    let rows = stage.rollout(&other).await;
    let expected = [("probe", 0), ("title", 1), ("main", 1), ("sub_agent", 0), ("compaction", 1)];
    assert_eq!(masks(&rows), expected);
}

#[tokio::test]
async fn chat_completions_of_one_token_are_probes() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({})).await;
    for limit in [json!({"max_tokens": 1}), json!({"max_tokens": 9, "max_completion_tokens": 1}), json!({})] {
        stage.chat(&trial, &request(limit)).await.text().await.unwrap();
    }
    let roles: Vec<_> = stage.calls(&trial).await.iter().map(|call| call.role).collect();
    assert_eq!(roles, [Probe, Probe, Main]);
}

#[tokio::test]
async fn an_unknown_role_or_policy_is_refused() {
    let stage = Stage::random().await;
    for training in [json!({"heading": "mask"}), json!({"title": "skip"})] {
        let body = json!({"task_id": "t", "training": training});
        let refused = stage.http.post(stage.admin("/v1/trials")).json(&body).send().await.unwrap();
        assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY);
    }
}
