//! Reads trials from a capture store, beside a proxy that may be running.

use jiff::Timestamp;
use rolltap_orchestrator::export::without_rows;
use rolltap_proxy::store::{Archive, Damage, Pause, PolicyChange, StoredTrial};
use rolltap_rollout::ids::TrialId;
use rolltap_rollout::row::RolloutRow;

use super::problems::FirstProblems;
use super::trial::{CapturedCall, ExportFacts, TrialContent, TrialEntry};

/// The maximum number of damaged places that a page lists.
const LISTED: usize = 10;

/// Describes damage. A half-written last record is none: a running proxy writes it at this moment.
pub(super) fn damage(damage: &[Damage]) -> Vec<String> {
    let mut lines = FirstProblems::at_most(LISTED);
    for damage in damage.iter().filter(|damage| !damage.is_torn_end) {
        lines.add(|| damage.to_string());
    }
    lines.into_lines(|further| format!("{further} further places are damaged"))
}

/// Reads the calls of a trial, and the rows that they make.
pub(super) fn read_trial(archive: &Archive, id: &str, content: &mut TrialContent) {
    let Some((trial, found)) = TrialId::new(id).ok().and_then(|id| archive.trial(&id)) else {
        content.problems.push(format!("the captures of trial {id} are gone: their retention is over"));
        return;
    };
    content.problems.extend(damage(&found));
    content.rows = archive.rows(&trial, None);
    content.export = export_facts(archive, &trial, found, content.rows.is_empty());
    content.version_changes = version_changes(archive, &content.entry);
    content.pauses = pauses(archive, &content.entry);
    content.notes = trial.notes().to_vec();
    content.calls = trial.calls.into_iter().zip(trial.told).collect();
}

/// Reads the rows and calls of a trial for a search. `None` if the captures of the trial are gone.
pub(super) fn read_words(archive: &Archive, id: &str) -> Option<(Vec<RolloutRow>, Vec<CapturedCall>)> {
    let (trial, _) = archive.trial(&TrialId::new(id).ok()?)?;
    let rows = archive.rows(&trial, None);
    Some((rows, trial.calls.into_iter().zip(trial.told).collect()))
}

/// Returns the changes of the policy version while the trial was open. A label for the weights at the start is no change.
fn version_changes(archive: &Archive, entry: &TrialEntry) -> Vec<PolicyChange> {
    let mut version = 0;
    let changes = archive.policy_changes().iter();
    let changes = changes.filter(|change| std::mem::replace(&mut version, change.version) != change.version);
    let is_before = |change: &PolicyChange| entry.opened_at.is_some_and(|opened| change.at < opened);
    let is_after = |change: &PolicyChange| entry.sealed_at.is_some_and(|sealed| change.at > sealed);
    changes.filter(|change| !is_before(change) && !is_after(change)).cloned().collect()
}

/// Returns the pauses while the trial was open.
fn pauses(archive: &Archive, entry: &TrialEntry) -> Vec<Pause> {
    let all = archive.pauses();
    let known = all.iter().enumerate().filter(|(index, pause)| {
        // Only the last pause can last. The end of an earlier one was in a segment that is removed.
        pause.ended_at.is_some() || index + 1 == all.len()
    });
    let is_before =
        |end: Option<Timestamp>| end.zip(entry.opened_at).is_some_and(|(end, opened)| end < opened);
    let is_after = |begin: Timestamp| entry.sealed_at.is_some_and(|sealed| begin > sealed);
    let of_trial = known.filter(|(_, pause)| !is_before(pause.ended_at) && !is_after(pause.began_at));
    of_trial.map(|(_, pause)| *pause).collect()
}

/// Returns what an export knows of the trial. Like an export, it ignores a half-written last record.
fn export_facts(
    archive: &Archive,
    trial: &StoredTrial,
    damage: Vec<Damage>,
    is_rowless: bool,
) -> ExportFacts {
    let mut damage = archive.damage().iter().cloned().chain(damage);
    let group = trial.facts().group_id.as_ref();
    ExportFacts {
        without_rows: is_rowless.then(|| without_rows(archive, trial, None)),
        is_unfinished: !trial.is_complete(),
        is_group_closed: archive.closed_groups().any(|closed| Some(closed) == group),
        training: Some(trial.facts().training),
        damage: damage.find(|damage| !damage.is_torn_end),
    }
}
