//! Options of `harbor run` at `rolltap run`: what they set, and the answer to those that rolltap lacks.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::jobs::{read, results, task};
use super::program::{Ended, rolltap, run};

const SOLVED: &str = "echo 1 > /logs/verifier/reward.txt";

/// Runs a job named `it` of agent nop in the local environment, with a cache of its own.
fn job(dir: &Path, more: &[&str]) -> Ended {
    job_of_name(dir, "it", more)
}

fn job_of_name(dir: &Path, name: &str, more: &[&str]) -> Ended {
    let args = ["run", "-a", "nop", "-e", "local", "--job-name", name];
    let mut command = rolltap(dir, &[&args[..], more].concat());
    command.env("XDG_CACHE_HOME", dir.join("cache")).output().unwrap().into()
}

/// Runs a job that must succeed. Returns its configuration.
fn config(dir: &Path, more: &[&str]) -> Value {
    let ended = job(dir, more);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    read(&dir.join("jobs/it/config.json"))
}

/// Runs a job that must be refused before anything starts. Returns the error.
fn refused(dir: &Path, more: &[&str]) -> String {
    let ended = job(dir, more);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(!dir.join("jobs/it").exists(), "{ended:?}");
    ended.stderr
}

fn names_of_tasks(dir: &Path) -> BTreeSet<String> {
    results(&dir.join("jobs/it"))
        .iter()
        .map(|result| result["task_name"].as_str().unwrap().to_owned())
        .collect()
}

fn set<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.map(str::to_owned).into()
}

#[test]
fn flags_set_the_keys_of_the_job_file() {
    let dir = tempfile::tempdir().unwrap();
    task(dir.path(), "one", SOLVED);
    fs::write(dir.path().join("more.md"), "from a file").unwrap();
    let flags = "-p tasks -k 2 -n 2 --n-concurrent-agents 1 --override-cpus 1.5 --override-memory-mb 512 \
                 --override-storage-mb 1024 --ve MODE=strict --verifier-env LEVEL=2 --artifact /logs/agent/a \
                 --artifact /logs/agent/b --extra-instruction-path more.md --extra-instruction Hurry \
                 --agent-timeout-multiplier 2 --verifier-timeout-multiplier 3 --agent-setup-timeout-multiplier 4 \
                 --environment-build-timeout-multiplier 5 -r 1 --retry-include RuntimeError --retry-exclude OtherError \
                 --no-force-build --delete --enable-verification --silent -y";
    let config = config(dir.path(), &flags.split_whitespace().collect::<Vec<_>>());
    for (pointer, expected) in [
        ("/n_attempts", json!(2)),
        ("/n_concurrent_trials", json!(2)),
        ("/agents/0/n_concurrent", json!(1)),
        ("/environment/override_cpus", json!(1.5)),
        ("/environment/override_memory_mb", json!(512)),
        ("/environment/override_storage_mb", json!(1024)),
        ("/verifier/env", json!({"MODE": "strict", "LEVEL": "2"})),
        ("/extra_instructions", json!(["from a file", "Hurry"])),
        ("/agent_timeout_multiplier", json!(2.0)),
        ("/verifier_timeout_multiplier", json!(3.0)),
        ("/agent_setup_timeout_multiplier", json!(4.0)),
        ("/environment_build_timeout_multiplier", json!(5.0)),
        ("/retry/max_retries", json!(1)),
        ("/retry/include_exceptions", json!(["RuntimeError"])),
        ("/retry/exclude_exceptions", json!(["OtherError"])),
    ] {
        assert_eq!(config.pointer(pointer), Some(&expected), "{pointer}: {config}");
    }
    let artifacts = config["artifacts"].to_string();
    assert!(artifacts.contains("/logs/agent/a") && artifacts.contains("/logs/agent/b"), "{artifacts}");
}

#[test]
fn the_tests_of_a_job_without_verification_do_not_run() {
    let dir = tempfile::tempdir().unwrap();
    task(dir.path(), "one", SOLVED);
    let config = config(dir.path(), &["-p", "tasks", "--disable-verification"]);
    assert_eq!(config["verifier"]["disable"], true);
    assert_eq!(results(&dir.path().join("jobs/it"))[0]["verifier_result"], Value::Null);
}

#[test]
fn names_and_patterns_choose_tasks_of_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["add-1", "add-2", "sort"] {
        task(dir.path(), name, SOLVED);
    }
    let chosen = |more: &[&str]| {
        config(dir.path(), &[&["-d", "tasks"][..], more].concat());
        let names = names_of_tasks(dir.path());
        fs::remove_dir_all(dir.path().join("jobs/it")).unwrap();
        names
    };
    assert_eq!(chosen(&[]), set(["add-1", "add-2", "sort"]));
    assert_eq!(chosen(&["-t", "sort"]), set(["sort"]));
    assert_eq!(chosen(&["-i", "add-*", "-x", "*-1"]), set(["add-2"]));
    assert_eq!(chosen(&["-x", "add-1", "-l", "1"]), set(["add-2"]));
    let unknown = refused(dir.path(), &["-d", "tasks", "-t", "srot"]);
    assert!(
        unknown.contains("no task matches srot (did you mean \"sort\"?); there are: add-1,"),
        "{unknown}"
    );
    let single = refused(dir.path(), &["-p", "tasks/sort", "-x", "add-1"]);
    assert!(single.contains("--exclude-task-name chooses among the tasks of a dataset, and "), "{single}");
}

/// Makes a git repository of the tasks, and removes the directory `tasks`. Returns its URL.
fn repository(dir: &Path, names: &[&str]) -> String {
    for name in names {
        task(dir, name, SOLVED);
    }
    fs::create_dir(dir.join("origin")).unwrap();
    fs::rename(dir.join("tasks"), dir.join("origin/tasks")).unwrap();
    let git = |args: &[&str]| {
        let name = ["-c", "user.name=t", "-c", "user.email=t@t"];
        let output =
            Command::new("git").args(name).args(args).current_dir(dir.join("origin")).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    git(&["init", "--quiet", "--initial-branch=main"]);
    git(&["add", "."]);
    git(&["commit", "--quiet", "-m", "tasks"]);
    git(&["tag", "-a", "v1", "-m", "first"]);
    format!("file://{}", dir.join("origin").display())
}

#[test]
fn a_dataset_of_a_git_repository_is_fetched_once_at_its_version() {
    let dir = tempfile::tempdir().unwrap();
    let url = repository(dir.path(), &["one", "two"]);
    let config = config(dir.path(), &["-d", &format!("{url}@v1"), "-k", "1"]);
    let tasks = config["tasks"].as_array().unwrap();
    assert_eq!(tasks.len(), 2, "{config}");
    assert_eq!((&tasks[0]["git_url"], &tasks[0]["path"]), (&json!(url), &json!("tasks/one")));
    assert_eq!(tasks[0]["git_commit_id"].as_str().unwrap().len(), 40);
    assert_eq!(names_of_tasks(dir.path()), set(["one", "two"]));
    let missing = refused_again(dir.path(), &["--repo", &url, "-p", "elsewhere"]);
    assert!(missing.contains("has no directory elsewhere: the key `path`, or --path, names"), "{missing}");
    // The job resumes from the cache.
    fs::remove_dir_all(dir.path().join("origin")).unwrap();
    let resumed: Ended = rolltap(dir.path(), &["run", "--resume", "jobs/it"])
        .env("XDG_CACHE_HOME", dir.path().join("cache"))
        .output()
        .unwrap()
        .into();
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
}

/// Like [`refused`], for a second job.
fn refused_again(dir: &Path, more: &[&str]) -> String {
    let ended = job_of_name(dir, "other", more);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    ended.stderr
}

#[test]
fn a_dataset_of_a_registry_file_is_found_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let url = repository(dir.path(), &["one", "two", "three"]);
    let remote = |name: &str| {
        let path = format!("tasks/{name}");
        json!({"name": name, "git_url": url, "git_commit_id": "main", "path": path})
    };
    let here = json!({"name": "three", "path": "origin/tasks/three"});
    let dataset = |version: &str, tasks: Value| json!({"name": "bench", "version": version, "description": "", "tasks": tasks});
    let registry = json!([
        dataset("1.0", json!([remote("one")])),
        dataset("1.1", json!([remote("one"), remote("two"), here])),
    ]);
    fs::write(dir.path().join("registry.json"), registry.to_string()).unwrap();
    let config = config(dir.path(), &["-d", "bench", "--registry-path", "registry.json", "-x", "one"]);
    assert_eq!(names_of_tasks(dir.path()), set(["two", "three"]), "{config}");
    assert_eq!(config["tasks"][0]["source"], "bench");
    let several = refused_again(dir.path(), &["-d", "registry.json"]);
    assert!(several.contains("these datasets: bench@1.0, bench@1.1; choose one with -d NAME"), "{several}");
    let unknown = refused_again(dir.path(), &["-d", "bensh", "--registry-path", "."]);
    assert!(unknown.contains("has no dataset \"bensh\" (did you mean \"bench\"?)"), "{unknown}");
    let nowhere = refused_again(dir.path(), &["-d", "terminal-bench@2.0"]);
    assert!(nowhere.contains("-d NAME --registry-path FILE"), "{nowhere}");
}

#[test]
fn without_an_agent_the_oracle_runs() {
    let dir = tempfile::tempdir().unwrap();
    let task = task(dir.path(), "one", "test -f solved && echo 1 > /logs/verifier/reward.txt");
    fs::create_dir(task.join("solution")).unwrap();
    fs::write(task.join("solution/solve.sh"), "touch solved").unwrap();
    let ended = run(dir.path(), &["run", "-p", "tasks", "-e", "local", "--job-name", "it"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("note: no agent is chosen, so the oracle runs"), "{ended:?}");
    assert_eq!(read(&dir.path().join("jobs/it/config.json"))["agents"][0]["name"], "oracle");
}

#[test]
fn several_models_make_several_agents() {
    let dir = tempfile::tempdir().unwrap();
    task(dir.path(), "one", SOLVED);
    let config = config(dir.path(), &["-p", "tasks", "-m", "a", "-m", "b"]);
    let models: Vec<_> =
        config["agents"].as_array().unwrap().iter().map(|agent| &agent["model_name"]).collect();
    assert_eq!(models, [&json!("a"), &json!("b")]);
}

#[test]
fn variables_of_a_file_replace_those_of_the_shell() {
    let dir = tempfile::tempdir().unwrap();
    let task =
        task(dir.path(), "one", "test \"$MODE $OTHER\" = 'fast a$b' && echo 1 > /logs/verifier/reward.txt");
    let config = "[environment]\ndocker_image = \"unused\"\n[verifier.env]\nMODE = \"${MODE}\"\nOTHER = \"${OTHER}\"\n";
    fs::write(task.join("task.toml"), config).unwrap();
    let job = |file: &str| -> Ended {
        fs::write(dir.path().join(".env"), file).unwrap();
        let args =
            ["run", "-p", "tasks", "-a", "nop", "-e", "local", "--job-name", "it", "--env-file", ".env"];
        rolltap(dir.path(), &args).env("MODE", "slow").output().unwrap().into()
    };
    let ended = job("# settings\nexport MODE=fast\nOTHER='a$b'\nROLLTAP_JOBS_DIR=elsewhere\n");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let result = results(&dir.path().join("elsewhere/it")).remove(0);
    assert_eq!(result["verifier_result"]["rewards"]["reward"], 1.0, "{result}");
    let refused = |file: &str, expected: &str| {
        let ended = job(file);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains(expected) && !ended.stderr.contains("s3cret"), "{ended:?}");
    };
    refused("A=1\nB=s3cret$x\n", "--env-file .env: line 2: `$` begins a variable here");
    refused("A=1\n=s3cret\n", "--env-file .env: after the variable A: expected a line NAME=VALUE");
    fs::write(dir.path().join(".env"), [0xff, 0xfe]).unwrap();
    let ended = run(dir.path(), &["run", "-p", "tasks", "--env-file", ".env"]);
    assert!(ended.code == Some(2) && ended.stderr.contains("cannot read --env-file .env"), "{ended:?}");
}

#[test]
fn mcp_servers_of_a_file_are_given_to_the_agent() {
    let dir = tempfile::tempdir().unwrap();
    task(dir.path(), "one", SOLVED);
    fs::write(dir.path().join(".mcp.json"), r#"{"mcpServers": {"files": {"command": "mcp-files"}}}"#)
        .unwrap();
    let config = config(dir.path(), &["-p", "tasks", "--mcp-config", ".mcp.json"]);
    let server = &config["agents"][0]["mcp_servers"][0];
    assert_eq!((&server["name"], &server["transport"]), (&json!("files"), &json!("stdio")), "{config}");
    fs::write(dir.path().join("bad.json"), r#"{"mcpServers": {"web": {"type": "sse"}}}"#).unwrap();
    let error = refused_again(dir.path(), &["-p", "tasks", "--mcp-config", "bad.json"]);
    assert!(error.contains("bad.json: mcpServers.web: MCP server \"web\" needs url"), "{error}");
}

#[test]
fn an_option_or_command_that_rolltap_lacks_is_answered_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    for (args, expected) in [
        (
            &["run", "-p", "t", "--launch"][..],
            "has no --launch, which is an option of harbor run. Harbor Hub is not used",
        ),
        (&["run", "-p", "t", "--effort", "high"], "Write `--agent-kwarg reasoning_effort=LEVEL`"),
        (&["run", "-p", "t", "--export-repo=x"], "`rolltap export jobs/NAME --format FORMAT`"),
        (&["run", "-p", "t", "-e", "daytona"], "run it with -e harbor --harbor-env daytona"),
        (&["dataset", "list"], "`rolltap run -p DIR` takes their directories"),
    ] {
        let ended = run(dir.path(), args);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains(expected), "{args:?}: {}", ended.stderr);
    }
    // A flag that neither program has gets the usual answer.
    let unknown = run(dir.path(), &["run", "-p", "t", "--lunch"]);
    assert!(unknown.stderr.contains("unexpected argument '--lunch' found"), "{}", unknown.stderr);
}
