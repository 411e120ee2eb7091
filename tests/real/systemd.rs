//! The unit of systemd, as far as it can be verified without a running systemd.

use std::process::{Command, Output};

use crate::program::text;

/// Runs `systemd-analyze` on the unit, with this program in place of the installed one.
fn analyze(arguments: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let unit = include_str!("../../deploy/systemd/rolltap.service");
    assert!(unit.contains("ExecStart=/usr/local/bin/rolltap proxy "), "{unit}");
    let unit = unit.replace("/usr/local/bin/rolltap", env!("CARGO_BIN_EXE_rolltap"));
    let path = dir.path().join("rolltap.service");
    std::fs::write(&path, unit).unwrap();
    Command::new("systemd-analyze").args(arguments).arg(path).output().unwrap()
}

#[test]
#[ignore = "needs systemd-analyze: run ./scripts/test"]
fn the_unit_has_no_unknown_setting() {
    let output = analyze(&["verify"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    // An unknown setting is a warning, and not a failure.
    assert!(!text(&output.stderr).contains("rolltap.service"), "{}", text(&output.stderr));
}

#[test]
#[ignore = "needs systemd-analyze: run ./scripts/test"]
fn the_unit_exposes_little_of_the_machine() {
    // The largest exposure is 100, that of a unit without any protection is 96.
    let output = analyze(&["security", "--offline=yes", "--no-pager", "--threshold=15"]);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}
