//! Environment `harbor`: Harbor's own package runs the trials, in its docker environment.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rolltap_sim as sim;
use rolltap_testing::{free_port, limit};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::testbed;
use crate::program::{Job, both_outputs, check, text};

/// The model writes a file, and then sends the completion twice, because the agent asks for a confirmation.
const SCRIPT: &str = r#"
[[conversation]]
[[conversation.turn]]
[[conversation.turn.answer]]
content = '''{"analysis": "A file is wanted.", "plan": "Write it.", "commands": [{"keystrokes": "echo 'Hello, world!' > hello.txt\n", "duration": 0.5}]}'''
[[conversation.turn]]
[[conversation.turn.answer]]
content = '''{"analysis": "It is there.", "plan": "None.", "commands": [], "task_complete": true}'''
"#;

const HELLO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tasks/hello-prebuilt");

fn harbor(job: &Job, arguments: &[&str]) -> Command {
    let mut command = job.command(&["-e", "harbor"]);
    let python = format!("{}/python", testbed("ROLLTAP_TESTBED_CLIENTS"));
    command.args(["--harbor-python", &python]).args(arguments);
    command
}

/// Returns the only trial's result, as Harbor wrote it, with rolltap's own keys.
fn result(job: &Job) -> Value {
    let dir = trial_dir(job).expect("no trial");
    serde_json::from_slice(&fs::read(dir.join("result.json")).unwrap()).unwrap()
}

fn trial_dir(job: &Job) -> Option<std::path::PathBuf> {
    let entries = fs::read_dir(job.dir()).ok()?;
    entries.map(|entry| entry.unwrap().path()).find(|path| path.join("trial.log").is_file())
}

fn write(dir: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

/// Makes a task whose image has this machine's tmux, so that the build needs no network.
pub(crate) fn task_with_tmux(dir: &Path) {
    write(
        dir,
        &[
            ("task.toml", "[task]\nname = \"rolltap/terminus\"\n[agent]\ntimeout_sec = 1200.0\n"),
            ("instruction.md", "Write 'Hello, world!' to hello.txt."),
            (
                "tests/test.sh",
                "#!/bin/sh\ngrep -q 'Hello, world!' /app/hello.txt && echo 1 > /logs/verifier/reward.txt\n",
            ),
            (
                "environment/Dockerfile",
                &format!(
                    "FROM {}\nCOPY tmux /usr/bin/tmux\nCOPY lib/ /usr/lib/x86_64-linux-gnu/\nENV LANG=C.UTF-8\nWORKDIR /app\n",
                    testbed("ROLLTAP_TESTBED_IMAGE")
                ),
            ),
        ],
    );
    let environment = dir.join("environment");
    fs::create_dir_all(environment.join("lib")).unwrap();
    fs::copy("/usr/bin/tmux", environment.join("tmux")).unwrap();
    let libraries = Command::new("ldd").arg("/usr/bin/tmux").output().unwrap();
    for path in text(&libraries.stdout).split_whitespace().filter(|word| word.starts_with("/lib/")) {
        let name = Path::new(path).file_name().unwrap();
        // The C library is the image's own.
        if !["libc.so", "libm.so", "libresolv.so"].iter().any(|own| name.to_str().unwrap().starts_with(own)) {
            fs::copy(path, environment.join("lib").join(name)).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker and Harbor: run ./scripts/test"]
async fn terminus_2_in_harbors_hands_is_captured_as_harbor_collects_it() {
    let answers = sim::Script::from_toml(SCRIPT, "script").unwrap();
    let upstream =
        sim::start(sim::Settings { script: Some(answers), ..sim::Settings::default() }).await.unwrap();
    let task = TempDir::new().unwrap();
    task_with_tmux(task.path());
    let job = Job::new("harbor-terminus");
    let mut command =
        harbor(&job, &["-a", "terminus-2", "--upstream", &format!("http://{}", upstream.addr())]);
    for kwarg in ["collect_rollout_details=true", "record_terminal_session=false", "enable_summarize=false"] {
        command.args(["--agent-kwarg", kwarg]);
    }
    // The agent gets the public URL, as on another machine.
    let port = free_port();
    let (listen, public) = (format!("127.0.0.1:{port}"), format!("http://localhost:{port}"));
    command.args(["--listen", &listen, "--public-url", &public]);
    command.arg("-p").arg(task.path());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{}", both_outputs(&output));
    let result = result(&job);
    let base_url = result["config"]["agent"]["base_url"].as_str().unwrap();
    assert!(base_url.starts_with(&public), "{base_url}");
    let own = &result["rolltap"];
    assert_eq!((&own["reward"], &own["proxy"]["calls"]["complete"]), (&json!(1.0), &json!(3)));
    let comparison = &own["returned"]["comparison"];
    assert_eq!((&comparison["same"], &comparison["returned"]), (&json!(3), &json!(3)), "{own}");
    assert_eq!(result["verifier_result"]["rewards"], json!({"reward": 1.0}));
    assert_eq!(job.rows().iter().map(|row| row.reward).collect::<Vec<_>>(), [Some(1.0)]);
    assert!(check(&job.dir()).status.success());
    assert_eq!(job.left_in_docker(), Vec::<String>::new());
}

#[test]
#[ignore = "needs Docker and Harbor: run ./scripts/test"]
fn oracle_nop_and_tests_without_a_reward_are_reported_as_by_harbor() {
    let silent = TempDir::new().unwrap();
    let image = testbed("ROLLTAP_TESTBED_PREBUILT");
    write(
        silent.path(),
        &[
            (
                "task.toml",
                &format!("[task]\nname = \"rolltap/silent\"\n[environment]\ndocker_image = \"{image}\"\n"),
            ),
            ("instruction.md", "Nothing."),
            ("tests/test.sh", "#!/bin/sh\n"),
        ],
    );
    let silent = silent.path().to_str().unwrap();
    for (name, agent, task, code, reward, cause) in [
        ("harbor-oracle", "oracle", HELLO, 0, json!(1.0), Value::Null),
        ("harbor-nop", "nop", HELLO, 0, json!(0.0), Value::Null),
        ("harbor-silent", "nop", silent, 1, Value::Null, json!("RewardFileNotFoundError")),
    ] {
        let job = Job::new(name);
        let output = harbor(&job, &["-a", agent, "-p", task]).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{name}: {}", both_outputs(&output));
        let own = result(&job)["rolltap"].clone();
        assert_eq!((&own["reward"], &own["failure"]["cause"]), (&reward, &cause), "{name}");
        assert_eq!(job.left_in_docker(), Vec::<String>::new());
    }
}

#[test]
#[ignore = "needs Docker and Harbor: run ./scripts/test"]
fn settings_of_a_job_that_override_its_tasks_reach_harbor() {
    let (given, image) = (TempDir::new().unwrap(), testbed("ROLLTAP_TESTBED_PREBUILT"));
    let toml = format!("[task]\nname = \"rolltap/told\"\n[environment]\ndocker_image = \"{image}\"\n");
    write(
        given.path(),
        &[
            ("data/word", "here"),
            ("task/task.toml", &toml),
            ("task/instruction.md", "Nothing."),
            ("task/solution/solve.sh", "#!/bin/sh\necho $MARK $(cat /given/word) >/app/seen\n"),
            (
                "task/tests/test.sh",
                "#!/bin/sh\ngrep -q 'marked here' /app/seen && echo 1 >/logs/verifier/reward.txt\n",
            ),
        ],
    );
    let job = Job::new("harbor-told");
    let config = json!({
        "agents": [{"name": "oracle"}],
        "environment": {
            "env": {"MARK": "marked"}, "override_memory_mb": 300, "override_cpus": 1,
            "mounts": [{"type": "bind", "source": given.path().join("data"), "target": "/given", "read_only": true}],
        },
        "artifacts": ["/app/seen"],
        "tasks": [{"path": given.path().join("task")}],
    });
    let file = given.path().join("job.json");
    fs::write(&file, config.to_string()).unwrap();
    let output = harbor(&job, &["-c", file.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", both_outputs(&output));
    let result = result(&job);
    assert_eq!(result["rolltap"]["reward"], 1.0, "variable and mount are there: {}", both_outputs(&output));
    let environment = &result["config"]["environment"];
    assert_eq!((&environment["override_memory_mb"], &environment["override_cpus"]), (&json!(300), &json!(1)));
    let kept = fs::read_to_string(trial_dir(&job).unwrap().join("artifacts/app/seen")).unwrap();
    assert_eq!(kept, "marked here\n");
    assert_eq!(job.left_in_docker(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Harbor: run ./scripts/test"]
async fn harbors_objections_to_a_job_are_reported_before_it_starts() {
    let upstream = sim::start(sim::Settings::default()).await.unwrap();
    let job = Job::new("harbor-refused");
    let url = format!("http://{}", upstream.addr());
    let output = harbor(&job, &["-a", "nobody", "-p", HELLO, "--upstream", &url]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", both_outputs(&output));
    assert!(both_outputs(&output).contains("Agent name nobody is not valid"), "{}", both_outputs(&output));
    assert!(!job.dir().exists());
}

#[test]
#[ignore = "needs Docker and Harbor: run ./scripts/test"]
fn a_worker_that_is_killed_in_mid_trial_leaves_a_failure_and_nothing_else() {
    let task = TempDir::new().unwrap();
    let image = testbed("ROLLTAP_TESTBED_PREBUILT");
    write(
        task.path(),
        &[
            (
                "task.toml",
                &format!("[task]\nname = \"rolltap/endless\"\n[environment]\ndocker_image = \"{image}\"\n"),
            ),
            ("instruction.md", "Wait."),
            ("tests/test.sh", "#!/bin/sh\n"),
            ("solution/solve.sh", "#!/bin/sh\nsleep 1000\n"),
        ],
    );
    let job = Job::new("harbor-killed");
    let mut run = harbor(&job, &["-a", "oracle", "-p", task.path().to_str().unwrap()]).spawn().unwrap();
    let end = Instant::now() + limit(240);
    let is_working = || {
        let log = trial_dir(&job).and_then(|dir| fs::read_to_string(dir.join("trial.log")).ok());
        log.is_some_and(|log| log.contains("begins phase agent"))
    };
    while !is_working() {
        assert!(run.try_wait().unwrap().is_none() && Instant::now() < end, "the agent never began");
        std::thread::sleep(Duration::from_millis(100));
    }
    let children = Command::new("pgrep").args(["-P", &run.id().to_string()]).output().unwrap();
    let children = text(&children.stdout);
    let mut workers = children.split_whitespace();
    let worker = workers.next().expect("no worker");
    assert_eq!(workers.next(), None);
    assert!(Command::new("kill").args(["-9", worker]).status().unwrap().success());
    assert_eq!(run.wait().unwrap().code(), Some(1));
    let own = result(&job)["rolltap"].clone();
    assert_eq!((&own["reward"], &own["failure"]["cause"]), (&Value::Null, &json!("RuntimeRequestError")));
    assert_eq!(own["failure"]["is_agents_fault"], false);
    assert_eq!(job.left_in_docker(), Vec::<String>::new());
}
