//! The terminal environments of the `rolltap` package for Python: python/tests/terminals, on `rolltap env` with Docker,
//! and with the trainers' own classes.

use crate::trainers::{python, succeeds};

#[tokio::test]
#[ignore = "needs Docker and the trainers' packages: run ./scripts/test"]
async fn trainers_own_the_loop_at_real_terminals() {
    let mut tests = python();
    tests
        .args(["-m", "pytest", "--quiet", "--tb=short", "tests/terminals"])
        .env("ROLLTAP_TEST_PROGRAM", env!("CARGO_BIN_EXE_rolltap"))
        // The models are small: threads would only wait for each other.
        .env("OMP_NUM_THREADS", "1");
    succeeds(tests).await;
}
