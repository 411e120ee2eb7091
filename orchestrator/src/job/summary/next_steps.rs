//! The commands that continue a job which is not complete or has failed tests.

use std::path::Path;

use crate::common::shell::word;
use crate::common::words::counted;
use crate::failure::Phase;
use crate::job::JobReport;
use crate::trial::TrialOutcome;

/// Returns a line for each command that can improve the job, whose directory is shown as `job_dir`.
pub(super) fn next_steps(report: &JobReport, job_dir: &Path) -> Vec<String> {
    let dir = word(&job_dir.to_string_lossy());
    let mut lines = Vec::new();
    let left = left_to_run(report);
    if left > 0 {
        lines.push(format!("resume:   rolltap resume {dir}  ({} to run)", counted(left as u64, "trial")));
    } else if report.rollouts.is_none() {
        lines.push(format!("resume:   rolltap resume {dir}  (writes the rollouts)"));
    }
    let failed = report.trials.iter().filter(|trial| has_failed_tests(trial)).count();
    if failed > 0 {
        let trials = counted(failed as u64, "trial");
        lines.push(format!(
            "regrade:  rolltap regrade {dir} --failed-only  (the tests of {trials} gave no reward)"
        ));
    }
    lines
}

/// Returns the number of trials that a resumed job runs.
fn left_to_run(report: &JobReport) -> usize {
    let again = report.trials.iter().filter(|trial| trial.is_cancelled() || trial.awaits_retry).count();
    report.planned.saturating_sub(report.trials.len()) + again
}

fn has_failed_tests(trial: &TrialOutcome) -> bool {
    let of_tests = |phase| phase == Phase::Verifier;
    !trial.judged
        && !trial.awaits_retry
        && trial.failure.as_ref().is_some_and(|failure| of_tests(failure.phase))
}
