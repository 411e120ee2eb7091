//! The types of the pages' scripts, by the TypeScript compiler.

use std::process::Command;

use crate::harness::testbed;
use crate::program::both_outputs;

#[test]
#[ignore = "needs TypeScript: run ./scripts/test"]
fn the_script_has_sound_types() {
    // The second script uses functions of the first.
    let scripts = ["script.js", "screens.js"]
        .map(|name| format!("{}/viewer/assets/{name}", env!("CARGO_MANIFEST_DIR")));
    let mut command = Command::new(testbed("ROLLTAP_TESTBED_TYPESCRIPT"));
    command.args([
        "--checkJs",
        "--noEmit",
        "--strict",
        "--target",
        "es2023",
        "--lib",
        "es2023,dom,dom.iterable",
    ]);
    let output = command.args(scripts).output().unwrap();
    assert!(output.status.success(), "{}", both_outputs(&output));
}
