//! The terminal environments of the `rolltap` package for Python: python/tests/terminals, on `rolltap env` with Docker,
//! and with the trainers' own classes. Each file has its own test, because their containers start one after the other.

use crate::trainers::{python, succeeds};

async fn passes(file: &str) {
    let mut tests = python();
    tests
        .args(["-m", "pytest", "--quiet", "--tb=short", "--durations=5"])
        .arg(format!("tests/terminals/{file}"))
        .env("ROLLTAP_TEST_PROGRAM", env!("CARGO_BIN_EXE_rolltap"))
        // The models are small, and threads would only wait for each other.
        .env("OMP_NUM_THREADS", "1");
    succeeds(tests).await;
}

#[tokio::test]
#[ignore = "needs Docker and the trainers' packages: run ./scripts/test"]
async fn examples_run_as_their_users_run_them() {
    passes("test_examples.py").await;
}

#[tokio::test]
#[ignore = "needs Docker and the trainers' packages: run ./scripts/test"]
async fn episodes_of_clients_and_of_gymnasium_are_judged() {
    passes("test_gym.py").await;
}

#[tokio::test]
#[ignore = "needs Docker and the trainers' packages: run ./scripts/test"]
async fn tinker_cookbook_owns_the_loop_at_real_terminals() {
    passes("test_tinker_terminal.py").await;
}

#[tokio::test]
#[ignore = "needs Docker and the trainers' packages: run ./scripts/test"]
async fn trl_owns_the_loop_at_real_terminals() {
    passes("test_trl_terminal.py").await;
}

#[tokio::test]
#[ignore = "needs Docker and the trainers' packages: run ./scripts/test"]
async fn verifiers_owns_the_loop_at_real_terminals() {
    passes("test_verifiers_terminal.py").await;
}

/// A file without a test here would never run.
#[test]
fn every_file_has_its_test() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/python/tests/terminals");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let files = files.filter_map(|name| name.into_string().ok()).filter(|name| name.starts_with("test_"));
    let without: Vec<_> = files.filter(|name| !include_str!("python_terminals.rs").contains(name)).collect();
    assert!(without.is_empty(), "{without:?}");
}
