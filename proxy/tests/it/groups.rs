//! Groups through the admin plane: their state, their closing, and the effects of it.

use rolltap_proxy::api::{ClosingCause, GroupStatus, TrialOpened};
use rolltap_testing::eventually;
use serde_json::{Value, json};

use crate::harness::{Stage, answer};

async fn ended(stage: &Stage, extra: Value) -> TrialOpened {
    let trial = stage.open(extra).await;
    stage.reward(&trial, json!({"reward": 1.0})).await;
    stage.seal(&trial).await;
    trial
}

async fn close(stage: &Stage, name: &str) -> (u16, Value) {
    answer(stage.http.post(stage.admin(&format!("/v1/groups/{name}/close")))).await
}

#[tokio::test]
async fn a_group_closes_by_size_by_call_and_by_deadline() {
    let stage = Stage::random().await;
    let member = |group: &str, sample: u32| json!({"group_id": group, "sample_index": sample});
    let sized = |sample| json!({"group_id": "a/b", "group_size": 2, "sample_index": sample});
    ended(&stage, sized(0)).await;
    let half = stage.group("a%2Fb").await;
    assert_eq!((half.size, half.samples.complete, half.closed), (Some(2), 1, None));
    ended(&stage, sized(1)).await;
    assert_eq!(stage.group("a%2Fb").await.closed.unwrap().cause, ClosingCause::Size);

    ended(&stage, member("called", 0)).await;
    let open = stage.open(member("called", 1)).await;
    let (status, body) = close(&stage, "called").await;
    assert_eq!(
        (status, &body["closed"]["cause"], &body["samples"]["open"]),
        (200, &json!("call"), &json!(1))
    );
    assert_eq!(close(&stage, "called").await, (200, body), "closed once");
    assert_eq!(stage.seal(&open).await.trial_id, open.trial_id, "an open trial continues");

    let mut quick = member("quick", 0);
    quick["group_deadline"] = json!(0.05);
    let trial = stage.open(quick).await;
    assert_eq!(stage.group("quick").await.deadline_at, None, "counted from the first seal");
    let sealed_at = stage.seal(&trial).await.sealed_at;
    eventually("its deadline passes", async || stage.group("quick").await.closed.is_some()).await;
    let quick = stage.group("quick").await;
    assert_eq!((quick.closed.unwrap().cause, quick.samples.sealed), (ClosingCause::Deadline, 1));
    assert!(quick.deadline_at > sealed_at);

    let before: Vec<GroupStatus> =
        stage.http.get(stage.admin("/v1/groups")).send().await.unwrap().json().await.unwrap();
    let names: Vec<_> = before.iter().map(|group| group.group_id.as_str()).collect();
    assert_eq!(names, ["a/b", "called", "quick"]);
    let stage = stage.restarted().await;
    let after: Vec<GroupStatus> =
        stage.http.get(stage.admin("/v1/groups")).send().await.unwrap().json().await.unwrap();
    assert_eq!(before, after);
    for group in ["a/b", "called", "quick"] {
        let mut body = member(group, 7);
        body["task_id"] = json!("t");
        let (status, body) = stage.try_open(body).await;
        let message = body["error"]["message"].as_str().unwrap();
        assert!(status == 409 && message.contains("is closed"), "{message}");
    }
}

#[tokio::test]
async fn an_unknown_group_is_a_404_with_a_reason() {
    let stage = Stage::random().await;
    let url = stage.admin("/v1/groups/nobody");
    for (status, body) in [close(&stage, "nobody").await, answer(stage.http.get(url)).await] {
        assert_eq!(status, 404);
        assert!(body["error"]["message"].as_str().unwrap().contains("begins with the first trial"), "{body}");
    }
}

#[tokio::test]
async fn attempts_of_one_sample_do_not_mix() {
    let stage = Stage::random().await;
    let attempt = |attempt: u32| json!({"task_id": "t", "group_id": "g", "attempt": attempt});
    let first = ended(&stage, attempt(0)).await;
    let (status, body) = stage.try_open(attempt(0)).await;
    let message = body["error"]["message"].as_str().unwrap();
    assert!(
        status == 409 && message.contains(first.trial_id.as_str()) && message.contains("a higher attempt")
    );
    let mut wrong = attempt(1);
    wrong["trial_id"] = json!("the-second");
    wrong["group_size"] = json!(0);
    assert_eq!(stage.try_open(wrong.clone()).await.0, 400);
    wrong["group_size"] = json!(1);
    assert_eq!(stage.try_open(wrong).await.0, 201, "a refused trial leaves its name free");
    assert!(stage.status(&first).await.superseded);
    assert!(stage.rollout(&first).await.iter().all(|row| row.superseded));
}

#[tokio::test]
async fn trials_and_groups_are_counted() {
    let stage = Stage::random().await;
    ended(&stage, json!({"group_id": "g", "group_size": 1})).await;
    stage.open(json!({"group_id": "h"})).await;
    let sealed = stage.open(json!({})).await;
    stage.seal(&sealed).await;
    let text = stage.http.get(stage.admin("/metrics")).send().await.unwrap().text().await.unwrap();
    for line in [
        "rolltap_trials{state=\"open\"} 1",
        "rolltap_trials{state=\"sealed\"} 1",
        "rolltap_trials{state=\"complete\"} 1",
        "rolltap_groups{state=\"open\"} 1",
        "rolltap_groups{state=\"closed\"} 1",
    ] {
        assert!(text.lines().any(|written| written == line), "{line} not in {text}");
    }
}
