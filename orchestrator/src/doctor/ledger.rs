//! Collects findings.

use super::report::{Finding, Verdict};

/// The findings so far.
#[derive(Debug, Default)]
pub(super) struct Ledger(Vec<Finding>);

impl Ledger {
    pub(super) fn ok(&mut self, check: &'static str, found: impl Into<String>) {
        self.0.push(Finding { check, verdict: Verdict::Ok, found: found.into(), remedy: None });
    }

    pub(super) fn degraded(
        &mut self,
        check: &'static str,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.add(check, Verdict::Degraded, found, remedy);
    }

    pub(super) fn broken(
        &mut self,
        check: &'static str,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.add(check, Verdict::Broken, found, remedy);
    }

    fn add(
        &mut self,
        check: &'static str,
        verdict: Verdict,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.0.push(Finding { check, verdict, found: found.into(), remedy: Some(remedy.into()) });
    }

    pub(super) fn into_findings(self) -> Vec<Finding> {
        self.0
    }
}
