//! The `rolltap` package for Python with the trainers' own packages: python/tests, with a proxy in front of the
//! simulator.

use rolltap_sim as sim;
use tokio::process::Command;

use crate::harness::{Stage, testbed};

const PACKAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python");

/// Returns the trainers' Python, in the folder of the package.
pub(crate) fn python() -> Command {
    let mut python = Command::new(testbed("ROLLTAP_TESTBED_TRAINERS"));
    python
        .current_dir(PACKAGE)
        .env("PYTHONPATH", PACKAGE)
        // The tests send no telemetry and fetch nothing.
        .env("HF_HUB_OFFLINE", "1")
        .env("RAY_USAGE_STATS_ENABLED", "0");
    python
}

pub(crate) async fn succeeds(mut command: Command) {
    let output = command.output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
#[ignore = "needs the trainers' packages: run ./scripts/test"]
async fn trainers_take_what_was_captured() {
    let upstream = sim::start(sim::Settings::default()).await.unwrap();
    let stage = Stage::before(format!("http://{}", upstream.addr())).await;
    let mut tests = python();
    tests
        // The terminals are tested in `python_terminals`, and the trainers' own loops below.
        .args(["-m", "pytest", "--quiet", "--tb=short", "--ignore=tests/terminals", "--ignore=tests/steps"])
        .env("ROLLTAP_TEST_ADMIN", stage.admin(""))
        .env("ROLLTAP_TEST_PROGRAM", env!("CARGO_BIN_EXE_rolltap"));
    succeeds(tests).await;
}

/// The trainers' own programs and loops make steps of their optimizers on the CPU. The tests start their own proxy, in
/// front of a server of the model that is trained.
#[tokio::test]
#[ignore = "needs the trainers' packages: run ./scripts/test"]
async fn trainers_make_steps_from_what_was_captured() {
    let mut tests = python();
    tests
        .args(["-m", "pytest", "--quiet", "--tb=short", "tests/steps"])
        .env("ROLLTAP_TEST_PROGRAM", env!("CARGO_BIN_EXE_rolltap"));
    succeeds(tests).await;
}

#[tokio::test]
#[ignore = "needs the trainers' packages: run ./scripts/test"]
async fn the_package_is_typed() {
    let mut check = python();
    check.args(["-m", "mypy", "--no-error-summary", "--cache-dir", "/dev/null"]);
    succeeds(check).await;
}
