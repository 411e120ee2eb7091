//! The service is killed at random moments while submissions arrive, and started again on its directory, many times. No
//! acknowledged submission is lost, and no attempt at a sample runs twice.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rolltap_testing::{limit, sample};
use serde_json::Value;

use super::harness::{Service, Stage, request};

/// The samples of each submission.
const SAMPLES: u32 = 3;

/// Returns numbers that look random, from a seed.
fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

/// Submits for this time, and until a submission is accepted. Returns the acknowledged keys with their ids.
async fn submit_for(service: &Service, time: Duration, next: &mut u64) -> BTreeMap<String, String> {
    let (end, mut known) = (Instant::now() + time, BTreeMap::new());
    let deadline = end + limit(60);
    // The queue of a slow machine is full until trials have ended.
    while Instant::now() < end || known.is_empty() {
        assert!(Instant::now() < deadline, "the queue stays full");
        let key = format!("key-{next}");
        *next += 1;
        let task = if next.is_multiple_of(2) { "one" } else { "two" };
        let (status, submission) = service.submit(&request(task, SAMPLES, &key)).await;
        match status.as_u16() {
            202 => drop(known.insert(key, submission["id"].as_str().unwrap().to_owned())),
            429 => tokio::time::sleep(Duration::from_millis(20)).await,
            _ => panic!("{status}: {submission}"),
        }
    }
    known
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_and_no_attempt_runs_twice() {
    let kills = sample(8, 200);
    let stage = Stage::new();
    stage.open_gate();
    let serve = || stage.serve(&["-n", "6", "--max-queued", "60"]);
    let (mut seed, mut next, mut known) = (7_u64, 0, BTreeMap::new());
    for _ in 0..kills {
        let service = serve();
        let time = Duration::from_millis(20 + random(&mut seed) % 400);
        known.extend(submit_for(&service, time, &mut next).await);
        service.kill();
    }
    let service = serve();
    let deadline = Instant::now() + limit(120);
    while service.get("/v1/submissions?active=true").await != serde_json::json!([]) {
        assert!(Instant::now() < deadline, "submissions do not end");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("{kills} kills, {} acknowledged submissions", known.len());
    assert!(known.len() as u64 >= kills, "each run of the service accepted a submission");

    let listed = service.get("/v1/submissions?limit=100000").await;
    let listed = listed.as_array().unwrap();
    let by_id: BTreeMap<&str, &Value> =
        listed.iter().map(|submission| (submission["id"].as_str().unwrap(), submission)).collect();
    for (key, id) in &known {
        let submission = by_id.get(id.as_str()).unwrap_or_else(|| panic!("{key} is lost"));
        assert_eq!(
            (&submission["state"], &submission["request"]["idempotency_key"]),
            (&"done".into(), &key.as_str().into())
        );
    }
    let keys: BTreeSet<_> =
        listed.iter().map(|submission| submission["request"]["idempotency_key"].to_string()).collect();
    assert_eq!(keys.len(), listed.len(), "no key has two submissions");

    // The feed has each sample of each group once, whatever number of attempts it took.
    let mut samples: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for trial in service.closed_groups().await {
        let sample = trial["sample_index"].as_u64().unwrap();
        let group = trial["group_id"].as_str().unwrap();
        assert!(
            samples.entry(group.to_owned()).or_default().insert(sample),
            "sample {sample} of {group} counts twice"
        );
        assert_eq!(trial["reward"], 1.0, "{trial}");
    }
    let all: BTreeSet<u64> = (0..u64::from(SAMPLES)).collect();
    for submission in listed {
        let group = submission["groups"][0]["group_id"].as_str().unwrap();
        assert_eq!(samples.get(group), Some(&all), "{submission}");
    }
    attempts_are_unique(&service).await;
}

/// Checks that no attempt at a sample has two trials, and that attempts follow each other without a gap.
async fn attempts_are_unique(service: &Service) {
    let mut attempts: BTreeMap<(String, u64), Vec<u64>> = BTreeMap::new();
    let trials = service.get("/v1/trials?limit=1000000").await;
    for trial in trials.as_array().unwrap() {
        let sample =
            (trial["group_id"].as_str().unwrap().to_owned(), trial["sample_index"].as_u64().unwrap());
        attempts.entry(sample).or_default().push(trial["attempt"].as_u64().unwrap());
    }
    let mut more_than_one = 0;
    for (sample, mut attempts) in attempts {
        attempts.sort_unstable();
        assert!(attempts.windows(2).all(|pair| pair[0] < pair[1]), "{sample:?}: {attempts:?}");
        more_than_one += usize::from(attempts.len() > 1);
    }
    println!("{more_than_one} samples took several attempts");
    assert!(more_than_one > 0, "the kills hit no trial");
}
