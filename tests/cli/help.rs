//! The output of `--help`, word for word, so that a changed flag shows here.

use super::program::run;

fn help(command: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let ended = run(dir.path(), &[command, &["--help"]].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    ended.stdout
}

#[test]
fn of_the_program() {
    insta::assert_snapshot!(help(&[]));
}

#[test]
fn of_demo() {
    insta::assert_snapshot!(help(&["demo"]));
}

#[test]
fn of_proxy() {
    insta::assert_snapshot!(help(&["proxy"]));
}

#[test]
fn of_admin_token() {
    insta::assert_snapshot!(help(&["admin-token"]));
}

#[test]
fn of_run() {
    insta::assert_snapshot!(help(&["run"]));
}

#[test]
fn of_serve() {
    insta::assert_snapshot!(help(&["serve"]));
}

#[test]
fn of_worker() {
    insta::assert_snapshot!(help(&["worker"]));
}

#[test]
fn of_submit() {
    insta::assert_snapshot!(help(&["submit"]));
}

#[test]
fn of_submissions() {
    insta::assert_snapshot!(help(&["submissions"]));
}

#[test]
fn of_resume() {
    insta::assert_snapshot!(help(&["resume"]));
}

#[test]
fn of_regrade() {
    insta::assert_snapshot!(help(&["regrade"]));
}

#[test]
fn of_agents() {
    insta::assert_snapshot!(help(&["agents"]));
}

#[test]
fn of_tasks_check() {
    insta::assert_snapshot!(help(&["tasks", "check"]));
}

#[test]
fn of_check() {
    insta::assert_snapshot!(help(&["check"]));
}

#[test]
fn of_export() {
    insta::assert_snapshot!(help(&["export"]));
}

#[test]
fn of_clean() {
    insta::assert_snapshot!(help(&["clean"]));
}

#[test]
fn of_health() {
    insta::assert_snapshot!(help(&["health"]));
}

#[test]
fn of_env() {
    insta::assert_snapshot!(help(&["env"]));
}

#[test]
fn of_sim() {
    insta::assert_snapshot!(help(&["sim"]));
}

#[test]
fn of_agent() {
    insta::assert_snapshot!(help(&["agent"]));
}
