//! Verifying the trials of a job again, with changed tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rolltap_testing::{limit, until};
use serde_json::{Value, json};

use super::jobs::{read, task};
use super::program::{ENDS_AT_ONCE, Ended, Running, run, simulator};

/// The tests of a verifier that is wrong.
const WRONG: &str = "echo 0 > /logs/verifier/reward.txt";
/// The tests of a verifier that looks at the work of the agent.
const RIGHT: &str = "grep -q 4 /logs/artifacts/answer && echo 1 > /logs/verifier/reward.txt";

const SEPARATE: &str = "[environment]\ndocker_image = \"unused\"\n[verifier]\nenvironment_mode = \"separate\"\n\
                        [[verifier.collect]]\ncommand = \"echo 4 > /logs/artifacts/answer\"\n";

/// A finished job of two samples of a task with these tests, whose trials have captured calls.
struct Stage {
    dir: tempfile::TempDir,
    task: PathBuf,
    _sim: Running,
    /// The proxy of the job. `None` if the job embeds one.
    _proxy: Option<Running>,
}

impl Stage {
    fn new(config: Option<&str>, test: &str) -> Self {
        Self::start(config, test, &[], false)
    }

    /// Runs the job with more files in its task, through a proxy that is not the job's own if `has_proxy`.
    fn start(config: Option<&str>, test: &str, files: &[(&str, &str)], has_proxy: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (sim, url) = simulator(dir.path(), Some(ENDS_AT_ONCE));
        let task = task(dir.path(), "one", test);
        if let Some(config) = config {
            fs::write(task.join("task.toml"), config).unwrap();
        }
        for (file, text) in files {
            let path = task.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let path = task.display().to_string();
        let mut proxy = has_proxy.then(|| {
            let planes = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data", "store"];
            Running::start(dir.path(), &[&["proxy", "--upstream", &url], &planes[..]].concat())
        });
        let reach = match &mut proxy {
            None => vec!["--upstream".to_owned(), url],
            Some(proxy) => {
                let (_agents, admin) = (proxy.next_url(), proxy.next_url());
                vec!["--proxy".to_owned(), admin, "-m".to_owned(), "sim".to_owned()]
            }
        };
        let args =
            ["run", "-p", &path, "-a", "terminal", "-e", "local", "-k", "2", "-n", "1", "--job-name", "it"];
        let ended =
            run(dir.path(), &[&args[..], &reach.iter().map(String::as_str).collect::<Vec<_>>()].concat());
        assert!(ended.stdout.contains("rollouts:"), "{ended:?}");
        Self { dir, task, _sim: sim, _proxy: proxy }
    }

    fn change_tests(&self, test: &str) {
        fs::write(self.task.join("tests/test.sh"), format!("#!/bin/sh\n{test}\n")).unwrap();
    }

    fn run(&self, args: &[&str]) -> Ended {
        run(self.dir.path(), args)
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join("jobs/it").join(path)
    }

    /// Returns the content of every file of the job outside `regrades/` and `data/`.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut dirs = vec![self.path("")];
        while let Some(dir) = dirs.pop() {
            for entry in dir.read_dir().unwrap().map(|entry| entry.unwrap().path()) {
                match entry.file_name().unwrap().to_str().unwrap() {
                    "regrades" | "data" | ".running" => {}
                    _ if entry.is_dir() => dirs.push(entry),
                    _ => drop(files.insert(entry.clone(), fs::read(entry).unwrap())),
                }
            }
        }
        files
    }
}

/// Returns the reward and the version of each row of a file.
fn rewards(path: &Path) -> Vec<(Value, Value)> {
    let rows = fs::read_to_string(path).unwrap();
    let rows = rows.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    rows.map(|row| (row["reward"].clone(), row["reward_version"].clone())).collect()
}

#[test]
fn changed_tests_give_rewards_beside_the_old_ones_and_both_are_exported() {
    let stage = Stage::new(Some(SEPARATE), WRONG);
    let before = stage.files();
    stage.change_tests(RIGHT);
    let ended = stage.run(&["regrade", "jobs/it"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("reward 0 -> 1"), "{}", ended.stderr);
    assert_eq!(stage.files(), before, "nothing of the job changes");

    let result = read(&stage.path("regrades/regrade-1/result.json"));
    let stats = &result["stats"];
    assert_eq!((&stats["n_regraded"], &stats["n_rewards_up"]), (&json!(2), &json!(2)), "{stats}");
    assert_eq!((&stats["mean_before"], &stats["mean_after"]), (&json!(0.0), &json!(1.0)));
    assert_eq!(rewards(&stage.path("rollouts.jsonl")), vec![(json!(0.0), Value::Null); 2]);
    let new = vec![(json!(1.0), json!("regrade-1")); 2];
    assert_eq!(rewards(&stage.path("regrades/regrade-1/rollouts.jsonl")), new);

    let data = stage.path("data").display().to_string();
    for (input, is_job) in [("jobs/it", true), (&data, false)] {
        for (version, expected) in [(None, 0.0), (Some("regrade-1"), 1.0)] {
            let choice: Vec<_> = version.iter().flat_map(|version| ["--reward-version", version]).collect();
            let out = format!("{is_job}-{}.jsonl", version.unwrap_or("own"));
            let export = [&["export", input, "--format", "jsonl", "-o", &out][..], &choice].concat();
            let exported = stage.run(&export);
            assert_eq!(exported.code, Some(0), "{exported:?}");
            let rows = rewards(&stage.dir.path().join(&out));
            assert_eq!(rows, vec![(json!(expected), json!(version)); 2], "{input}");
            let checked = stage.run(&[&["check", input][..], &choice].concat());
            assert_eq!(checked.code, Some(0), "{checked:?}");
        }
    }
    for input in ["jobs/it", &data] {
        let unknown = stage.run(&["check", input, "--rewards", "other"]);
        assert_eq!(unknown.code, Some(2), "{unknown:?}");
        assert!(unknown.stderr.contains("the versions are regrade-1"), "{}", unknown.stderr);
    }
}

#[test]
fn each_step_is_verified_again_on_its_own_artifacts() {
    let config = format!("{SEPARATE}[[steps]]\nname = \"one\"\n[[steps]]\nname = \"two\"\n");
    let instructions = [("steps/one/instruction.md", "First."), ("steps/two/instruction.md", "Second.")];
    let stage = Stage::start(Some(&config), WRONG, &instructions, false);
    stage.change_tests(RIGHT);
    let ended = stage.run(&["regrade", "jobs/it"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("reward 0 -> 1"), "{}", ended.stderr);
    let rows = rewards(&stage.path("regrades/regrade-1/rollouts.jsonl"));
    assert!(!rows.is_empty() && rows.iter().all(|row| *row == (json!(1.0), json!("regrade-1"))), "{rows:?}");
}

#[test]
fn the_version_of_a_job_through_another_proxy_is_at_that_proxy() {
    let stage = Stage::start(Some(SEPARATE), WRONG, &[], true);
    stage.change_tests(RIGHT);
    let ended = stage.run(&["regrade", "jobs/it"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let store = stage.run(&[
        "export",
        "store",
        "--format",
        "jsonl",
        "-o",
        "x.jsonl",
        "--reward-version",
        "regrade-1",
    ]);
    assert_eq!(store.code, Some(0), "{store:?}");
    let new = vec![(json!(1.0), json!("regrade-1")); 2];
    assert_eq!(rewards(&stage.dir.path().join("x.jsonl")), new);
}

#[test]
fn a_killed_regrade_is_completed_and_what_ended_is_not_run_again() {
    let stage = Stage::new(Some(SEPARATE), WRONG);
    let dir = stage.dir.path().display().to_string();
    // The first tests end, and all others wait for a file `go`.
    stage.change_tests(&format!(
        "until mkdir {dir}/first 2> /dev/null || [ -e {dir}/go ]; do sleep 0.05; done\necho run >> {dir}/runs\n{RIGHT}"
    ));
    let killed = Running::start(stage.dir.path(), &["regrade", "jobs/it"]);
    let ended = || {
        let trials = stage.path("regrades/regrade-1").read_dir().into_iter().flatten();
        trials
            .map(|entry| entry.unwrap().path().join("result.json"))
            .find(|path| path.is_file() && path.parent().unwrap().join("trial.log").exists())
    };
    until("the first trial is verified", || ended().is_some());
    killed.signal("KILL");
    killed.wait(limit(20));
    let first = ended().unwrap();
    let record = fs::read(&first).unwrap();
    fs::write(stage.dir.path().join("go"), "").unwrap();
    let completed = stage.run(&["regrade", "jobs/it"]);
    assert_eq!(completed.code, Some(0), "{completed:?}");
    assert!(completed.stderr.contains("completing version regrade-1"), "{}", completed.stderr);
    assert_eq!(fs::read(&first).unwrap(), record, "it is not run again");
    let new = vec![(json!(1.0), json!("regrade-1")); 2];
    assert_eq!(rewards(&stage.path("regrades/regrade-1/rollouts.jsonl")), new);
    let checked = stage.run(&["check", "jobs/it", "--reward-version", "regrade-1"]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    // A complete version stays, so the next run makes another one.
    let next = stage.run(&["regrade", "jobs/it", "-q"]);
    assert_eq!(next.code, Some(0), "{next:?}");
    assert!(stage.path("regrades/regrade-2/result.json").is_file());
    stage.change_tests(WRONG);
    let other = stage.run(&["regrade", "jobs/it", "--name", "regrade-2"]);
    assert_eq!(other.code, Some(2), "{other:?}");
    assert!(other.stderr.contains("regrade-2 was made with tasks[0].digest = \"sha256:"), "{}", other.stderr);
}

#[test]
fn trials_that_are_not_chosen_have_the_same_reward_in_the_version() {
    let stage = Stage::new(Some(SEPARATE), WRONG);
    stage.change_tests(RIGHT);
    let failed = stage.run(&["regrade", "jobs/it", "--failed-only", "--name", "failed"]);
    assert_eq!(failed.code, Some(0), "{failed:?}");
    assert!(failed.stderr.contains("reward 0 stays"), "{}", failed.stderr);
    let same = vec![(json!(0.0), json!("failed")); 2];
    assert_eq!(rewards(&stage.path("regrades/failed/rollouts.jsonl")), same);
    let none = stage.run(&["regrade", "jobs/it", "--task", "two*"]);
    assert_eq!(none.code, Some(2), "{none:?}");
    assert!(none.stderr.contains("matches two*; there are: one"), "{}", none.stderr);
}

#[test]
fn tests_that_need_the_agents_container_are_refused_with_the_remedy() {
    let stage = Stage::new(None, WRONG);
    let before = stage.files();
    let refused = stage.run(&["regrade", "jobs/it"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    for part in
        ["not regraded: 2 trials", "agent's container, which is gone", "environment_mode = \"separate\""]
    {
        assert!(refused.stdout.contains(part), "{}", refused.stdout);
    }
    assert_eq!(rewards(&stage.path("regrades/regrade-1/rollouts.jsonl"))[0].0, Value::Null, "never 0");
    // A task that was changed to separate tests lacks nothing if its artifacts were collected.
    fs::write(stage.task.join("task.toml"), SEPARATE).unwrap();
    stage.change_tests("echo 0.5 > /logs/verifier/reward.txt");
    let graded = stage.run(&["regrade", "jobs/it", "--name", "separate"]);
    assert_eq!(graded.code, Some(0), "{graded:?}");
    assert_eq!(rewards(&stage.path("regrades/separate/rollouts.jsonl"))[0].0, json!(0.5));
    assert_eq!(stage.files(), before);
    let missing = SEPARATE.replace("[environment]", "artifacts = [\"/app/out\"]\n[environment]");
    fs::write(stage.task.join("task.toml"), missing).unwrap();
    let refused = stage.run(&["regrade", "jobs/it", "--name", "more"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stdout.contains("lacks artifacts: /app/out was not collected"), "{}", refused.stdout);
}

#[test]
fn only_a_job_that_ended_is_regraded() {
    let stage = Stage::new(Some(SEPARATE), WRONG);
    let nothing = stage.run(&["regrade", "jobs"]);
    assert_eq!(nothing.code, Some(2), "{nothing:?}");
    assert!(nothing.stderr.contains("jobs is no job directory"), "{}", nothing.stderr);
    let mut result = read(&stage.path("result.json"));
    result["finished_at"] = Value::Null;
    fs::write(stage.path("result.json"), result.to_string()).unwrap();
    let unfinished = stage.run(&["regrade", "jobs/it"]);
    assert_eq!(unfinished.code, Some(2), "{unfinished:?}");
    assert!(
        unfinished.stderr.contains("did not end") && unfinished.stderr.contains("rolltap resume "),
        "{unfinished:?}"
    );
}
