//! The budget of staleness: what begins, what is released, and what a trainer gets.

use std::time::{Duration, Instant};

use rolltap_testing::limit;
use serde_json::{Value, json};

use super::harness::{Service, Stage};

/// One call to the model, and then a time between 0 and 1 s.
const CALL: &str = r#"curl -sf "$OPENAI_BASE_URL/chat/completions" -H "Authorization: Bearer $OPENAI_API_KEY" \
    -H 'content-type: application/json' -d '{"model": "sim", "messages": [{"role": "user", "content": "x"}]}' \
    && sleep 0.$(od -An -N1 -tu1 /dev/urandom | tr -d ' ')"#;

/// A trainer that takes groups from the feed and names a version after each step.
struct Trainer {
    cursor: Option<String>,
    version: i32,
    /// The groups in the order in which they were taken.
    taken: Vec<String>,
    /// The greatest age of a token when it was taken, in versions.
    oldest: i32,
}

impl Trainer {
    /// Takes groups for one step. Returns false if the service has none within the time.
    async fn step(&mut self, service: &Service, groups: usize, max_staleness: i32) {
        let deadline = Instant::now() + limit(90);
        let mut of_step = 0;
        while of_step < groups {
            assert!(
                Instant::now() < deadline,
                "the trainer starves: {}",
                service.get("/v1/submissions?active=true").await
            );
            let after = self.cursor.as_ref().map(|cursor| format!("&after={cursor}")).unwrap_or_default();
            let path = format!("/v1/rollouts?closed_groups=true&limit=1&wait=1{after}");
            for line in service.text(&path).await.lines() {
                let trial: Value = serde_json::from_str(line).unwrap();
                self.cursor = Some(trial["cursor"].as_str().unwrap().to_owned());
                for row in trial["rows"].as_array().unwrap() {
                    let versions = row["token_version"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .map(|version| version.as_i64().unwrap());
                    let sampled = versions.zip(row["sampled_mask"].as_array().unwrap());
                    let oldest =
                        sampled.filter(|(_, is_sampled)| **is_sampled == 1).map(|(version, _)| version).min();
                    let age = self.version - i32::try_from(oldest.unwrap()).unwrap();
                    assert!(age <= max_staleness, "{age} versions old: {trial}");
                    self.oldest = self.oldest.max(age);
                }
                if trial["group_remaining"] == 0 {
                    self.taken.push(trial["group_id"].as_str().unwrap().to_owned());
                    of_step += 1;
                }
            }
        }
        let named =
            service.post("/v1/policy", &json!({"version": format!("step-{}", self.version + 1)})).await;
        let named: Value = named.json().await.unwrap();
        self.version = i32::try_from(named["version"].as_i64().unwrap()).unwrap();
    }
}

#[tokio::test]
async fn a_trainer_never_gets_an_older_token_and_is_never_starved_through_kills_of_the_service() {
    let stage = Stage::new();
    let options = ["-n", "4", "--max-staleness", "2", "--groups-per-step", "2"];
    let mut service = stage.serve_command(CALL, &options);
    for number in 0..16 {
        let task = if number % 2 == 0 { "one" } else { "two" };
        service.submit(&json!({"task": task, "samples": 2})).await;
    }
    let mut trainer = Trainer { cursor: None, version: 0, taken: Vec::new(), oldest: 0 };
    for step in 0..8 {
        if step % 3 == 2 {
            service.kill();
            service = stage.serve_command(CALL, &options);
        }
        trainer.step(&service, 2, 2).await;
    }
    assert_eq!((trainer.version, trainer.taken.len()), (8, 16), "{:?}", trainer.taken);
    assert!(trainer.oldest > 0, "nothing was sampled ahead");
    // Another reader gets the same groups in the same order.
    let lines = service.closed_groups().await;
    let mut order: Vec<_> =
        lines.iter().map(|trial| trial["group_id"].as_str().unwrap().to_owned()).collect();
    order.dedup();
    assert_eq!(order, trainer.taken);
}

#[tokio::test]
async fn groups_beyond_the_budget_wait_for_the_trainer() {
    let stage = Stage::new();
    let service = stage.serve(&["-n", "8", "--max-staleness", "1", "--groups-per-step", "1"]);
    stage.open_gate();
    let mut submissions = Vec::new();
    for _ in 0..4 {
        submissions.push(service.submit(&json!({"task": "one"})).await.1);
    }
    // The budget has one place at this version, and one at the next.
    for submission in &submissions[..2] {
        service.until(submission, "done").await;
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    for submission in &submissions[2..] {
        let waiting = service.get(&format!("/v1/submissions/{}", submission["id"].as_str().unwrap())).await;
        assert_eq!((&waiting["state"], &waiting["groups"][0]["queued"]), (&json!("queued"), &json!(1)));
    }
    service.post("/v1/policy", &json!({"version": "step-1"})).await;
    let third = service.until(&submissions[2], "done").await;
    let group = &third["groups"][0];
    assert_eq!(group["began_at_version"], 1, "{third}");
    assert!(group["waited_sec"].as_f64().unwrap() > 0.3 && group["closed_at"].is_string(), "{third}");
    let cancelled = submissions[3]["id"].as_str().unwrap();
    service.post(&format!("/v1/submissions/{cancelled}/cancel"), &json!({})).await;
    let last = service.until(&submissions[3], "cancelled").await;
    assert_eq!(last["groups"][0]["began_at"], Value::Null, "{last}");
    assert_eq!(service.closed_groups().await.len(), 3);
}

#[tokio::test]
async fn a_cancelled_group_gives_its_place_to_the_next_which_keeps_it_through_a_kill() {
    let stage = Stage::new();
    let options = ["-n", "4", "--max-staleness", "0", "--groups-per-step", "1"];
    let service = stage.serve(&options);
    let (_, first) = service.submit(&json!({"task": "one"})).await;
    service.until(&first, "running").await;
    let (_, low) = service.submit(&json!({"task": "one"})).await;
    let (_, high) = service.submit(&json!({"task": "two", "priority": 9})).await;
    let (_, late) = service.submit(&json!({"task": "two", "deadline": 1.0})).await;
    service.post(&format!("/v1/submissions/{}/cancel", first["id"].as_str().unwrap()), &json!({})).await;
    service.until(&first, "cancelled").await;
    service.until(&high, "running").await;
    service.kill();
    tokio::time::sleep(Duration::from_millis(1100)).await;

    let service = stage.serve(&options);
    let expired = service.until(&late, "expired").await;
    assert_eq!(expired["started_at"], Value::Null, "{expired}");
    service.until(&high, "running").await;
    let waiting = service.get(&format!("/v1/submissions/{}", low["id"].as_str().unwrap())).await;
    assert_eq!(waiting["state"], "queued", "{waiting}");
    stage.open_gate();
    service.until(&high, "done").await;
    service.post("/v1/policy", &json!({"version": "step-1"})).await;
    let done = service.until(&low, "done").await;
    assert_eq!(done["groups"][0]["began_at_version"], 1, "{done}");
    assert_eq!(service.get("/v1/submissions?active=true").await, json!([]));
}

#[tokio::test]
async fn a_task_that_changed_while_the_service_was_down_fails_its_submission_only() {
    let stage = Stage::new();
    let service = stage.serve(&["-n", "4"]);
    let (_, one) = service.submit(&json!({"task": "one"})).await;
    let (_, two) = service.submit(&json!({"task": "two", "samples": 2})).await;
    service.until(&one, "running").await;
    service.until(&two, "running").await;
    service.stop();
    stage.reward_by("two", "echo 0 > /logs/verifier/reward.txt");
    stage.open_gate();
    let service = stage.serve(&["-n", "4"]);
    service.until(&one, "done").await;
    let failed = service.until(&two, "failed").await;
    assert!(failed["error"].as_str().unwrap().contains("its files have changed"), "{failed}");
    let group = two["groups"][0]["group_id"].as_str().unwrap();
    let groups = service.get("/v1/groups").await;
    let closed = groups.as_array().unwrap().iter().find(|known| known["group_id"] == group).unwrap();
    assert_eq!((&closed["closed"]["cause"], &closed["samples"]["open"]), (&json!("dropped"), &json!(0)));
}

#[tokio::test]
async fn groups_without_variance_are_dropped_and_the_next_takes_their_place() {
    let stage = Stage::new();
    // Two of these rewards are equal once in 2^64 runs.
    stage.reward_by("two", "od -An -N8 -tu8 /dev/urandom > /logs/verifier/reward.txt");
    let service = stage.serve_command(
        "true",
        &["-n", "4", "--max-staleness", "0", "--groups-per-step", "1", "--drop-uniform-groups"],
    );
    let mut submissions = Vec::new();
    for task in ["one", "one", "two"] {
        submissions.push(service.submit(&json!({"task": task, "samples": 2})).await.1);
    }
    for submission in &submissions[..2] {
        let uniform = service.until(submission, "done").await;
        assert_eq!(uniform["groups"][0]["dropped"], "uniform", "{uniform}");
    }
    let varied = service.until(&submissions[2], "done").await;
    assert_eq!(varied["groups"][0]["dropped"], Value::Null, "{varied}");
    let feed = service.closed_groups().await;
    assert_eq!(feed.len(), 2, "{feed:?}");
    assert!(feed.iter().all(|trial| trial["group_id"] == varied["groups"][0]["group_id"]), "{feed:?}");
    let groups = service.get("/v1/groups").await;
    let causes: Vec<_> =
        groups.as_array().unwrap().iter().map(|group| group["closed"]["cause"].clone()).collect();
    assert_eq!(causes.iter().filter(|cause| **cause == "dropped").count(), 2, "{groups}");
}
