//! Wrong usage and configuration: exit code 2 before anything starts, and a helpful message.

use std::fs;

use super::program::{Ended, repository, rolltap, run, unused_address};

/// Runs a command that must end with exit code 2 and leave nothing behind. Returns its standard error.
fn refused(args: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let ended = run(dir.path(), args);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert_eq!(ended.stdout, "");
    let left: Vec<_> = dir.path().join("jobs").read_dir().into_iter().flatten().collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    ended.stderr.replace(env!("CARGO_MANIFEST_DIR"), "[repository]")
}

#[test]
fn no_path() {
    insta::assert_snapshot!(refused(&["run", "-a", "oracle"]));
}

#[test]
fn an_unknown_command() {
    insta::assert_snapshot!(refused(&["prox"]));
}

#[test]
fn an_unknown_agent() {
    let task = repository("examples/tasks/hello-file");
    insta::assert_snapshot!(refused(&["run", "-p", &task, "-a", "termnal"]));
}

#[test]
fn an_unknown_environment() {
    let task = repository("examples/tasks/hello-file");
    insta::assert_snapshot!(refused(&["run", "-p", &task, "-a", "oracle", "-e", "dokcer"]));
}

#[test]
fn an_open_environment_server_without_token() {
    insta::assert_snapshot!(refused(&["env", "-e", "local", "--listen", "0.0.0.0:0"]));
}

#[test]
fn a_missing_task() {
    insta::assert_snapshot!(refused(&["run", "-p", "nowhere/at/all", "-a", "oracle", "-e", "local"]));
}

#[test]
fn a_directory_without_tasks() {
    insta::assert_snapshot!(refused(&["run", "-p", &repository("configs"), "-a", "oracle", "-e", "local"]));
}

#[test]
fn a_model_without_a_server() {
    let task = repository("examples/tasks/hello-file");
    insta::assert_snapshot!(refused(&["run", "-p", &task, "-a", "terminal", "-e", "local"]));
}

#[test]
fn an_unreachable_upstream() {
    let task = repository("examples/tasks/hello-file");
    let url = unused_address();
    let said = refused(&["run", "-p", &task, "-a", "terminal", "-e", "local", "--upstream", &url]);
    insta::assert_snapshot!(said.replace(&url, "[url]"));
}

#[test]
fn an_upstream_that_is_no_url() {
    let task = repository("examples/tasks/hello-file");
    insta::assert_snapshot!(refused(&["run", "-p", &task, "-a", "terminal", "--upstream", "localhost:8000"]));
}

#[test]
fn sampling_that_is_no_object() {
    let task = repository("examples/tasks/hello-file");
    insta::assert_snapshot!(refused(&["run", "-p", &task, "-a", "nop", "--sampling", "[1]"]));
}

#[test]
fn an_admin_token_that_could_be_guessed() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("token"), "secret\n").unwrap();
    let ports = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let args = ["proxy", "--upstream", "http://h:8000", "--admin-token-file", "token"];
    let ended = run(dir.path(), &[&args[..], &ports].concat());
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("has 6 characters, and needs 16 at least"), "{ended:?}");
}

#[test]
fn a_proxy_without_upstream() {
    insta::assert_snapshot!(refused(&["proxy", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]));
}

#[test]
fn an_open_admin_plane_without_token() {
    let args = ["proxy", "--upstream", "http://h:8000", "--listen", "127.0.0.1:0", "--admin", "0.0.0.0:0"];
    insta::assert_snapshot!(refused(&args));
}

#[test]
fn a_misspelt_key_of_a_configuration() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("proxy.toml"), "upstreams = [\"http://127.0.0.1:8000\"]").unwrap();
    let ended = run(dir.path(), &["proxy", "--config", "proxy.toml"]);
    assert_eq!(ended.code, Some(2));
    insta::assert_snapshot!(ended.stderr);
}

#[test]
fn a_wrong_value_in_a_configuration() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("proxy.toml"), "admin = 7071").unwrap();
    let ended = run(dir.path(), &["proxy", "--config", "proxy.toml"]);
    assert_eq!(ended.code, Some(2));
    insta::assert_snapshot!(ended.stderr);
}

#[test]
fn a_script_that_is_none() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("script.toml"), "[[conversation]]\nmatches = \"x\"").unwrap();
    let ended = run(dir.path(), &["sim", "--script", "script.toml"]);
    assert_eq!(ended.code, Some(2));
    insta::assert_snapshot!(ended.stderr);
}

#[test]
fn nothing_to_check() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(run(dir.path(), &["check", "nowhere"]).code, Some(2));
    let ended = run(dir.path(), &["check", "."]);
    assert_eq!(ended.code, Some(2));
    insta::assert_snapshot!(ended.stderr);
}

#[test]
fn no_docker() {
    let dir = tempfile::tempdir().unwrap();
    let task = repository("examples/tasks/hello-file");
    let mut command = rolltap(dir.path(), &["run", "-p", &task, "-a", "oracle"]);
    let ended: Ended = command.env("DOCKER_HOST", "unix:///nowhere/docker.sock").output().unwrap().into();
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("hint: start Docker"), "{}", ended.stderr);
    assert!(ended.stderr.contains("/nowhere/docker.sock"), "{}", ended.stderr);
    assert_eq!(dir.path().join("jobs").read_dir().unwrap().count(), 0, "no job directory is left");
}
