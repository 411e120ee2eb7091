//! Interrupted jobs that are resumed, and two runs on one job.

use std::fs;
use std::path::Path;

use rolltap_testing::{limit, until};
use serde_json::{Value, json};

use super::jobs::{read, results, task};
use super::program::{ENDS_AT_ONCE, Ended, Running, run, simulator};

/// Returns a test script. The first test passes, and all others wait for a file `go`.
fn waiting(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        "until mkdir {dir}/first 2> /dev/null || [ -e {dir}/go ]; do sleep 0.05; done\n\
         echo 1 > /logs/verifier/reward.txt"
    )
}

/// A simulated model, and the arguments of a job of two samples, run in sequence by an agent that calls the model.
struct Stage {
    dir: tempfile::TempDir,
    _sim: Running,
    args: Vec<String>,
}

impl Stage {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (sim, url) = simulator(dir.path(), Some(ENDS_AT_ONCE));
        let task = task(dir.path(), "waiting", &waiting(dir.path())).display().to_string();
        let args =
            ["run", "-p", &task, "-a", "terminal", "-e", "local", "-k", "2", "-n", "1", "--job-name", "it"];
        let args = args.into_iter().chain(["--upstream", &url]).map(str::to_owned).collect();
        Self { dir, _sim: sim, args }
    }

    fn job(&self) -> std::path::PathBuf {
        self.dir.path().join("jobs/it")
    }

    fn args(&self) -> Vec<&str> {
        self.args.iter().map(String::as_str).collect()
    }

    /// Starts the job and waits until its second trial is being verified.
    fn half(&self) -> Running {
        let job = Running::start(self.dir.path(), &self.args());
        let judged = |trial: &Path| {
            let log = fs::read_to_string(trial.join("trial.log")).unwrap_or_default();
            log.contains("sealed after")
        };
        until("the second trial is judged", || {
            let entries = self.job().read_dir().into_iter().flatten();
            entries.filter(|entry| judged(&entry.as_ref().unwrap().path())).count() == 2
        });
        job
    }

    fn go(&self) {
        fs::write(self.dir.path().join("go"), "").unwrap();
    }

    /// Checks that both samples ended, one of them after an interrupted attempt, and that every row is valid.
    fn assert_whole(&self, ended: &Ended) {
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let result = read(&self.job().join("result.json"));
        assert_eq!(result["n_total_trials"], 2);
        let stats = &result["stats"];
        assert_eq!(
            (&stats["n_completed_trials"], &stats["n_errored_trials"]),
            (&json!(2), &json!(0)),
            "{stats}"
        );
        let trials = results(&self.job());
        let attempts: Vec<_> = trials
            .iter()
            .map(|trial| {
                let own = &trial["config"]["rolltap"];
                (
                    own["sample_index"].as_u64().unwrap(),
                    own["attempt"].as_u64().unwrap(),
                    trial["exception_info"]["exception_type"].clone(),
                )
            })
            .collect();
        let mut attempts = attempts;
        attempts.sort_by_key(|(sample, attempt, _)| (*sample, *attempt));
        assert_eq!(
            attempts,
            [(0, 0, Value::Null), (1, 0, json!("CancelledError")), (1, 1, Value::Null)],
            "a new attempt at the sample that was under way"
        );
        let rows = fs::read_to_string(self.job().join("rollouts.jsonl")).unwrap();
        let rows: Vec<Value> = rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let counting: Vec<_> = rows.iter().filter(|row| row["superseded"] == false).collect();
        assert_eq!(counting.len(), 2, "one row per sample: {rows:?}");
        assert!(counting.iter().all(|row| row["reward"] == 1.0));
        assert_eq!(rows.len(), 3, "the interrupted attempt's tokens are in rows of their own");
        let check = run(self.dir.path(), &["check", "jobs/it"]);
        assert_eq!(check.code, Some(0), "{check:?}");
    }
}

#[test]
fn a_killed_job_goes_on_where_it_was() {
    let stage = Stage::new();
    let job = stage.half();
    job.signal("KILL");
    job.wait(limit(20));
    stage.go();
    let first = results_of_sample_0(&stage.job());
    let ended = run(stage.dir.path(), &stage.args());
    stage.assert_whole(&ended);
    assert_eq!(results_of_sample_0(&stage.job()), first, "what had ended is untouched");
}

fn results_of_sample_0(job: &Path) -> Vec<u8> {
    let entries = job.read_dir().unwrap().map(|entry| entry.unwrap().path().join("result.json"));
    let mut ended =
        entries.filter(|path| path.exists() && read(path)["config"]["rolltap"]["sample_index"] == 0);
    fs::read(ended.next().unwrap()).unwrap()
}

#[test]
fn a_cancelled_job_is_resumed_from_its_directory_alone() {
    let stage = Stage::new();
    let job = stage.half();
    job.signal("INT");
    let (code, stderr) = job.wait(limit(20));
    assert_eq!(code, Some(1), "{stderr}");
    stage.go();
    let ended = run(stage.dir.path(), &["run", "--resume", "jobs/it"]);
    stage.assert_whole(&ended);
    let again = run(stage.dir.path(), &["run", "--resume", "jobs/it"]);
    stage.assert_whole(&again);
}

#[test]
fn an_interrupted_job_names_the_command_that_resumes_it_with_another_concurrency() {
    let stage = Stage::new();
    let job = stage.half();
    job.signal("INT");
    let (code, summary) = job.wait_for_output(limit(20));
    assert_eq!(code, Some(1), "{summary}");
    let hint =
        summary.lines().find(|line| line.starts_with("resume:")).unwrap_or_else(|| panic!("{summary}"));
    assert_eq!(hint, "resume:   rolltap resume jobs/it  (1 trial to run)");
    stage.go();
    let other = run(stage.dir.path(), &["resume", "jobs/it", "-k", "3"]);
    assert_eq!(other.code, Some(2), "{other:?}");
    let expected = "of a job with n_attempts = 2, and this command has 3, which would change its results";
    assert!(other.stderr.contains(expected), "{}", other.stderr);
    let resumed = run(stage.dir.path(), &["resume", "jobs/it", "-n", "2", "--n-concurrent-per-task", "1"]);
    let begins = "resuming jobs/it: 1 of 2 trials complete (0 failed), 1 to run";
    assert!(resumed.stderr.contains(begins), "{}", resumed.stderr);
    assert!(!resumed.stdout.contains("resume:"), "{}", resumed.stdout);
    stage.assert_whole(&resumed);
}

#[test]
fn two_runs_on_one_job_are_one_too_many() {
    let stage = Stage::new();
    let job = stage.half();
    let second = run(stage.dir.path(), &stage.args());
    assert_eq!(second.code, Some(2), "{second:?}");
    assert!(second.stderr.contains("jobs/it is in use by another run (process "), "{}", second.stderr);
    stage.go();
    let (code, stderr) = job.wait(limit(60));
    assert_eq!(code, Some(0), "the first is not disturbed: {stderr}");
}

#[test]
fn another_job_of_that_name_is_refused_with_the_difference() {
    let dir = tempfile::tempdir().unwrap();
    let task = task(dir.path(), "one", "echo 1 > /logs/verifier/reward.txt");
    let task = task.to_str().unwrap();
    let args = ["run", "-p", task, "-a", "nop", "-e", "local", "--job-name", "same"];
    assert_eq!(run(dir.path(), &args).code, Some(0));
    let before = fs::read(dir.path().join("jobs/same/result.json")).unwrap();
    let ended = run(dir.path(), &[&args[..], &["-k", "2"]].concat());
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(
        ended.stderr.contains("of a job with n_attempts = 1, and this command has 2"),
        "{}",
        ended.stderr
    );
    assert_eq!(fs::read(dir.path().join("jobs/same/result.json")).unwrap(), before);
    fs::write(Path::new(task).join("instruction.md"), "Do something else.").unwrap();
    let ended = run(dir.path(), &args);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("task one is not what it was"), "{}", ended.stderr);
}
