//! A job with an external proxy, which is killed in the middle of the job and started again on its captures.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rolltap_testing::limit;
use serde_json::Value;

use super::jobs::{results, task};
use super::program::{Running, run};

const SAMPLES: usize = 4;

/// A slow model, so that a call is in flight most of the time. It requires two calls per trial.
const SCRIPT: &str = r#"
[[conversation]]
[[conversation.turn]]
[[conversation.turn.answer]]
content = '{"analysis": "", "plan": "", "commands": [], "task_complete": true}'
delay_ms = 700
"#;

fn proxy(dir: &Path, upstream: &str, listen: &str, admin: &str) -> Running {
    let at = |url: &str| url.trim_start_matches("http://").to_owned();
    let (upstream, listen, admin) = (format!("{upstream}/v1"), at(listen), at(admin));
    let places = ["--listen", &listen, "--admin", &admin, "--data", "data"];
    Running::start(dir, &[&["proxy", "--upstream", &upstream][..], &places].concat())
}

async fn trials(admin: &str) -> Vec<Value> {
    rolltap_testing::get(format!("{admin}/v1/trials")).await.unwrap().json().await.unwrap()
}

#[tokio::test]
async fn a_proxy_that_is_killed_and_started_again_costs_the_job_nothing() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("script.toml"), SCRIPT).unwrap();
    let mut sim = Running::start(dir.path(), &["sim", "--listen", "127.0.0.1:0", "--script", "script.toml"]);
    let upstream = sim.next_url();
    let mut first = proxy(dir.path(), &upstream, "127.0.0.1:0", "127.0.0.1:0");
    let (agents, admin) = (first.next_url(), first.next_url());
    let task = task(dir.path(), "one", "echo 1 > /logs/verifier/reward.txt").display().to_string();
    let samples = SAMPLES.to_string();
    let args = ["run", "-p", &task, "-a", "terminal", "-m", "sim", "-e", "local", "--job-name", "it"];
    let args = [&args[..], &["-k", &samples, "-n", "2", "--proxy", &admin]].concat();
    let job = Running::start(dir.path(), &args);

    let is_amid = |trial: &Value| trial["calls"]["complete"] == 1 && trial["calls"]["in_flight"] == 1;
    let deadline = Instant::now() + limit(60);
    while !trials(&admin).await.iter().any(is_amid) {
        assert!(Instant::now() < deadline, "no trial in the middle of its second call");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    first.signal("KILL");
    first.wait(limit(20));
    let _second = proxy(dir.path(), &upstream, &agents, &admin);

    let (code, said) = tokio::task::spawn_blocking(|| job.wait(limit(60))).await.unwrap();
    assert_eq!(code, Some(0), "{said}");
    let results = results(&dir.path().join("jobs/it"));
    assert_eq!(results.len(), SAMPLES, "trials in flight continue: {said}");
    for result in &results {
        assert_eq!(result["verifier_result"]["rewards"]["reward"], 1.0, "{result}");
        assert_eq!(result["exception_info"], Value::Null, "{result}");
        assert_eq!(result["rolltap"]["proxy"]["calls"]["complete"], 2, "{result}");
    }
    let rows = fs::read_to_string(dir.path().join("jobs/it/rollouts.jsonl")).unwrap();
    let rows: Vec<Value> = rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |result: &Value| rows.iter().filter(|row| row["trial_id"] == result["trial_name"]).count();
    assert!(results.iter().all(|result| of(result) >= 1), "calls from before the kill are there: {rows:?}");
    let checked = run(dir.path(), &["check", "jobs/it"]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
}
