//! Values that cannot be meant are refused at the start, with what was expected and what to do.

use std::fs;

use rolltap_testing::{limit, until};
use serde_json::{Value, json};

use super::jobs::task;
use super::program::{Running, run, unused_address};

/// Runs a command that must be refused. Returns its standard error.
fn refused(args: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    task(dir.path(), "one", "true");
    let ended = run(dir.path(), args);
    assert_eq!(ended.code, Some(2), "{args:?}: {ended:?}");
    assert!(!dir.path().join("jobs").join("it").exists(), "{ended:?}");
    ended.stderr
}

const RUN: [&str; 5] = ["run", "-p", "tasks", "--job-name", "it"];

fn refused_run(more: &[&str]) -> String {
    let defaults = [["-e", "local"], ["-a", "nop"]];
    let missing: Vec<_> = defaults.into_iter().filter(|[flag, _]| !more.contains(flag)).flatten().collect();
    refused(&[&RUN[..], &missing, more].concat())
}

#[test]
fn numbers_out_of_range_are_refused_with_the_range() {
    for (args, expected) in [
        (["-n", "0"], "for '--concurrency <NUMBER|auto>': expected a whole number of at least 1"),
        (["-n", "auto:0"], "expected a whole number of at least 1"),
        (["-n", "automatic"], "expected auto, or auto:NUMBER"),
        (["-k", "-1"], "for '--samples <NUMBER>': expected a whole number of at least 1"),
        (["-k", "many"], "expected a whole number of at least 1"),
        (["-k", "99999999999"], "the number is too large"),
        (["--timeout-multiplier", "-1"], "expected a number above 0"),
        (["--override-cpus", "nan"], "expected a number above 0"),
        (["-r", "-2"], "expected a whole number of at least 0"),
        (["-l", "0"], "expected a whole number of at least 1"),
        (["--max-turns", "0"], "expected a whole number of at least 1"),
        (["-k", "1000000"], "make 1000000 trials, and a job has at most 100000"),
    ] {
        let error = refused_run(&args);
        assert!(error.contains(expected), "{args:?}: {error}");
    }
}

#[test]
fn auto_concurrency_needs_the_proxy_of_the_job() {
    let error = refused_run(&["-n", "auto", "--proxy", "http://127.0.0.1:1"]);
    assert!(error.contains("-n auto needs the job's own proxy") && error.contains("--upstream"), "{error}");
}

#[test]
fn a_proxy_that_cannot_start_gives_its_cause_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (url, at) = ("http://127.0.0.1:1", "127.0.0.1:0");
    let args =
        ["proxy", "--upstream", url, "--listen", at, "--admin", at, "--data", "data", "--tokenizer", "none"];
    let ended = run(dir.path(), &args);
    assert!(ended.code == Some(2) && ended.stderr.contains("none/tokenizer.json"), "{ended:?}");
    assert!(!ended.stderr.contains("capture store"), "{ended:?}");
}

#[test]
fn a_misspelt_name_is_answered_with_the_nearest() {
    for (args, expected) in [
        (["-a", "claude"], "did you mean \"claude-code\"?"),
        (["-e", "dockr"], "did you mean \"docker\"?"),
        (["--sampling", r#"{"temprature": 1}"#], "sampling.temprature: "),
        (["--sampling", r#"{"temprature": 1}"#], "did you mean \"temperature\"?"),
        (["--samplng", "{}"], "a similar argument exists: '--sampling'"),
    ] {
        let error = refused_run(&args);
        assert!(error.contains(expected), "{args:?}: {error}");
    }
    let format = refused(&["export", ".", "--format", "josnl"]);
    assert!(format.contains("a similar value exists: 'jsonl'"), "{format}");
}

#[test]
fn keys_of_a_job_file_have_suggestions_and_values_plain_words() {
    let dir = tempfile::tempdir().unwrap();
    task(dir.path(), "one", "echo 1 > /logs/verifier/reward.txt");
    let job = |file: Value| {
        fs::write(dir.path().join("job.json"), file.to_string()).unwrap();
        run(dir.path(), &["run", "-c", "job.json"])
    };
    let base = json!({"job_name": "it", "tasks": [{"path": "tasks/one"}], "agents": [{"name": "nop"}],
                      "rolltap": {"environment": "local"}});
    let with = |key: &str, value: Value| {
        let mut file = base.clone();
        file[key] = value;
        file
    };
    let misspelt = job(with("n_attemptz", json!(8)));
    assert_eq!(misspelt.code, Some(0), "{misspelt:?}");
    let expected =
        "job file: ignoring n_attemptz, a key that Harbor does not know (did you mean \"n_attempts\"?)";
    assert!(misspelt.stderr.contains(expected), "{}", misspelt.stderr);
    for (file, expected) in [
        (
            with("n_attempts", json!("many")),
            r#"n_attempts: found the text "many", expected a whole number of at least 1"#,
        ),
        (
            with("n_attempts", json!(0)),
            "n_attempts: found the number `0`, expected a whole number of at least 1",
        ),
        (with("agents", json!({"name": "nop"})), "agents: found keys with values, expected a list"),
        (with("environment", json!({"type": "daytona"})), ""),
        (with("rolltap", json!({"upstrem": "x"})), "did you mean \"upstream\"?"),
    ] {
        let ended = job(file);
        assert!(ended.stderr.contains(expected), "{}", ended.stderr);
    }
    let mut of_harbor = with("environment", json!({"type": "daytona"}));
    of_harbor["rolltap"] = json!({});
    let ended = job(of_harbor);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("run it with -e harbor --harbor-env daytona"), "{}", ended.stderr);
}

#[test]
fn the_path_of_a_call_is_not_an_upstream() {
    for command in [&["proxy", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"][..], &RUN] {
        let error = refused(&[command, &["--upstream", "http://h:8000/v1/chat"]].concat());
        let expected =
            "/v1/chat is the path of a call, and an upstream is the base of all calls, here http://h:8000/v1";
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_job_that_runs_or_was_killed_is_named_as_such_by_check_and_export() {
    let dir = tempfile::tempdir().unwrap();
    let go = dir.path().join("go");
    task(dir.path(), "one", &format!("until [ -e {} ]; do sleep 0.05; done", go.display()));
    let job = Running::start(dir.path(), &[&RUN[..], &["-e", "local", "-a", "nop"]].concat());
    until("the job has begun", || dir.path().join("jobs/it/config.json").exists());
    for command in [&["check", "jobs/it"][..], &["export", "jobs/it", "--format", "jsonl", "-o", "x.jsonl"]] {
        let ended = run(dir.path(), command);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains("the job in jobs/it is still running (process "), "{}", ended.stderr);
    }
    job.signal("KILL");
    job.wait(limit(20));
    let ended = run(dir.path(), &["check", "jobs/it"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("`rolltap resume jobs/it` completes it"), "{}", ended.stderr);
    // The tests of the killed job end.
    fs::write(go, "").unwrap();
}

#[tokio::test]
async fn the_admin_plane_names_the_header_and_the_key_that_are_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let upstream = unused_address();
    let args = ["proxy", "--upstream", &upstream, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let mut proxy = Running::start(dir.path(), &args);
    let (_agents, admin) = (proxy.next_url(), proxy.next_url());
    let http = rolltap_testing::http_client();
    let said = async |path: &str, body: &str, kind: &str| {
        let request = http.post(format!("{admin}{path}")).header("content-type", kind).body(body.to_owned());
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        let body: Value = answer.json().await.unwrap();
        (status, body["error"]["message"].as_str().unwrap().to_owned())
    };
    let (status, message) = said("/v1/trials", r#"{"task_id": "t"}"#, "text/plain").await;
    assert_eq!(status, 415);
    assert!(message.contains("curl needs -H 'content-type: application/json'"), "{message}");
    let json = "application/json";
    let (status, message) = said("/v1/trials", r#"{"task_id": "t", "smapling": {}}"#, json).await;
    assert_eq!(status, 422);
    assert!(
        message.starts_with("in the body: unknown key \"smapling\" (did you mean \"sampling\"?)"),
        "{message}"
    );
    let (status, message) =
        said("/v1/trials", r#"{"task_id": "t", "sampling": {"temprature": 1}}"#, json).await;
    assert_eq!(status, 400);
    assert!(message.contains("sampling.temprature: ") && message.contains("\"temperature\""), "{message}");
    let (status, message) = said("/v1/trials", "{", json).await;
    assert_eq!(status, 400);
    assert!(message.starts_with("the body is not JSON: "), "{message}");
}
