//! A trial as `rolltap export` gives it to a format, by the default rules of the format and with the trials of its group.

use rolltap_orchestrator::export::{ExportFailure, Record, record};
use rolltap_rollout::export::exporter::Trial;
use rolltap_rollout::export::format::{Format, FormatOptions};
use rolltap_rollout::export::pipeline::plan::{LeftOut, Plan};
use rolltap_rollout::export::pipeline::select::Tally;
use rolltap_rollout::export::pipeline::survey::Survey;
use rolltap_rollout::row::RolloutRow;

use crate::collection::TrialContent;

/// Why an export has no record of a trial.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotExported {
    /// Calls or reward may still change.
    #[error("the trial is not complete: no seal or no reward yet")]
    Unfinished,
    /// The rules leave the trial out.
    #[error("left out: 1 trial {0}")]
    LeftOut(LeftOut),
    /// There is nothing to write.
    #[error("the trial sampled no token, so the format has no record of it")]
    NothingSampled,
    /// The whole export ends with this error.
    #[error("rolltap export fails: {0}")]
    Fails(String),
}

/// A trial that an export takes.
#[derive(Debug)]
pub(crate) struct Exported<'t> {
    format: Format,
    plan: Plan,
    /// The trials of the group in the order of the input. Only the trial itself if it has no group.
    group: &'t [TrialContent],
    /// The trial with its selected branches and their final masks.
    pub(crate) trial: Trial,
}

impl<'t> Exported<'t> {
    /// Plans an export of these trials, and takes the one named `id`.
    ///
    /// # Errors
    /// The trial is not in the export, or there is no export.
    pub(crate) fn of(format: Format, id: &str, group: &'t [TrialContent]) -> Result<Self, NotExported> {
        let plan = plan(format, group)?;
        if let Some(why) = plan.why_left_out(id) {
            return Err(NotExported::LeftOut(why));
        }
        let of_page = group.iter().find(|trial| trial.entry.id == id);
        if of_page.is_some_and(|trial| trial.export.is_unfinished) {
            return Err(NotExported::Unfinished);
        }
        let trial = match of_page.filter(|trial| !trial.rows.is_empty()) {
            Some(trial) => plan.take(rows(format, trial), &mut Tally::default()).map_err(fails)?,
            None => plan.rowless_trials().find(|rowless| rowless.rows.iter().any(|row| row.trial_id == id)),
        };
        let trial = trial.ok_or(NotExported::NothingSampled)?;
        Ok(Self { format, plan, group, trial })
    }

    /// Writes the record of the trial, or that of the whole group if the format has one per group. Parquet is written as
    /// JSON Lines, which have the same columns.
    ///
    /// # Errors
    /// The format cannot hold the trials.
    pub(crate) fn record(&self) -> Result<Record, NotExported> {
        let trials =
            if self.format.has_record_per_group() { self.of_group()? } else { vec![self.trial.clone()] };
        let options = FormatOptions { reward_names: self.plan.reward_names(), ..FormatOptions::default() };
        let written = match self.format {
            Format::Parquet => Format::Jsonl,
            other => other,
        };
        record(written, &options, trials).map_err(fails)
    }

    /// Returns the trials of the group that the export takes, with the stand-ins that fill it.
    fn of_group(&self) -> Result<Vec<Trial>, NotExported> {
        let mut trials: Vec<Trial> = self.plan.rowless_trials().collect();
        for trial in self.group.iter().filter(|trial| !trial.export.is_unfinished) {
            trials.extend(self.plan.take(rows(self.format, trial), &mut Tally::default()).map_err(fails)?);
        }
        Ok(trials)
    }
}

/// Surveys the trials as an export does.
fn plan(format: Format, trials: &[TrialContent]) -> Result<Plan, NotExported> {
    let mut survey = Survey::new(format.rules());
    for trial in trials {
        // An export skips incomplete trials before it reads their calls.
        if trial.export.is_unfinished {
            continue;
        }
        if let Some(damage) = &trial.export.damage {
            return Err(fails(ExportFailure::Damaged(damage.clone())));
        }
        match (trial.rows.first(), &trial.export.without_rows) {
            (Some(row), _) => survey.trial(row.into()).map_err(fails)?,
            (None, Some(facts)) => survey.trial_without_rows(facts.clone()).map_err(fails)?,
            (None, None) => {}
        }
        if let Some(group) = trial.entry.group.clone().filter(|_| trial.export.is_group_closed) {
            survey.group_is_closed(group);
        }
    }
    survey.plan().map_err(fails)
}

/// Returns the rows of a trial with what the format needs.
fn rows(format: Format, trial: &TrialContent) -> Vec<RolloutRow> {
    let mut rows = trial.rows.clone();
    // The defaults of an export are without --messages.
    if format.messages().is_read(false) {
        trial.conversations().add_to(&mut rows);
    }
    rows
}

fn fails(error: impl std::fmt::Display) -> NotExported {
    NotExported::Fails(error.to_string())
}

#[cfg(test)]
mod tests;
