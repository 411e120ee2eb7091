//! Tests Harbor's reward rules row by row, and whole verifications in the local environment.

mod flow;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use proptest::prelude::*;
use tempfile::TempDir;

use super::tests_run::OUTPUT;
use super::*;
use crate::environment::{EnvironmentKind, Exec, Host, JobLabel, LogDirs, TrialLabel};
use crate::task::Task;

/// Returns the outcome of [`parse`] in short: the rewards, or Harbor's name for the failure.
fn outcome(json: Option<&str>, text: Option<&str>) -> String {
    match parse(json.map(str::as_bytes), text.map(str::as_bytes)) {
        Ok(Some(rewards)) => format!("{:?} {:?}", rewards, Rewards::from(rewards.clone()).reward),
        Ok(None) => "none".to_owned(),
        Err(error) => error.failure_cause().to_owned(),
    }
}

#[test]
fn rewards_are_read_by_harbors_rules() {
    const PARSE: &str = "VerifierOutputParseError";
    const EMPTY: &str = "RewardFileEmptyError";
    for (json, text, expected) in [
        (None, None, "none"),
        (None, Some(""), EMPTY),
        (Some(""), Some("1"), EMPTY),
        (None, Some("1"), r#"{"reward": 1.0} Some(1.0)"#),
        (None, Some(" 0.5\n"), r#"{"reward": 0.5} Some(0.5)"#),
        (None, Some("-1e-3"), r#"{"reward": -0.001} Some(-0.001)"#),
        (None, Some("1_000"), r#"{"reward": 1000.0} Some(1000.0)"#),
        (None, Some("1__0"), PARSE),
        (None, Some("_1"), PARSE),
        (None, Some(" "), PARSE),
        (None, Some("pass"), PARSE),
        (None, Some("NaN"), PARSE),
        (None, Some("inf"), PARSE),
        (None, Some("1 2"), PARSE),
        (None, Some("0,5"), PARSE),
        // `reward.json` takes precedence, even if it is invalid.
        (Some(r#"{"reward": 0.25}"#), Some("1"), r#"{"reward": 0.25} Some(0.25)"#),
        (Some("pass"), Some("1"), PARSE),
        (Some(r#"{"reward": 1, "style": 0.5}"#), None, r#"{"reward": 1.0, "style": 0.5} Some(1.0)"#),
        (Some(r#"{"accuracy": 0.75}"#), None, r#"{"accuracy": 0.75} Some(0.75)"#),
        (Some(r#"{"a": 0, "b": 1}"#), None, r#"{"a": 0.0, "b": 1.0} None"#),
        (Some("{}"), None, "{} None"),
        (Some(r#"{"reward": true, "other": false}"#), None, r#"{"other": 0.0, "reward": 1.0} Some(1.0)"#),
        (Some(r#"{"reward": "1"}"#), None, PARSE),
        (Some(r#"{"reward": null}"#), None, PARSE),
        (Some(r#"{"reward": [1]}"#), None, PARSE),
        (Some(r#"{"reward": {"a": 1}}"#), None, PARSE),
        (Some(r#"{"reward": NaN}"#), None, PARSE),
        (Some(r#"{"reward": 1e999}"#), None, PARSE),
        (Some("0.5"), None, "ValidationError"),
        (Some("true"), None, "ValidationError"),
        (Some("null"), None, PARSE),
        (Some("[0.5]"), None, PARSE),
        (Some(r#"{"reward": 1} x"#), None, PARSE),
    ] {
        assert_eq!(outcome(json, text), expected, "{json:?} {text:?}");
    }
}

#[test]
fn a_wrong_reward_is_reported_with_its_text() {
    let error = parse(None, Some(b"pass\n")).unwrap_err().to_string();
    assert_eq!(error, "reward.txt: \"pass\" is no finite number; expected one finite number");
    let error = parse(Some(br#"{"reward": "1"}"#), None).unwrap_err().to_string();
    assert_eq!(
        error,
        r#"reward.json: "reward" is "1"; expected an object of finite numbers, such as {"reward": 0.5}"#
    );
    assert!(parse(None, Some(&[b'x'; 9999])).unwrap_err().to_string().len() < 300);
}

proptest! {
    #[test]
    fn whatever_is_accepted_is_finite(json in proptest::option::of("\\PC{0,40}"), text in proptest::option::of("\\PC{0,20}")) {
        if let Ok(Some(rewards)) = parse(json.as_deref().map(str::as_bytes), text.as_deref().map(str::as_bytes)) {
            prop_assert!(rewards.values().all(|reward| reward.is_finite()));
        }
    }

    #[test]
    fn no_bytes_make_it_panic(json: Option<Vec<u8>>, text: Option<Vec<u8>>) {
        let _ = parse(json.as_deref(), text.as_deref());
    }

    #[test]
    fn finite_numbers_come_through_exactly(rewards in proptest::collection::btree_map("[a-z]{1,8}", -1e300..1e300_f64, 0..5)) {
        let json = serde_json::to_vec(&rewards).unwrap();
        prop_assert_eq!(parse(Some(&json), None).unwrap(), Some(rewards.clone()));
        if let Some(reward) = rewards.values().next() {
            let text = format!("{reward}\n");
            let parsed = parse(None, Some(text.as_bytes())).unwrap().unwrap();
            prop_assert_eq!(parsed["reward"], *reward);
        }
    }
}

#[test]
fn fuzz_rewards() {
    rolltap_testing::fuzz!("rewards", |bytes| {
        let rewards = [parse(Some(bytes), None), parse(None, Some(bytes))];
        for reward in rewards.into_iter().flatten().flatten().flatten() {
            assert!(reward.1.is_finite(), "{reward:?}");
        }
    });
}

/// Makes a task on this host whose tests are this script.
fn task(script: &str, toml: &str) -> (TempDir, Task) {
    let dir = tempfile::tempdir().unwrap();
    for (name, contents) in [
        ("task.toml", toml),
        ("instruction.md", "Do it."),
        ("environment/Dockerfile", "FROM debian\nWORKDIR /app\n"),
        ("tests/test.sh", script),
    ] {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }
    let task = Task::load(dir.path()).unwrap();
    (dir, task)
}

async fn verify_locally(script: &str, toml: &str, before: &str) -> (Result<Rewards, VerifierError>, TempDir) {
    let (_dir, task) = task(script, toml);
    let host = Host::connect(EnvironmentKind::Local, &JobLabel::new("test")).await.unwrap();
    let prepared = host.prepare(&task).await.unwrap();
    let environment = host.start(&prepared, &task, &TrialLabel::new("trial")).await.unwrap();
    let command = before.replace("/logs/verifier", &environment.paths().verifier_logs);
    environment.exec(Exec { command, ..Exec::default() }).await.unwrap();
    let logs = tempfile::tempdir().unwrap();
    let limit = Some(Duration::from_secs_f64(task.config.verifier.timeout_sec));
    let verdict = verify(&task, &environment, &LogDirs::below(logs.path()), limit).await;
    environment.stop().await.unwrap();
    (verdict, logs)
}

#[tokio::test]
async fn the_tests_are_run_and_their_output_is_stored_whatever_their_exit_code() {
    let script = "#!/bin/bash\necho out; echo err >&2; echo $KEY >/logs/verifier/key; echo 0.5 >/logs/verifier/reward.txt; exit 3\n";
    let (verdict, logs) = verify_locally(script, "[verifier.env]\nKEY = \"value\"\n", "true").await;
    assert_eq!(verdict.unwrap().reward, Some(0.5));
    let read = |name: &str| fs::read_to_string(logs.path().join("verifier").join(name)).unwrap();
    assert_eq!((read(OUTPUT).as_str(), read("key").as_str()), ("out\nerr\n", "value\n"));
    assert_eq!(logs.path().join("verifier/key").metadata().unwrap().permissions().mode() & 0o777, 0o644);
}

#[tokio::test]
async fn rewards_that_the_agent_left_do_not_count() {
    let stale = "echo 1 >/logs/verifier/reward.txt; mkdir /logs/verifier/reward.json";
    let (verdict, logs) = verify_locally("#!/bin/sh\necho no reward\n", "", stale).await;
    let error = verdict.unwrap_err();
    assert_eq!(error.failure_cause(), "RewardFileNotFoundError");
    let output = logs.path().join("verifier").join(OUTPUT);
    assert_eq!(
        error.to_string(),
        format!(
            "tests/test.sh left neither reward.json nor reward.txt in /logs/verifier (exit code 0); its output is in {}",
            output.display()
        )
    );
    assert_eq!(fs::read_to_string(output).unwrap(), "no reward\n");
}

#[tokio::test]
async fn a_locale_that_is_not_there_is_no_trouble() {
    let script = "#!/bin/bash\necho 1 >/logs/verifier/reward.txt\n";
    let (verdict, _logs) = verify_locally(script, "[verifier.env]\nLC_ALL = \"xx_XX.UTF-8\"\n", "true").await;
    assert_eq!(verdict.unwrap().reward, Some(1.0));
}

#[tokio::test]
async fn tests_that_cannot_be_begun_are_the_environments_trouble() {
    let mount =
        "rm -r /logs/verifier && mkdir -p /logs/verifier/reward.txt/x && chmod 500 /logs/verifier/reward.txt";
    let script = "#!/bin/sh\nexit 0\n";
    let (verdict, _logs) = verify_locally(script, "", mount).await;
    // Only root can remove a file that it has no write permission for.
    let error = verdict.unwrap_err();
    match error {
        VerifierError::RewardFileNotFound { .. } => assert!(rustix::process::getuid().is_root()),
        error => assert_eq!(error.failure_cause(), "RuntimeError", "{error}"),
    }
}

#[tokio::test]
async fn tests_without_end_are_a_timeout_and_leave_their_output() {
    let script = "#!/bin/sh\necho begun; echo 1 >/logs/verifier/reward.txt; sleep 1000\n";
    let (verdict, logs) = verify_locally(script, "[verifier]\ntimeout_sec = 2\n", "true").await;
    let error = verdict.unwrap_err();
    assert_eq!(error.failure_cause(), "VerifierTimeoutError");
    assert!(error.to_string().starts_with("the tests were still running after 2 s;"), "{error}");
    assert_eq!(fs::read_to_string(logs.path().join("verifier").join(OUTPUT)).unwrap(), "begun\n");
}
