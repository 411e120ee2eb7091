//! A service whose trials run on workers, and which dies meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rolltap_testing::{free_port, http_client, limit, until};
use serde_json::{Value, json};

use super::bench::Bench;

/// The submissions before the service dies, and the samples of each.
const SUBMISSIONS: usize = 3;
const SAMPLES: usize = 2;

#[tokio::test]
#[ignore = "needs NATS: run ./scripts/test"]
async fn a_service_that_is_killed_continues_with_the_trials_of_its_workers() {
    let bench = Bench::start();
    let ports = [free_port(), free_port()];
    let admin = format!("http://127.0.0.1:{}", ports[1]);
    // A client without connections to the service that is killed.
    let get = async |path: &str| {
        http_client().get(format!("{admin}{path}")).send().await.unwrap().text().await.unwrap()
    };
    let mut service = bench.service(ports);
    service.until_said("admin plane listens", 1);
    let workers = ["one", "two"].map(|name| bench.worker_of(&admin, name, 2, "local"));
    for number in 0..SUBMISSIONS {
        let request =
            json!({"task": "hello-file", "samples": SAMPLES, "idempotency_key": number.to_string()});
        let answer =
            http_client().post(format!("{admin}/v1/submissions")).json(&request).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 202, "{}", answer.text().await.unwrap());
    }
    // All four slots are taken, and two trials are in the queue.
    let begun = || workers.iter().map(|worker| worker.said().matches("trial begins").count()).sum::<usize>();
    until("four running trials", || begun() == 4);
    service.kill();
    let service = bench.service(ports);
    service.until_said("admin plane listens", 2);
    bench.open_gate("service");
    let deadline = Instant::now() + limit(60);
    while get("/v1/submissions?active=true").await.trim() != "[]" {
        assert!(Instant::now() < deadline, "submissions do not end: {}", service.said());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    let listed: Value = serde_json::from_str(&get("/v1/submissions").await).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), SUBMISSIONS, "{listed}");
    assert!(listed.as_array().unwrap().iter().all(|submission| submission["state"] == "done"), "{listed}");
    let feed = get("/v1/rollouts?closed_groups=true").await;
    let mut samples: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for line in feed.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!((&line["reward_valid"], &line["attempt"]), (&json!(true), &json!(0)), "{line}");
        let group = samples.entry(line["group_id"].as_str().unwrap().to_owned()).or_default();
        assert!(group.insert(line["sample_index"].as_u64().unwrap()), "a sample came twice: {line}");
    }
    assert_eq!(samples.len(), SUBMISSIONS, "{samples:?}");
    assert!(samples.values().all(|group| group.len() == SAMPLES), "{samples:?}");
    assert_eq!(begun(), SUBMISSIONS * SAMPLES, "no trial ran twice");
}
