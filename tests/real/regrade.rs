//! `rolltap regrade` in Docker: changed tests on collected artifacts, and on copies of kept containers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::program::{Job, both_outputs, check, listed, rolltap};

const IMAGE: &str = "rolltap-testbed/hello:1";
/// Tests that are wrong: no work earns a reward.
const WRONG: &str = "#!/bin/sh\necho 0 > /logs/verifier/reward.txt\n";
/// Tests that look at the work, and fail if files of the earlier tests are still there.
const RIGHT: &str = "#!/bin/sh\n[ -e /tests/old ] && exit 1\n\
                     grep -q world /app/hello.txt && echo '{\"reward\": 1, \"style\": 0.5}' > /logs/verifier/reward.json\n";

/// A task of one instruction in a directory of the test.
fn task(dir: &Path, name: &str, root: &str, tables: &str) -> PathBuf {
    let task = dir.join(name);
    fs::create_dir_all(task.join("tests")).unwrap();
    fs::create_dir_all(task.join("solution")).unwrap();
    let config = format!(
        "{root}\n[task]\nname = \"rolltap/{name}\"\n{tables}\n[environment]\ndocker_image = \"{IMAGE}\"\n"
    );
    fs::write(task.join("task.toml"), config).unwrap();
    fs::write(task.join("instruction.md"), "Greet.").unwrap();
    fs::write(task.join("solution/solve.sh"), "#!/bin/sh\necho 'Hello, world!' > /app/hello.txt\n").unwrap();
    fs::write(task.join("tests/test.sh"), WRONG).unwrap();
    fs::write(task.join("tests/old"), "").unwrap();
    task
}

fn change_tests(task: &Path) {
    fs::write(task.join("tests/test.sh"), RIGHT).unwrap();
    fs::remove_file(task.join("tests/old")).unwrap();
}

/// Runs a job file of the oracle in Docker.
fn run(job: &Job, dir: &Path, file: &Value) {
    let path = dir.join("job.json");
    fs::write(&path, file.to_string()).unwrap();
    let output = job.command(&["-c", path.to_str().unwrap()]).output().unwrap();
    assert!(output.status.success(), "{}", both_outputs(&output));
}

fn result(job: &Job) -> Value {
    let path = job.dir().join("regrades/regrade-1/result.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
#[ignore = "needs Docker: run ./scripts/test"]
fn separate_tests_are_run_again_on_the_collected_artifacts() {
    let dir = TempDir::new().unwrap();
    let artifacts = "artifacts = [\"/app/hello.txt\"]";
    let task = task(dir.path(), "apart", artifacts, "[verifier]\nenvironment_mode = \"separate\"");
    let job = Job::new("regrade-apart");
    run(&job, dir.path(), &serde_json::json!({"tasks": [{"path": task}], "n_attempts": 2}));
    change_tests(&task);
    let path = job.dir().display().to_string();
    let output = rolltap(&["regrade", &path]);
    let said = both_outputs(&output);
    assert!(output.status.success(), "{said}");
    let result = result(&job);
    assert_eq!(
        (&result["stats"]["n_regraded"], &result["stats"]["mean_after"]),
        (&2.into(), &1.0.into()),
        "{said}"
    );
    for trial in result["trials"].as_array().unwrap() {
        assert_eq!(
            (&trial["before"]["reward"], &trial["after"]["rewards"]["style"]),
            (&0.0.into(), &0.5.into())
        );
    }
    assert_eq!(job.left_in_docker(), Vec::<String>::new(), "{said}");
    assert!(check(&job.dir()).status.success());
}

#[test]
#[ignore = "needs Docker: run ./scripts/test"]
fn tests_in_the_agents_container_are_run_again_in_a_copy_of_it() {
    let dir = TempDir::new().unwrap();
    let task = task(dir.path(), "shared", "", "");
    let job = Job::new("regrade-kept");
    let _kept = Kept(job.name.clone());
    let file =
        serde_json::json!({"tasks": [{"path": task}], "n_attempts": 2, "environment": {"delete": false}});
    run(&job, dir.path(), &file);
    change_tests(&task);
    let path = job.dir().display().to_string();
    // The container does not change, so the tests can run again and again.
    for version in ["regrade-1", "regrade-2"] {
        let output = rolltap(&["regrade", &path]);
        let said = both_outputs(&output);
        assert!(output.status.success() && said.contains(version), "{said}");
    }
    assert_eq!(result(&job)["stats"]["mean_after"], 1.0);
    assert_eq!(job.left_in_docker(), Vec::<String>::new());
    assert_eq!(listed(&["images", "-q", "rolltap-regrade"]), Vec::<String>::new(), "no copy is left");
    assert_eq!(listed(&["ps", "-aq", "--filter", &format!("label=dev.rolltap.kept={}", job.name)]).len(), 2);
    let checked = rolltap(&["check", &path, "--reward-version", "regrade-1"]);
    assert!(checked.status.success(), "{}", both_outputs(&checked));
}

/// Removes the kept containers of a job.
struct Kept(String);

impl Drop for Kept {
    fn drop(&mut self) {
        for id in listed(&["ps", "-aq", "--filter", &format!("label=dev.rolltap.kept={}", self.0)]) {
            let _ = Command::new("docker").args(["rm", "-f", &id]).output();
        }
    }
}
