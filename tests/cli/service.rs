//! `rolltap serve` with `rolltap submit` and the API: submissions, their limits, and restarts.

mod harness;
mod killed;
mod pacing;

use reqwest::StatusCode;
use serde_json::{Value, json};

use self::harness::{Service, Stage};
use super::program::run;

#[tokio::test]
async fn a_submission_becomes_a_closed_group_with_its_sampling_and_metadata() {
    let stage = Stage::new();
    let service = stage.serve(&["-n", "2"]);
    let request = json!({
        "task": "one", "samples": 3, "sampling": {"temperature": 0.25}, "metadata": {"step": 7},
    });
    let (status, submission) = service.submit(&request).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{submission}");
    assert_eq!(submission["request"]["metadata"]["step"], 7, "{submission}");
    stage.open_gate();
    let ended = service.until(&submission, "done").await;
    let group = &ended["groups"][0];
    assert_eq!((&group["samples"], &group["ended"], &group["queued"]), (&json!(3), &json!(3), &json!(0)));
    assert!(ended["started_at"].is_string() && ended["ended_at"].is_string(), "{ended}");

    let feed = service.closed_groups().await;
    let of_group: Vec<_> = feed.iter().filter(|trial| trial["group_id"] == group["group_id"]).collect();
    assert_eq!(of_group.len(), 3, "{feed:?}");
    let trial = service.get(&format!("/v1/trials/{}", of_group[0]["trial_id"].as_str().unwrap())).await;
    assert_eq!(trial["metadata"], json!({"step": 7}), "{trial}");
    assert_eq!(trial["reward"], 1.0, "{trial}");
    // The records of a trial are those of a job, and commands read its captures.
    let checked = run(stage.path(), &["check", "jobs/service"]);
    assert!(checked.code == Some(0) && checked.stderr.contains("0 breaches"), "{checked:?}");
    let page = service.text("/ui/jobs/service").await;
    assert!(page.contains(of_group[0]["trial_id"].as_str().unwrap()), "{page}");
}

#[tokio::test]
async fn the_command_submits_waits_lists_and_cancels() {
    let stage = Stage::new();
    let service = stage.serve(&["-n", "4"]);
    stage.open_gate();
    let rolltap = |args: &[&str]| run(stage.path(), &[args, &["--url", &service.url]].concat());
    let done = rolltap(&["submit", "one", "-k", "2", "--wait"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains(" done 2/2 service/"), "{done:?}");
    stage.close_gate();
    let queued = rolltap(&["submit", "two", "--json"]);
    let queued: Value = serde_json::from_str(&queued.stdout).unwrap();
    let id = queued["id"].as_str().unwrap();
    let listed = rolltap(&["submissions", "--active"]);
    assert!(listed.stdout.starts_with(id) && listed.stdout.lines().count() == 1, "{listed:?}");
    let cancelled = rolltap(&["submissions", id, "--cancel"]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    service.until(&queued, "cancelled").await;
    let unknown = rolltap(&["submit", "none"]);
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    for words in ["there is no task \"none\"", "the service has one, two", "task_path"] {
        assert!(unknown.stderr.contains(words), "{words}: {unknown:?}");
    }
}

#[tokio::test]
async fn a_repeated_key_is_the_same_submission_and_another_request_under_it_is_refused() {
    let stage = Stage::new();
    let service = stage.serve(&[]);
    let request = json!({"task": "one", "idempotency_key": "step-1"});
    let many = futures_util::future::join_all((0..8).map(|_| service.submit(&request))).await;
    let ids: std::collections::BTreeSet<_> =
        many.iter().map(|(_, answer)| answer["id"].to_string()).collect();
    assert_eq!(ids.len(), 1, "{many:?}");
    let (status, error) = service.submit(&json!({"task": "two", "idempotency_key": "step-1"})).await;
    assert_eq!(status, StatusCode::CONFLICT, "{error}");
    assert!(error["error"]["message"].as_str().unwrap().contains("whose other fields differ"), "{error}");
    assert_eq!(service.get("/v1/submissions").await.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_full_queue_says_when_to_come_again() {
    let stage = Stage::new();
    let service = stage.serve(&["-n", "1", "--max-queued", "3"]);
    let (status, error) = service.submit(&json!({"task": "one", "samples": 4})).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{error}");
    let (_, first) = service.submit(&json!({"task": "one", "samples": 3})).await;
    service.until(&first, "running").await;
    // One of its samples runs, so two wait.
    let (status, error) = service.submit(&json!({"task": "one", "samples": 2})).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{error}");
    let response = service.post("/v1/submissions", &json!({"task": "one", "samples": 2})).await;
    assert_eq!(response.headers()["retry-after"], "5");
    let (status, _) = service.submit(&json!({"task": "one"})).await;
    assert_eq!(status, StatusCode::ACCEPTED, "there is room for one");
    stage.open_gate();
    service.until(&first, "done").await;
}

#[tokio::test]
async fn a_higher_priority_begins_first() {
    let stage = Stage::new();
    let service = stage.serve(&["-n", "1"]);
    let (_, first) = service.submit(&json!({"task": "one"})).await;
    service.until(&first, "running").await;
    let (_, low) = service.submit(&json!({"task": "one"})).await;
    let (_, high) = service.submit(&json!({"task": "two", "priority": 5})).await;
    stage.open_gate();
    let (low, high) = (service.until(&low, "done").await, service.until(&high, "done").await);
    let began =
        |submission: &Value| submission["started_at"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert!(began(&high) < began(&low), "{high} {low}");
}

#[tokio::test]
async fn cancelled_and_expired_submissions_stop_and_their_groups_close() {
    let stage = Stage::new();
    let service = stage.serve(&["-n", "2"]);
    let (_, running) = service.submit(&json!({"task": "one", "samples": 4})).await;
    let (_, expiring) = service.submit(&json!({"task": "two", "deadline": 0.5})).await;
    service.until(&running, "running").await;
    service.until(&expiring, "expired").await;
    let id = running["id"].as_str().unwrap();
    let response = service.post(&format!("/v1/submissions/{id}/cancel"), &json!({})).await;
    assert_eq!(response.status(), StatusCode::OK);
    let cancelled = service.until(&running, "cancelled").await;
    assert_eq!(cancelled["groups"][0]["ended"], 0, "{cancelled}");
    let group = cancelled["groups"][0]["group_id"].as_str().unwrap();
    let groups = service.get("/v1/groups").await;
    let closed = groups.as_array().unwrap().iter().find(|known| known["group_id"] == group).unwrap();
    assert!(closed["closed"].is_object(), "{closed}");
    // The trials that were stopped do not count.
    let feed = service.closed_groups().await;
    assert!(feed.iter().all(|trial| trial["reward_valid"] != true), "{feed:?}");

    // All submissions of a policy version.
    service.post("/v1/policy", &json!({"version": "step-1"})).await;
    let (_, one) = service.submit(&json!({"task": "one"})).await;
    service.post("/v1/policy", &json!({"version": "step-2"})).await;
    let (_, other) = service.submit(&json!({"task": "one"})).await;
    assert_eq!((&one["policy_version"], &other["policy_version"]), (&json!(1), &json!(2)));
    let response = service.post("/v1/submissions/cancel", &json!({"policy_version": 1})).await;
    let meant: Vec<Value> = response.json().await.unwrap();
    assert_eq!((meant.len(), &meant[0]["id"]), (1, &one["id"]));
    service.until(&one, "cancelled").await;
    stage.open_gate();
    service.until(&other, "done").await;
}

#[tokio::test]
async fn requests_that_make_no_sense_are_named() {
    let stage = Stage::new();
    let service = stage.serve(&[]);
    let relative = json!({"task_path": "tasks/one"});
    let nowhere = json!({"task_path": "/nowhere"});
    let typo = json!({"task": "one", "sample": 2});
    for (request, words) in [
        (json!({}), "exactly one of task, task_path and dataset"),
        (json!({"task": "one", "dataset": "tasks"}), "exactly one of task, task_path and dataset"),
        (json!({"task": "oen"}), "(did you mean \"one\"?)"),
        (json!({"dataset": "other"}), "there is no dataset \"other\": the service was started with tasks"),
        (json!({"task": "one", "agent": "codex"}), "the service was started with command"),
        (json!({"task": "one", "sampling": {"stream": true}}), "stream"),
        (relative, "the absolute path on the host of the service"),
        (nowhere, "/nowhere is not a directory"),
        (typo, "did you mean \"samples\"?"),
        (json!({"task": "one", "samples": 0}), "samples"),
        (json!({"task": "one", "deadline": -1}), "deadline"),
    ] {
        let (status, error) = service.submit(&request).await;
        assert!(status.is_client_error(), "{request}: {status}");
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains(words), "{words}: {message}");
    }
    assert_eq!(service.get("/v1/submissions").await, json!([]));
    let missing = service.post("/v1/submissions/none/cancel", &json!({})).await;
    assert_eq!(missing.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_dataset_makes_a_group_of_each_of_its_tasks() {
    let stage = Stage::new();
    let service = stage.serve(&["-n", "4", "-k", "2"]);
    stage.open_gate();
    let (_, submission) = service.submit(&json!({"dataset": "tasks"})).await;
    let done = service.until(&submission, "done").await;
    let groups = done["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 2, "{done}");
    assert!(groups.iter().all(|group| group["ended"] == 2), "{done}");
}

#[tokio::test]
async fn a_service_that_is_stopped_continues_and_its_directory_is_no_jobs() {
    let stage = Stage::new();
    let first = stage.serve(&["-n", "2"]);
    let (_, submission) = first.submit(&json!({"task": "one", "samples": 3})).await;
    first.until(&submission, "running").await;
    first.stop();
    let log = stage.log();
    assert!(log.contains("1 submissions have not ended"), "{log}");
    let job = run(stage.path(), &["run", "-p", "tasks", "-e", "local", "-a", "nop", "--job-name", "service"]);
    assert_eq!(job.code, Some(2), "{job:?}");
    assert!(job.stderr.contains("is the directory of a service"), "{job:?}");

    stage.open_gate();
    let second = stage.serve(&["-n", "2"]);
    let done = second.until(&submission, "done").await;
    assert_eq!(done["groups"][0]["ended"], 3, "{done}");
    let feed = second.closed_groups().await;
    let mut samples: Vec<_> = feed.iter().map(|trial| trial["sample_index"].as_u64().unwrap()).collect();
    samples.sort_unstable();
    assert_eq!(samples, [0, 1, 2], "{feed:?}");
}

#[tokio::test]
async fn a_proxy_without_the_service_says_so() {
    let stage = Stage::new();
    let proxy = Service::proxy(stage.path());
    let (status, error) = proxy.submit(&json!({"task": "one"})).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(
        error["error"]["message"].as_str().unwrap().contains("`rolltap serve` is the proxy that does"),
        "{error}"
    );
}

#[test]
fn a_service_that_cannot_start_says_why_and_leaves_no_directory() {
    let stage = Stage::new();
    let start = |args: &[&str]| run(stage.path(), &[&["serve", "--admin", "127.0.0.1:0"], args].concat());
    let refused = start(&["-e", "local", "--proxy", "http://127.0.0.1:1"]);
    assert!(
        refused.code == Some(2) && refused.stderr.contains("rolltap serve has no --proxy"),
        "{refused:?}"
    );
    std::fs::write(stage.path().join("job.yaml"), "rolltap: {proxy: \"http://127.0.0.1:1\"}\n").unwrap();
    let proxied = start(&["-e", "local", "-c", "job.yaml"]);
    assert!(proxied.code == Some(2) && proxied.stderr.contains("has its own proxy"), "{proxied:?}");
    let harbor = start(&["-e", "harbor"]);
    assert!(harbor.code == Some(2) && harbor.stderr.contains("`rolltap run`"), "{harbor:?}");
    let exposed = run(stage.path(), &["serve", "-e", "local", "--admin", "0.0.0.0:0"]);
    assert!(exposed.code == Some(2) && exposed.stderr.contains("--admin-token-file"), "{exposed:?}");
    assert!(!stage.path().join("jobs/service").exists());
    std::fs::create_dir_all(stage.path().join("jobs/service")).unwrap();
    std::fs::write(
        stage.path().join("jobs/service/config.json"),
        r#"{"rolltap": {"job_id": "019ab0c4-5f6a-7d01-9c3e-2f4b7a1d9e55"}}"#,
    )
    .unwrap();
    let of_a_job = start(&["-e", "local"]);
    assert!(of_a_job.stderr.contains("is the directory of a job of `rolltap run`"), "{of_a_job:?}");
}
