//! `rolltap serve` on real parts: the terminal agent in Docker containers, a real vLLM, and a trainer that submits groups
//! and takes them with a budget of staleness.

use std::process::Output;

use rolltap_proxy::api::RolloutLine;
use rolltap_testing::http_client;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::docker_job::PATTERN;
use crate::harness::vllm;
use crate::program::{check, listed, rolltap, text};
use crate::viewer::program::Server;

/// Runs a command against the service.
async fn command(arguments: Vec<String>) -> Output {
    let run = move || rolltap(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    tokio::task::spawn_blocking(run).await.unwrap()
}

/// Takes one closed group after a cursor.
async fn take_group(service: &str, cursor: &mut Option<String>) -> Vec<RolloutLine> {
    let mut taken: Vec<RolloutLine> = Vec::new();
    while taken.last().is_none_or(|last| last.group_remaining != Some(0)) {
        let after = cursor.as_ref().map(|cursor| format!("&after={cursor}")).unwrap_or_default();
        let url = format!("{service}/v1/rollouts?closed_groups=true&limit=1&wait=60{after}");
        let answer = http_client().get(url).send().await.unwrap().text().await.unwrap();
        let lines = answer.lines().map(|line| serde_json::from_str::<RolloutLine>(line).unwrap());
        taken.extend(lines);
        *cursor = taken.last().map(|last| last.cursor.clone());
    }
    taken
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs vLLM and Docker: run ./scripts/test"]
async fn a_trainer_submits_groups_and_takes_their_tokens_within_its_budget() {
    let dir = TempDir::new().unwrap();
    let sampling = json!({
        "structured_outputs": {"regex": PATTERN}, "chat_template_kwargs": {"enable_thinking": false},
        "max_tokens": 200, "temperature": 1,
    });
    // Tests of several runs may share one Docker engine.
    let name = format!("service-{}", std::process::id());
    let task = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tasks/hello-prebuilt");
    let (upstream, sampling) = (format!("{}/v1", vllm()), sampling.to_string());
    let jobs = dir.path().display().to_string();
    let work =
        ["serve", "-p", task, "-a", "terminal", "-e", "docker", "-n", "auto:2", "--upstream", &upstream];
    let place = ["--jobs-dir", &jobs, "--job-name", &name, "--admin", "127.0.0.1:0", "--sampling", &sampling];
    let pace = ["--max-staleness", "1", "--groups-per-step", "1"];
    let service = Server::start(&[&work[..], &place, &pace].concat(), 1);
    let url = service.urls[0].clone();

    let submit = |task: &str| {
        let arguments = ["submit", task, "-k", "2", "--json", "--url", &url];
        command(arguments.map(str::to_owned).to_vec())
    };
    let mut groups = Vec::new();
    for _ in 0..3 {
        let output = submit("hello-prebuilt").await;
        assert!(output.status.success(), "{}", text(&output.stderr));
        let submission: Value = serde_json::from_slice(&output.stdout).unwrap();
        groups.push(submission["groups"][0]["group_id"].as_str().unwrap().to_owned());
    }
    let (mut cursor, mut taken) = (None, Vec::new());
    for version in 0..3_i32 {
        let group = take_group(&url, &mut cursor).await;
        assert_eq!(group.len(), 2, "a group comes whole");
        for row in group.iter().flat_map(|trial| trial.rows()) {
            let sampled = row.token_version.iter().zip(&row.sampled_mask).filter(|(_, mask)| **mask == 1);
            let ages: Vec<i32> = sampled.map(|(sampled, _)| version - sampled).collect();
            assert!(!ages.is_empty() && ages.iter().all(|age| *age <= 1), "{ages:?}");
        }
        taken.push(group[0].group_id.as_ref().unwrap().to_string());
        let body = json!({"version": format!("step-{version}")});
        http_client().post(format!("{url}/v1/policy")).json(&body).send().await.unwrap();
    }
    taken.sort();
    groups.sort();
    assert_eq!(taken, groups);
    // The cache of the real vLLM is known, and no trial has kept its place.
    let upstreams = http_client().get(format!("{url}/v1/upstreams")).send().await.unwrap();
    let upstreams: Value = upstreams.json().await.unwrap();
    let cache = &upstreams[0]["kv_cache"];
    assert!(cache["capacity_tokens"].as_u64() > Some(0), "{upstreams}");
    assert_eq!(cache["open_trials"], 0, "{upstreams}");

    let checked = check(&dir.path().join(&name).join("data"));
    assert!(checked.status.success(), "{}{}", text(&checked.stdout), text(&checked.stderr));
    service.stop();
    let left = listed(&["ps", "-aq", "--filter", &format!("label=dev.rolltap.job={name}")]);
    assert_eq!(left, [""; 0], "containers are left");
}
