//! Rows after the rules of an export, as a trainer asks for them.

use rolltap_rollout::export::pipeline::prepare::PreparedTrial;
use serde_json::{Value, json};

use crate::harness::{Stage, answer, request};

async fn read(stage: &Stage, path: &str) -> (u16, String) {
    let answer = stage.http.get(stage.admin(path)).send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

#[tokio::test]
async fn a_trial_is_prepared_as_asked_and_the_feed_has_the_same() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({})).await;
    stage.chat(&trial, &request(json!({"n": 2}))).await;
    let constrained = json!({"response_format": {"type": "json_object"}});
    stage.chat(&trial, &request(constrained)).await;
    stage.seal(&trial).await;
    stage.reward(&trial, json!({"rewards": {"reward": 0.5, "style": 1.0}})).await;
    let rows = stage.rollout(&trial).await;
    assert_eq!(rows.len(), 3);

    let path = format!("/v1/trials/{}/rollout", trial.trial_id);
    let (status, text) = read(&stage, &format!("{path}?prepare=train")).await;
    assert_eq!((status, text.lines().count()), (200, 1), "{text}");
    let made: PreparedTrial = serde_json::from_str(&text).unwrap();
    assert_eq!((made.reward, made.left_out, made.refused.clone()), (Some(0.5), 1, None));
    let expected: Vec<_> = rows.iter().filter(|row| !row.calls[0].constrained).collect();
    assert_eq!((made.rows.len(), expected.len()), (2, 2));
    for (prepared, row) in made.rows.iter().zip(expected) {
        assert_eq!((&prepared.row.token_ids, &prepared.row.loss_mask), (&row.token_ids, &row.loss_mask));
        assert!(prepared.row.calls.iter().all(|call| call.messages.is_none()));
    }
    let all = [("&train_constrained=true", 3), ("&on_fork=longest", 1)];
    for (choice, branches) in all {
        let (_, text) = read(&stage, &format!("{path}?prepare=train{choice}")).await;
        assert_eq!(serde_json::from_str::<PreparedTrial>(&text).unwrap().rows.len(), branches, "{choice}");
    }
    let line = stage.feed("?prepare=train").await.remove(0);
    assert_eq!((line.rows, line.prepared), (None, Some(made)));
}

#[tokio::test]
async fn a_rule_makes_the_number_to_train_on() {
    let stage = Stage::random().await;
    let rewards = json!({"rewards": {"tests": 0.5, "style": 1.0}});
    for calls in [1, 0] {
        let trial = stage.open(json!({})).await;
        for _ in 0..calls {
            stage.chat(&trial, &request(json!({}))).await;
        }
        stage.seal(&trial).await;
        stage.reward(&trial, rewards.clone()).await;
        let path = format!("/v1/trials/{}/rollout?prepare=train", trial.trial_id);
        for (rule, number) in [("style", 1.0), ("mean", 0.75), ("tests%3D1%2Cstyle%3D-1", -0.5)] {
            let (status, text) = read(&stage, &format!("{path}&reward={rule}")).await;
            let made: PreparedTrial = serde_json::from_str(&text).unwrap();
            assert_eq!(
                (status, made.reward, made.refused),
                (200, Some(number), None),
                "{rule}, {calls} calls"
            );
        }
        let made: PreparedTrial = serde_json::from_str(&read(&stage, &path).await.1).unwrap();
        assert_eq!(made.reward, None, "without a rule, none of the two is chosen");
    }
    let sums = stage.feed("?prepare=train&reward=sum").await;
    let sums: Vec<_> = sums.into_iter().map(|line| line.prepared.unwrap().reward).collect();
    assert_eq!(sums, [Some(1.5), Some(1.5)]);
    let lines = stage.feed("?prepare=train&reward=speed").await;
    let refused = lines[0].prepared.as_ref().unwrap().refused.clone().unwrap();
    assert!(
        refused.contains("no trial has a reward named \"speed\"; the names are: style, tests"),
        "{refused}"
    );
    let (status, text) = read(&stage, "/v1/rollouts?prepare=train&reward=a%2Cb").await;
    assert!(status == 400 && text.contains("NAME=WEIGHT"), "{text}");
}

/// Whether one trial can be trained is no matter of the others.
#[tokio::test]
async fn what_is_refused_is_told_and_the_feed_goes_on() {
    let stage = Stage::random().await;
    for n in [2, 1] {
        let trial = stage.open(json!({})).await;
        stage.chat(&trial, &request(json!({"n": n}))).await;
        stage.seal(&trial).await;
        stage.reward(&trial, json!({"reward": 1.0})).await;
    }
    let lines = stage.feed("?prepare=train&on_fork=error").await;
    let told: Vec<_> = lines.into_iter().filter_map(|line| line.prepared).collect();
    assert!(told[0].refused.as_ref().unwrap().contains("2 branches"), "{told:?}");
    assert_eq!((told[0].rows.len(), told[0].reward), (0, None));
    assert_eq!((told[1].rows.len(), told[1].reward, &told[1].refused), (1, Some(1.0), &None));
}

#[tokio::test]
async fn without_the_parameter_an_answer_has_no_member_of_it() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({})).await;
    stage.seal(&trial).await;
    stage.reward(&trial, json!({"reward": 1.0})).await;
    let (_, text) = read(&stage, "/v1/rollouts").await;
    let line: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&line["rows"], line.get("prepared")), (&json!([]), None));
    let (_, text) = read(&stage, "/v1/rollouts?prepare=mask").await;
    let line: Value = serde_json::from_str(&text).unwrap();
    let empty = json!({"reward": 1.0, "rows": [], "left_out": 0, "refused": null});
    assert_eq!((line.get("rows"), &line["prepared"]), (None, &empty));
}

#[tokio::test]
async fn a_bad_value_is_answered_with_those_that_are_accepted() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({})).await;
    stage.seal(&trial).await;
    for path in ["/v1/rollouts".to_owned(), format!("/v1/trials/{}/rollout", trial.trial_id)] {
        for (query, problem) in [
            ("prepare=yes", r#"prepare is "yes": give one of mask, train"#),
            ("prepare=train&on_fork=both", r#"on_fork is "both": give one of longest, all, error"#),
            ("on_fork=all", "on_fork is a choice of a preparation: add prepare=train"),
        ] {
            let (status, body) = answer(stage.http.get(stage.admin(&format!("{path}?{query}")))).await;
            let expected = json!({"message": problem, "type": "invalid_request", "code": 400});
            assert_eq!((status, &body["error"]), (400, &expected), "{path}?{query}");
        }
        assert_eq!(read(&stage, &format!("{path}?prepar=train")).await.0, 400, "a misspelt name");
    }
}
