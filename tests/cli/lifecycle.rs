//! The life of a trial by the settings of its task: health checks, artifacts, an environment for the tests alone,
//! steps.

use std::fs;
use std::path::{Path, PathBuf};

use rolltap_testing::limit;
use serde_json::{Value, json};

use super::program::{Ended, Running, json as read, run};

/// Makes a task of these files.
fn task(dir: &Path, files: &[(&str, &str)]) -> String {
    let task = dir.join("task");
    for (name, contents) in
        [("instruction.md", "Do it."), ("environment/Dockerfile", "FROM x\nWORKDIR /app\n")]
            .iter()
            .chain(files)
    {
        let path = task.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }
    task.display().to_string()
}

fn run_agent(dir: &Path, task: &str, agent: &[&str]) -> Ended {
    let mut sim = Running::start(dir, &["sim", "--listen", "127.0.0.1:0"]);
    let upstream = sim.next_url();
    let args = ["run", "-p", task, "-e", "local", "--job-name", "it", "--upstream", &upstream];
    run(dir, &[&args[..], agent].concat())
}

fn run_command(dir: &Path, task: &str, command: &str) -> Ended {
    run_agent(dir, task, &["-a", "command", "--agent-command", command])
}

/// Returns the directory of the only trial, and its result.
fn only_trial(dir: &Path) -> (PathBuf, Value) {
    let entries = dir.join("jobs/it").read_dir().unwrap().map(|entry| entry.unwrap().path());
    let trials: Vec<_> = entries.filter(|path| path.join("trial.log").exists()).collect();
    let [trial] = trials.as_slice() else { panic!("one trial: {trials:?}") };
    (trial.clone(), read(&trial.join("result.json")))
}

fn text(path: PathBuf) -> String {
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn a_health_check_that_goes_on_failing_ends_the_trial_before_the_agent() {
    let dir = tempfile::tempdir().unwrap();
    let check = "[environment.healthcheck]\ncommand = \"echo x >> /app/checks; echo not yet >&2; exit 4\"\n\
                 interval_sec = 0.01\nretries = 2\n[verifier]\ncollect = [{ command = \"true\" }]\n";
    let files = [("task.toml", check), ("tests/test.sh", "#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n")];
    let ended = run_command(dir.path(), &task(dir.path(), &files), "true");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let (trial, result) = only_trial(dir.path());
    assert_eq!(result["exception_info"]["exception_type"], "HealthcheckError", "{result}");
    let message = result["exception_info"]["exception_message"].as_str().unwrap();
    assert!(message.starts_with("the health check failed 2 times in a row"), "{message}");
    assert!(message.ends_with("the last one ended with exit code 4: not yet"), "{message}");
    assert_eq!((&result["agent_execution"], &result["verifier"]), (&Value::Null, &Value::Null));
    assert_eq!(result["rolltap"]["failure"]["phase"], "healthcheck");
    assert!(!trial.join("agent/stdout.txt").exists());
}

#[test]
fn failures_in_the_start_period_do_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let check = "[environment.healthcheck]\ncommand = \"echo x >> /app/checks; test $(wc -l < /app/checks) -ge 4\"\n\
                 interval_sec = 0.01\nstart_period_sec = 600\nstart_interval_sec = 0.01\nretries = 1\n";
    // The tests see the agent's files that were written on this host.
    let test =
        "#!/bin/sh\ntest -e /logs/agent/stdout.txt && wc -l < /app/checks > /logs/verifier/reward.txt\n";
    let files = [("task.toml", check), ("tests/test.sh", test)];
    let ended = run_command(dir.path(), &task(dir.path(), &files), "true");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let (_, result) = only_trial(dir.path());
    assert_eq!(result["verifier_result"]["rewards"]["reward"], 4.0, "{result}");
    assert!(result["agent_setup"]["started_at"].is_string());
}

#[test]
fn artifacts_are_collected_before_the_tests_and_listed_as_by_harbor() {
    let dir = tempfile::tempdir().unwrap();
    let toml = r#"
        artifacts = [
            "/app/report.txt",
            { source = "/app/out", destination = "results", exclude = ["*.tmp"] },
            { source = "/app/out/a", destination = "results/again" },
            "/app/missing",
        ]
        [[verifier.collect]]
        command = "cat state > report.txt"
        [[verifier.collect]]
        command = "exit 3"
    "#;
    let test = "#!/bin/sh\nrm -r /app/out /app/report.txt; echo 1 > /logs/verifier/reward.txt\n";
    let files = [("task.toml", toml), ("tests/test.sh", test)];
    let agent = "mkdir -p out/deep; echo a > out/a; echo b > out/deep/b.tmp; echo state > state; \
                 echo kept > /logs/artifacts/kept";
    let ended = run_command(dir.path(), &task(dir.path(), &files), agent);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let (trial, result) = only_trial(dir.path());
    assert_eq!(result["verifier_result"]["rewards"]["reward"], 1.0, "{result}");
    let artifacts = trial.join("artifacts");
    assert_eq!(text(artifacts.join("app/report.txt")), "state\n");
    assert_eq!(text(artifacts.join("results/a")), "a\n");
    assert_eq!(text(artifacts.join("logs/artifacts/kept")), "kept\n");
    assert!(!artifacts.join("results/deep/b.tmp").exists());
    let entry = |source: &str, destination: &str, kind: &str, status: &str, exclude: Value| {
        json!({
            "source": source, "destination": destination, "type": kind, "status": status, "service": null,
            "exclude": exclude,
        })
    };
    assert_eq!(
        read(&artifacts.join("manifest.json")),
        json!([
            entry("/logs/artifacts", "artifacts/logs/artifacts", "directory", "ok", json!([])),
            entry("/app/report.txt", "artifacts/app/report.txt", "file", "ok", json!([])),
            entry("/app/out", "artifacts/results", "directory", "ok", json!(["*.tmp"])),
            entry("/app/out/a", "artifacts/results/again", "directory", "skipped", json!([])),
            entry("/app/missing", "artifacts/app/missing", "file", "failed", json!([])),
        ])
    );
    let log = text(trial.join("trial.log"));
    assert!(log.contains("\"exit 3\", ended with exit code 3"), "{log}");
    assert!(log.contains("artifact \"/app/missing\" not collected: there is no /app/missing"), "{log}");
}

#[test]
fn tests_with_an_environment_of_their_own_see_artifacts_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let toml = r#"
        artifacts = ["/app/out", "/app/answer.txt"]
        [verifier.environment.env]
        WHERE = "apart"
    "#;
    let test = "#!/bin/sh\ncd /app\necho \"$WHERE $(cat answer.txt) $(cat out/a) $(cat /logs/artifacts/kept)\" \
                > /logs/verifier/seen\n\
                test ! -e secret && test ! -e /logs/agent/stdout.txt && echo 1 > /logs/verifier/reward.txt\n";
    let docker = "FROM x\nWORKDIR /app\nCOPY . /tests\n";
    let files = [("task.toml", toml), ("tests/test.sh", test), ("tests/Dockerfile", docker)];
    let agent =
        "mkdir out; echo a > out/a; echo 42 > answer.txt; echo kept > /logs/artifacts/kept; touch secret";
    let ended = run_command(dir.path(), &task(dir.path(), &files), agent);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let (trial, result) = only_trial(dir.path());
    assert_eq!(text(trial.join("verifier/seen")), "apart 42 a kept\n");
    assert_eq!(result["verifier_result"]["rewards"]["reward"], 1.0, "{result}");
    assert_eq!(result["verifier_environment_mode"], "separate");
    assert!(trial.join("agent/stdout.txt").exists(), "the agent's logs are the agent's");
}

const STEPS: &str = r#"
    [[steps]]
    name = "one"
    min_reward = 0.5
    artifacts = ["/app/first"]
    [[steps]]
    name = "two"
    [steps.healthcheck]
    command = "test -e ready"
    interval_sec = 0.01
    [[steps]]
    name = "three"
"#;

/// Makes a task of steps. The tests of each step return the number that its agent wrote to `reward`.
fn steps(dir: &Path) -> String {
    let test = "#!/bin/sh\ncat /app/reward > /logs/verifier/reward.txt\n";
    let files = [
        ("task.toml", STEPS),
        ("tests/test.sh", test),
        ("steps/one/instruction.md", "first"),
        ("steps/two/instruction.md", "second"),
        ("steps/two/tests/helper", ""),
        ("steps/two/workdir/setup.sh", "touch ready\n"),
        ("steps/three/instruction.md", "third"),
    ];
    task(dir, &files)
}

#[test]
fn steps_are_worked_at_one_after_the_other_in_one_environment() {
    let dir = tempfile::tempdir().unwrap();
    let task = steps(dir.path());
    let agent = "ls /tests /logs/verifier /logs/artifacts /logs/agent > seen 2>&1; cp seen /logs/artifacts; \
                 case $ROLLTAP_INSTRUCTION in first) touch first; echo 1 > reward;; second) echo 0.5 > reward; exit 3;; \
                 third) test -e first && test -e ready && echo 0 > reward;; esac";
    let ended = run_command(dir.path(), &task, agent);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let (trial, result) = only_trial(dir.path());
    assert_eq!(result["verifier_result"]["rewards"], json!({"reward": 0.5}), "{result}");
    assert_eq!(result["exception_info"], Value::Null, "a step's failure is the step's");
    assert_eq!(result["rolltap"]["failure"]["step"], "two");
    assert_eq!(result["verifier_environment_mode"], Value::Null);
    let steps = result["step_results"].as_array().unwrap();
    let names: Vec<_> = steps.iter().map(|step| step["step_name"].as_str().unwrap()).collect();
    assert_eq!(names, ["one", "two", "three"]);
    let rewards: Vec<_> = steps.iter().map(|step| &step["verifier_result"]["rewards"]["reward"]).collect();
    assert_eq!(rewards, [&json!(1.0), &json!(0.5), &json!(0.0)]);
    assert_eq!(steps[1]["exception_info"]["exception_type"], "NonZeroAgentExitCodeError");
    assert!(steps[2]["agent_execution"]["finished_at"].is_string());
    assert!(trial.join("steps/one/artifacts/app/first").exists());
    assert!(trial.join("steps/three/verifier/test-stdout.txt").exists());
    for step in ["one", "two", "three"] {
        let seen = text(trial.join("steps").join(step).join("artifacts/logs/artifacts/seen"));
        let left = seen.contains("test.sh") || seen.contains("reward.txt") || seen.contains("stdout.txt");
        assert!(!left, "{step} sees what is left of the one before: {seen}");
    }
    let row = text(dir.path().join("jobs/it/rollouts.jsonl"));
    assert!(row.is_empty(), "no call, no row: {row}");
}

#[test]
fn no_step_is_begun_after_one_that_gave_too_little_or_could_not_begin() {
    for (agent, rewards, begun) in
        [("echo 0.25 > reward", json!({"reward": 0.25}), 1), ("echo 1 > reward; rm -f ready", Value::Null, 2)]
    {
        let dir = tempfile::tempdir().unwrap();
        let task = steps(dir.path());
        if begun == 2 {
            fs::write(Path::new(&task).join("steps/two/workdir/setup.sh"), "exit 9\n").unwrap();
        }
        let ended = run_command(dir.path(), &task, agent);
        let (_, result) = only_trial(dir.path());
        let steps = result["step_results"].as_array().unwrap();
        assert_eq!(steps.len(), begun, "{ended:?} {result}");
        if begun == 1 {
            assert_eq!(result["verifier_result"]["rewards"], rewards);
        } else {
            assert_eq!(ended.code, Some(1));
            assert_eq!(steps[1]["exception_info"]["exception_type"], "RuntimeError", "{result}");
            assert_eq!(steps[1]["verifier_result"], Value::Null);
            assert_eq!(result["verifier_result"]["rewards"], json!({"reward": 1.0}), "of what was judged");
        }
    }
}

#[test]
fn what_a_task_gives_its_agent_is_given_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let toml = "[environment]\nskills_dir = \"/app/skills\"\n[[environment.mcp_servers]]\nname = \"files\"\n\
                url = \"http://files/sse\"\n";
    let trajectory = r#"{"schema_version": "ATIF-v1.8", "steps": [{"step_id": 1}]}"#;
    let test = "#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n";
    let files = [("task.toml", toml), ("trajectory.json", trajectory), ("tests/test.sh", test)];
    let task = task(dir.path(), &files);
    let ended = run_agent(dir.path(), &task, &["-a", "terminal"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let refusal = "gives its agent the trajectory to continue, and agent \"terminal\" takes none";
    assert!(ended.stderr.contains(refusal), "{}", ended.stderr);
    let agent = "echo \"$ROLLTAP_MCP_SERVERS $ROLLTAP_SKILLS_DIR\"; cat \"$ROLLTAP_TRAJECTORY_FILE\"";
    assert_eq!(run_command(dir.path(), &task, agent).code, Some(0));
    let (trial, _) = only_trial(dir.path());
    let told = text(trial.join("agent/stdout.txt"));
    assert!(
        told.starts_with(r#"[{"name":"files","transport":"sse","url":"http://files/sse","headers":{}}] /"#)
    );
    assert!(told.contains("/app/skills\n") && told.ends_with(trajectory), "{told}");
}

#[test]
fn a_trial_whose_own_time_is_over_is_ended_wherever_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let test = "#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n";
    let files = [
        ("task.toml", "artifacts = [\"/app/kept\"]\n"),
        ("tests/test.sh", test),
        ("solution/solve.sh", "#!/bin/sh\nsleep 600\n"),
    ];
    let task = task(dir.path(), &files);
    let job = json!({
        "agents": [{"name": "oracle"}],
        "tasks": [{"path": task}],
        "rolltap": {"environment": "local", "trial_deadline_sec": 1.5},
    });
    fs::write(dir.path().join("job.json"), job.to_string()).unwrap();
    let job = Running::start(dir.path(), &["run", "-c", "job.json", "--job-name", "it"]);
    let (code, stderr) = job.wait(limit(60));
    assert_eq!(code, Some(1), "the cause is unknown: {stderr}");
    let (_, result) = only_trial(dir.path());
    assert_eq!(result["exception_info"]["exception_type"], "TrialDeadlineError", "{result}");
    assert_eq!((&result["verifier"], &result["verifier_result"]), (&Value::Null, &Value::Null));
    assert_eq!(result["rolltap"]["proxy"]["failure_cause"], "TrialDeadlineError");
    assert_eq!(result["rolltap"]["proxy"]["reward"], Value::Null);
}
