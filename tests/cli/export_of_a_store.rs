//! `rolltap export` of a data directory whose proxy is still running.

use std::path::Path;

use serde_json::{Value, json};

use super::program::{Ended, run};
use super::rollouts::read_jsonl;
use super::servers::{post, start};

/// A trial to create.
struct Asked {
    name: &'static str,
    /// Its group, and the size of the group if there is one.
    group: (&'static str, Option<u32>),
    sample_index: u32,
    attempt: u32,
    calls: bool,
    /// `None` if the trial is sealed without a reward.
    reward: Option<f64>,
}

async fn live(admin: &str, asked: &Asked) {
    let &Asked { name, group: (group, size), sample_index, attempt, calls, reward } = asked;
    let mut body = json!({"task_id": "task", "trial_id": name, "group_id": group, "sample_index": sample_index,
                          "attempt": attempt});
    if let Some(size) = size {
        body["group_size"] = size.into();
    }
    let trial = post(&format!("{admin}/v1/trials"), body).await;
    if calls {
        let url = format!("{}/chat/completions", trial["base_urls"]["openai"].as_str().unwrap());
        post(&url, json!({"model": "sim", "messages": [{"role": "user", "content": "write hello.txt"}]}))
            .await;
    }
    post(&format!("{admin}/v1/trials/{name}/seal"), json!({})).await;
    if let Some(reward) = reward {
        let put = rolltap_testing::http_client().put(format!("{admin}/v1/trials/{name}/reward"));
        let answer = put.json(&json!({"rewards": {"reward": reward}})).send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    }
}

fn export(dir: &Path, output: &str, args: &[&str]) -> Ended {
    let fixed = ["export", "data", "--quiet", "--format", "jsonl", "--advantage", "mean", "-o", output];
    run(dir, &[&fixed[..], args].concat())
}

fn advantages(path: &Path) -> Vec<(String, f64)> {
    let rows = read_jsonl(path).into_iter();
    rows.map(|row| (row.trial_id, row.advantage.unwrap())).collect()
}

#[tokio::test]
async fn what_is_complete_counts_and_whole_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let (_sim, _proxy, _, admin) = start(dir.path());
    let trial = |name, group, sample_index, reward| Asked {
        name,
        group,
        sample_index,
        attempt: 0,
        calls: true,
        reward,
    };
    let (full, closed, open) = (("full", Some(3)), ("closed", None), ("open", Some(2)));
    let trials = [
        trial("first-try", full, 0, Some(0.5)),
        Asked { attempt: 1, ..trial("second-try", full, 0, Some(1.0)) },
        trial("failure", full, 1, Some(0.0)),
        Asked { calls: false, ..trial("silent", full, 2, Some(0.0)) },
        trial("by-call", closed, 0, Some(1.0)),
        trial("early", open, 0, Some(1.0)),
        trial("unrewarded", open, 1, None),
    ];
    for trial in &trials {
        live(&admin, trial).await;
    }
    let closed: Value = post(&format!("{admin}/v1/groups/closed/close"), json!({})).await;
    assert_eq!(closed["closed"]["cause"], "call", "{closed}");

    let ended = export(dir.path(), "out.jsonl", &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let told: Vec<_> = ended.stderr.lines().skip(1).collect();
    let expected = [
        "left out: 1 trial not complete: no seal or no reward yet",
        "left out: 1 trial superseded by a later attempt (--superseded takes them)",
        "left out: 1 trial of groups that are not whole (--open-groups takes them)",
        "without a sampled token, with a reward: 1 trial, counted in the advantages of their group",
        "advantage 0: 1 trial, of whose group no other trial counts",
    ];
    assert_eq!(told, expected, "{}", ended.stderr);
    let advantage = |name: &str, advantage| (name.to_owned(), advantage);
    // The mean is of 1, 0 and the 0 of the silent trial.
    let third = 1.0 / 3.0;
    let expected =
        [advantage("second-try", 1.0 - third), advantage("failure", -third), advantage("by-call", 0.0)];
    assert_eq!(advantages(&dir.path().join("out.jsonl")), expected);

    let ended = export(dir.path(), "more.jsonl", &["--superseded", "--open-groups"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let expected = [
        advantage("first-try", 0.125),
        advantage("second-try", 0.625),
        advantage("failure", -0.375),
        advantage("by-call", 0.0),
        advantage("early", 0.0),
    ];
    assert_eq!(advantages(&dir.path().join("more.jsonl")), expected);
    let checked = run(dir.path(), &["check", "more.jsonl"]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
}

/// An unreadable record in the middle may have held anything.
#[tokio::test]
async fn damaged_captures_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (sim, proxy, _, admin) = start(dir.path());
    let group = ("full", Some(1));
    for name in ["a", "b"] {
        let group = if name == "a" { group } else { ("other", Some(1)) };
        live(&admin, &Asked { name, group, sample_index: 0, attempt: 0, calls: true, reward: Some(1.0) })
            .await;
    }
    drop((sim, proxy));
    let mut segments: Vec<_> =
        dir.path().join("data").read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    segments.retain(|path| std::fs::metadata(path).unwrap().len() > 100);
    let [segment] = segments.as_slice() else { panic!("{segments:?}") };
    let mut bytes = std::fs::read(segment).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(segment, bytes).unwrap();
    let ended = export(dir.path(), "out.jsonl", &[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("the captures are damaged: "), "{}", ended.stderr);
    assert!(!dir.path().join("out.jsonl").exists());
}

/// A file of rows has nothing of a trial that sampled no tokens, but the captures next to it do.
#[tokio::test]
async fn a_silent_failure_takes_its_group_with_it_from_a_job_too() {
    let dir = tempfile::tempdir().unwrap();
    let (sim, proxy, _, admin) = start(dir.path());
    let trial = |name, group, sample_index, calls, reward| Asked {
        name,
        group: (group, Some(2)),
        sample_index,
        attempt: 0,
        calls,
        reward,
    };
    for asked in [
        trial("worked", "spoilt", 0, true, Some(1.0)),
        trial("silent", "spoilt", 1, false, None),
        trial("one", "sound", 0, true, Some(1.0)),
        trial("two", "sound", 1, true, Some(0.0)),
    ] {
        live(&admin, &asked).await;
    }
    let put = rolltap_testing::http_client().put(format!("{admin}/v1/trials/silent/reward"));
    let failure = json!({"rewards": {}, "valid": false, "failure_cause": "AgentTimeoutError"});
    assert!(put.json(&failure).send().await.unwrap().status().is_success());
    drop((sim, proxy));

    assert_eq!(export(dir.path(), "rows.jsonl", &[]).code, Some(0));
    let job = dir.path().join("job");
    std::fs::create_dir(&job).unwrap();
    std::fs::rename(dir.path().join("rows.jsonl"), job.join("rollouts.jsonl")).unwrap();
    std::fs::rename(dir.path().join("data"), job.join("data")).unwrap();
    for input in ["job/data", "job"] {
        let output = format!("{}.jsonl", input.replace('/', "-"));
        let args =
            ["export", input, "--quiet", "--format", "jsonl", "--open-groups", "--failed", "drop-group"];
        let ended = run(dir.path(), &[&args[..], &["-o", &output]].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let told: Vec<_> = ended.stderr.lines().skip(1).collect();
        let expected = [
            "left out: 1 trial failed (--failed drop)",
            "left out: 1 trial of groups in which a trial failed (--failed drop-group)",
        ];
        assert_eq!(told, expected, "{input}");
        let rows = read_jsonl(&dir.path().join(output));
        assert_eq!(rows.iter().map(|row| row.trial_id.as_str()).collect::<Vec<_>>(), ["one", "two"]);
    }
}
