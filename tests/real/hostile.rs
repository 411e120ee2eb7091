//! Attacks of agents, tests and builds on a job: its memory, disk and time are bounded, it ends, and nothing is left.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rolltap_testing::{limit, until};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::{Job, both_outputs, text};

const REWARD: &str = "echo 1 >/logs/verifier/reward.txt\n";

/// Makes a task whose agent is its own solution. `more` has the files of the environment.
fn task(toml: &str, more: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let files = [("task.toml", toml), ("instruction.md", "Do it.")];
    for (name, text) in files.iter().chain(more) {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

fn prebuilt(more: &str) -> String {
    let image = std::env::var("ROLLTAP_TESTBED_PREBUILT").unwrap();
    format!("[environment]\ndocker_image = \"{image}\"\n{more}")
}

/// Returns the only trial's directory and result.
fn only_trial(job: &Job, said: &str) -> (std::path::PathBuf, Value) {
    let dirs = fs::read_dir(job.dir()).unwrap().map(|entry| entry.unwrap().path());
    let dirs: Vec<_> = dirs.filter(|dir| dir.join("result.json").is_file()).collect();
    let [dir] = dirs.as_slice() else { panic!("one trial: {said}") };
    (dir.clone(), serde_json::from_slice(&fs::read(dir.join("result.json")).unwrap()).unwrap())
}

/// Runs a task by its own solution with `rolltap run`, until it exits.
fn solve(job: &Job, task: &Path) -> Output {
    job.command(&["-a", "oracle", "-p"]).arg(task).output().unwrap()
}

fn bytes_below(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let size = |entry: fs::DirEntry| match entry.metadata().unwrap() {
        metadata if metadata.is_dir() => bytes_below(&entry.path()),
        metadata => metadata.blocks() * 512,
    };
    entries.map(size).sum()
}

#[test]
#[ignore = "needs Docker: run ./scripts/test"]
fn gigabytes_of_output_fill_neither_memory_nor_the_jobs_directory() {
    let flood = "head -c 536870912 /dev/zero\n";
    let task =
        task(&prebuilt(""), &[("solution/solve.sh", flood), ("tests/test.sh", &format!("{flood}{REWARD}"))]);
    let job = Job::new("flood");
    let mut command = job.command(&["-a", "oracle", "-p"]);
    let mut run = command.arg(task.path()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let status = format!("/proc/{}/status", run.id());
    let mut most_kib = 0;
    while run.try_wait().unwrap().is_none() {
        let status = fs::read_to_string(&status).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok());
        most_kib = most_kib.max(kib.unwrap_or(0));
        std::thread::sleep(Duration::from_millis(20));
    }
    let said = both_outputs(&run.wait_with_output().unwrap());
    let (_, result) = only_trial(&job, &said);
    assert_eq!(result["verifier_result"]["rewards"]["reward"], 1.0, "{said}");
    assert!((1..300 * 1024).contains(&most_kib), "{most_kib} KiB of memory");
    let kept = bytes_below(&job.dir());
    assert!(kept < 32 << 20, "{kept} bytes are stored");
    assert_eq!(job.left_in_docker(), Vec::<String>::new());
}

#[test]
#[ignore = "needs Docker: run ./scripts/test"]
fn an_agent_that_forks_hides_and_takes_away_the_logs_is_ended_and_judged() {
    let marker = format!("86400.{}", std::process::id());
    let agent = format!(
        "trap '' TERM INT HUP\nrm -rf /logs /tests\n\
         for _ in 1 2 3 4 5 6 7 8; do\n\
         setsid sh -c \"trap '' TERM INT HUP; (sleep {marker} &) ; sleep {marker}\" </dev/null >/dev/null 2>&1 &\n\
         done\n\
         while :; do sleep {marker}; done\n"
    );
    let judge = format!("! grep -az 'sleep' /proc/[0-9]*/cmdline | grep -aq '{marker}' && {REWARD}");
    let task = task(
        &prebuilt("[agent]\ntimeout_sec = 3.0\n"),
        &[("solution/solve.sh", &agent), ("tests/test.sh", &judge)],
    );
    let job = Job::new("hiding");
    let said = both_outputs(&solve(&job, task.path()));
    let (_, result) = only_trial(&job, &said);
    assert_eq!(result["exception_info"]["exception_type"], "AgentTimeoutError", "{said}");
    assert_eq!(result["verifier_result"]["rewards"]["reward"], 1.0, "nothing of it runs: {said}");
    assert_eq!(job.left_in_docker(), Vec::<String>::new());
}

#[test]
#[ignore = "needs Docker: run ./scripts/test"]
fn a_disk_that_the_agent_filled_is_reported_and_nothing_hangs() {
    // `/dev/shm` is the only file system of a container with a size limit.
    let agent = "rm -rf /logs; mkdir -p /dev/shm/logs && ln -s /dev/shm/logs /logs\n\
                 cat /dev/zero >/dev/shm/filler; true\n";
    let task = |tests: &str| task(&prebuilt(""), &[("solution/solve.sh", agent), ("tests/test.sh", tests)]);
    let on_full_disk = "echo 1 >/dev/shm/reward.txt && cp /dev/shm/reward.txt /logs/verifier\n";
    let job = Job::new("filled");
    let said = both_outputs(&solve(&job, task(on_full_disk).path()));
    let (dir, result) = only_trial(&job, &said);
    let exception = &result["exception_info"]["exception_type"];
    assert!(exception.as_str().is_some_and(|name| name.starts_with("RewardFile")), "{result:#}: {said}");
    let tests = fs::read_to_string(dir.join("verifier/test-stdout.txt")).unwrap();
    assert!(tests.contains("No space left on device"), "{tests}");
    assert_eq!(result["verifier_result"], Value::Null, "{said}");
    assert_eq!(job.left_in_docker(), Vec::<String>::new());

    // The tests start with a new `/logs/verifier`, and not with the agent's link to the full disk.
    let job = Job::new("linked");
    let said = both_outputs(&solve(&job, task(&format!("true\n{REWARD}")).path()));
    let (_, result) = only_trial(&job, &said);
    assert_eq!(result["verifier_result"]["rewards"]["reward"], 1.0, "{result:#}: {said}");
    assert_eq!(job.left_in_docker(), Vec::<String>::new());
}

#[test]
#[ignore = "needs Docker: run ./scripts/test"]
fn a_build_that_takes_too_long_is_ended_and_reported() {
    let image = std::env::var("ROLLTAP_TESTBED_PREBUILT").unwrap();
    let marker = format!("86400.{}", std::process::id());
    let dockerfile = format!("FROM {image}\nRUN sleep {marker}\n");
    let task = task(
        "[environment]\nbuild_timeout_sec = 3.0\n",
        &[
            ("environment/Dockerfile", &dockerfile),
            ("solution/solve.sh", "true\n"),
            ("tests/test.sh", REWARD),
        ],
    );
    let job = Job::new("slow-build");
    let begun = Instant::now();
    let output = solve(&job, task.path());
    let said = both_outputs(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let (_, result) = only_trial(&job, &said);
    let exception = &result["exception_info"];
    assert_eq!(exception["exception_type"], "EnvironmentStartTimeoutError", "{said}");
    assert!(exception["exception_message"].as_str().unwrap().contains("after 3 s"), "{exception}");
    assert!(begun.elapsed() < limit(60), "{:?}", begun.elapsed());
    // The engine takes a moment to notice that its client is gone.
    let ps =
        || Command::new("docker").args(["ps", "--no-trunc", "--format", "{{.Command}}"]).output().unwrap();
    until("the build's container is gone", || !text(&ps().stdout).contains(&marker));
    assert_eq!(job.left_in_docker(), Vec::<String>::new());
}

#[test]
#[ignore = "needs Docker: run ./scripts/test"]
fn mounts_and_skills_of_a_job_reach_its_agent_and_its_container_stays_on_request() {
    let (job, given) = (Job::new("given"), tempfile::tempdir().unwrap());
    fs::create_dir_all(given.path().join("skills/greet")).unwrap();
    fs::write(given.path().join("skills/greet/SKILL.md"), "Say hello.").unwrap();
    fs::write(given.path().join("data"), "here").unwrap();
    let agent = "touch /given/mine 2>/dev/null && exit 1\n\
                 cat /given/data /runtime/skills/greet/SKILL.md >/app/seen\n";
    let judge = format!("grep -q 'hereSay hello.' /app/seen && {REWARD}");
    let task = task(&prebuilt(""), &[("solution/solve.sh", agent), ("tests/test.sh", &judge)]);
    let config = json!({
        "agents": [{"name": "oracle", "skills": [given.path().join("skills")]}],
        "environment": {
            "delete": false,
            "mounts": [{"type": "bind", "source": given.path(), "target": "/given", "read_only": true}],
        },
        "tasks": [{"path": task.path()}],
    });
    let file = given.path().join("job.json");
    fs::write(&file, config.to_string()).unwrap();
    let output = job.command(&["-c"]).arg(&file).output().unwrap();
    let said = both_outputs(&output);
    let (dir, result) = only_trial(&job, &said);
    assert_eq!(result["verifier_result"]["rewards"]["reward"], 1.0, "{said}");
    let log = fs::read_to_string(dir.join("trial.log")).unwrap();
    let name =
        log.lines().find_map(|line| line.split_once("its container ")?.1.strip_suffix(" is not removed"));
    let name = name.unwrap_or_else(|| panic!("{log}"));
    let kept =
        Command::new("docker").args(["inspect", "--format", "{{.State.Running}}", name]).output().unwrap();
    let removed = Command::new("docker").args(["rm", "-fv", name]).output().unwrap();
    assert_eq!(text(&kept.stdout).trim(), "false", "{}", text(&kept.stderr));
    assert!(removed.status.success(), "{}", text(&removed.stderr));
    assert_eq!(job.left_in_docker(), Vec::<String>::new());
    let again = job.command(&["-c"]).arg(job.dir().join("config.json")).output().unwrap();
    assert_eq!(again.status.code(), Some(0), "its own record is the same job: {}", text(&again.stderr));
}
