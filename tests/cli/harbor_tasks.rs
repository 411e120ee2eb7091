//! Tasks that Harbor accepts although a part of them has no effect: they run here too, with a warning about that part.

use std::fs;

use super::jobs::{results, task};
use super::program::run;

/// Runs a job of this task, which must succeed with reward 1. Returns its standard error.
fn solved(dir: &std::path::Path, task: &std::path::Path) -> String {
    let args = ["run", "-p", task.to_str().unwrap(), "-a", "nop", "-e", "local", "--job-name", "it"];
    let ended = run(dir, &args);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let result = results(&dir.join("jobs/it")).remove(0);
    assert_eq!(result["verifier_result"]["rewards"]["reward"], 1.0, "{result}");
    ended.stderr
}

#[test]
fn a_stray_compose_file_beside_a_dockerfile_is_ignored_with_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let task = task(dir.path(), "one", "echo 1 > /logs/verifier/reward.txt");
    fs::write(task.join("task.toml"), "").unwrap();
    fs::create_dir(task.join("environment")).unwrap();
    fs::write(task.join("environment/Dockerfile"), "FROM x\nCOPY docker-compose.yml .\n").unwrap();
    fs::write(task.join("environment/docker-compose.yml"), "services: {}\n").unwrap();
    let stderr = solved(dir.path(), &task);
    assert!(stderr.contains("environment/docker-compose.yml"), "{stderr}");
    assert!(stderr.contains("Harbor reads docker-compose.yaml alone"), "{stderr}");
}

#[test]
fn the_old_name_of_the_schema_version_beside_the_new_one_is_ignored_with_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let task = task(dir.path(), "one", "echo 1 > /logs/verifier/reward.txt");
    let config = "version = \"1.0\"\nschema_version = \"1.1\"\n[environment]\ndocker_image = \"unused\"\n";
    fs::write(task.join("task.toml"), config).unwrap();
    let stderr = solved(dir.path(), &task);
    assert!(stderr.contains("version = \"1.0\" is ignored"), "{stderr}");
}
