//! Lines below the tables of a summary: calls without tokens, signs of cheating, and tokens that agents recorded.

use std::collections::BTreeMap;

use rolltap_proxy::api::TrialStatus;

use crate::agent_reported::Returned;
use crate::common::words::counted;
use crate::job::records::statistics::suspicious;
use crate::trial::TrialOutcome;

/// Returns a warning with the number of calls that cannot be trained on and their flaws, or `None` if there are none.
pub(super) fn empty_line(trials: &[TrialOutcome]) -> Option<String> {
    let statuses = || trials.iter().filter_map(|trial| trial.status.as_ref());
    let empty: u64 = statuses().map(TrialStatus::empty_calls).sum();
    if empty == 0 {
        return None;
    }
    let complete: u64 = statuses().map(|status| status.calls.complete).sum();
    let mut flaws: BTreeMap<&str, u64> = BTreeMap::new();
    for (flaw, count) in statuses().flat_map(|status| &status.flaws) {
        *flaws.entry(flaw.as_str()).or_default() += count;
    }
    let flaws: Vec<String> = flaws.iter().map(|(flaw, count)| format!("{flaw} {count}")).collect();
    Some(format!(
        "warning: nothing can be trained of {empty} of {complete} calls ({}): the upstream, or a router before it, does not send \
         what training needs",
        flaws.join(", ")
    ))
}

/// Returns a warning with the number of trials that are suspected of cheating and the reasons, or `None` if there are
/// none.
pub(super) fn suspicious_line(trials: &[TrialOutcome]) -> Option<String> {
    let count = trials.iter().filter(|trial| trial.is_suspicious()).count();
    let by_reason = suspicious(trials);
    let counts: Vec<_> =
        by_reason.iter().map(|(reason, names)| format!("{reason} {}", names.len())).collect();
    (count > 0).then(|| {
        format!(
            "warning: {count} of {} may have cheated ({}): result.json of each has the evidence, and their rewards are \
             unchanged",
            counted(trials.len() as u64, "trial"),
            counts.join(", ")
        )
    })
}

/// The most trials that the summary names for doubtful records of their agents. The job's log has the others.
const DOUBTFUL_LISTED: usize = 10;

/// Returns lines on the tokens that agents recorded: how many were used, and where they differ from the capture.
pub(super) fn returned_lines(trials: &[TrialOutcome]) -> Vec<String> {
    let returned = |trial| -> Option<(&TrialOutcome, &Returned)> {
        let trial: &TrialOutcome = trial;
        Some((trial, trial.returned.as_ref()?))
    };
    let returned: Vec<_> = trials.iter().filter_map(returned).collect();
    let taken: Vec<_> = returned.iter().filter(|(_, returned)| returned.taken).collect();
    let sum = |of: fn(&Returned) -> usize| -> usize { taken.iter().map(|(_, returned)| of(returned)).sum() };
    let mut lines = Vec::new();
    if !taken.is_empty() {
        let (turns, trainable) = (sum(|returned| returned.turns), sum(|returned| returned.trainable));
        lines.push(format!(
            "tokens of {} are what their agents handed back, since nothing was captured: {}, {trainable} can be \
             trained on",
            counted(taken.len() as u64, "trial"),
            counted(turns as u64, "turn")
        ));
    }
    let doubtful: Vec<_> = returned.iter().filter(|(_, returned)| returned.is_doubtful()).collect();
    for (trial, returned) in doubtful.iter().take(DOUBTFUL_LISTED) {
        lines.extend(returned.notes().into_iter().map(|note| format!("warning: {}: {note}", trial.name)));
    }
    if let Some(more @ 1..) = doubtful.len().checked_sub(DOUBTFUL_LISTED) {
        let more = counted(more as u64, "more trial");
        lines.push(format!("warning: {more} whose agents handed back something doubtful"));
    }
    lines
}
