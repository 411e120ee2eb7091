//! `rolltap export`: converts rollouts to a trainer's format.
//!
//! An export reads the input twice. The first pass surveys all trials, and the second writes the selected trials one by
//! one. The output appears complete or not at all.

mod ahead;
mod input;
mod output;
mod progress;
mod record;
mod report;

use std::path::PathBuf;
use std::thread;

use rolltap_proxy::store::Damage;
use rolltap_rollout::export::exporter::{ExportError, Omission, Trial};
use rolltap_rollout::export::format::{Format, FormatOptions, MessageUse};
use rolltap_rollout::export::pipeline::plan::{Plan, PlanError};
use rolltap_rollout::export::pipeline::rules::Rules;
use rolltap_rollout::export::pipeline::select::{SelectionError, Tally};
use rolltap_rollout::export::pipeline::survey::{SeenTwice, Survey};
use rolltap_rollout::ids::RewardVersion;
use rolltap_rollout::row::RolloutRow;
use tokio_util::sync::CancellationToken;

use self::ahead::{Sender, ahead};
use self::input::Input;
pub use self::input::without_rows;
use self::output::Draft;
pub use self::output::{Output, OutputError};
pub use self::progress::ExportProgress;
pub use self::record::{Record, record};
pub use self::report::ExportReport;
use crate::source::SourceError;

/// The input, output and rules of an export.
#[derive(Clone, Debug)]
pub struct ExportSettings {
    /// A job directory, a proxy's data directory, or a file of rows.
    pub input: PathBuf,
    /// The version of the rewards, from a later verification. `None` for the reward of each trial itself.
    pub reward_version: Option<RewardVersion>,
    /// The destination.
    pub output: Output,
    /// The format.
    pub format: Format,
    /// The options of the format.
    pub options: FormatOptions,
    /// Whether complete rows have the messages and tools of their calls. Formats of messages have them anyway.
    pub messages: bool,
    /// The rules that select and mask rows.
    pub rules: Rules,
}

impl ExportSettings {
    /// Whether the export reads the messages of calls from the captures.
    fn reads_messages(&self) -> bool {
        self.format.messages().is_read(self.messages)
    }

    /// Whether an export without any message is an error.
    fn requires_messages(&self) -> bool {
        self.messages || self.format.messages() == MessageUse::Required
    }
}

/// Why an export failed. Nothing is left behind.
#[derive(Debug, thiserror::Error)]
pub enum ExportFailure {
    /// The input cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The output cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// A row cannot be read.
    #[error("{}: {problem}", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// The position in the file, and the error.
        problem: String,
    },
    /// The captures are damaged, so the lost records are unknown.
    #[error("the captures are damaged: {0}; `rolltap check` lists all damage")]
    Damaged(Damage),
    /// A trial is in the input twice, as after two sources were joined.
    #[error(transparent)]
    SeenTwice(#[from] SeenTwice),
    /// The rules do not fit the trials.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A trial cannot be exported.
    #[error("{0}")]
    Refused(#[from] SelectionError),
    /// The format cannot hold the rows, or they could not be written.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// No trial is selected.
    #[error("nothing to export: {0}")]
    Nothing(String),
    /// The export is of messages, and no call in the input has any.
    #[error(
        "no exported call in {} has messages. A job directory and a data directory of a proxy have them in their \
         captures: export the directory, or make a file with messages of it (rolltap export DIRECTORY --format parquet \
         --messages -o FILE). Nothing records the messages of completions, and of trials with history off",
        .0.display()
    )]
    NoMessages(PathBuf),
    /// The input changed between the two passes.
    #[error("the input changed while it was read; export again when no process writes to it")]
    Changed,
    /// The user stopped the export.
    #[error("stopped; nothing was written")]
    Cancelled,
}

impl ExportFailure {
    /// Returns whether the arguments are wrong. Such an error is found before any row is read.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Source(_) | Self::Output(OutputError::Exists(_) | OutputError::Unusable { .. }))
    }
}

/// Exports the input, and returns a report.
///
/// # Errors
/// Returns an [`ExportFailure`].
pub fn export(
    settings: &ExportSettings,
    progress: &ExportProgress,
    cancelled: &CancellationToken,
) -> Result<ExportReport, ExportFailure> {
    settings.output.check()?;
    let input = Input::open(&settings.input, settings.reward_version.as_ref())?;
    let mut survey = Survey::new(settings.rules.clone());
    progress.surveys(&settings.input);
    let unfinished = input.survey(&mut survey, |seen| progressed(progress, cancelled, seen))?;
    let plan = survey.plan()?;
    if plan.trials() == 0 {
        return Err(ExportFailure::Nothing(report::nothing(&plan, unfinished)));
    }
    let report = write_all(settings, &input, &plan, unfinished, progress, cancelled)?;
    progress.ends();
    Ok(report)
}

/// Runs the second pass, and moves the output into place.
fn write_all(
    settings: &ExportSettings,
    input: &Input,
    plan: &Plan,
    unfinished: u64,
    progress: &ExportProgress,
    cancelled: &CancellationToken,
) -> Result<ExportReport, ExportFailure> {
    progress.writes(plan.trials());
    let mut draft = settings.output.draft()?;
    let (tally, omissions) =
        write(settings, input, plan, &mut draft, |written| progressed(progress, cancelled, written))?;
    // The plan rests on the first pass, and another number of trials means that the input changed since.
    if tally.trials != plan.trials() as u64 {
        return Err(ExportFailure::Changed);
    }
    if settings.requires_messages() && tally.calls > 0 && tally.calls_without_messages == tally.calls {
        return Err(ExportFailure::NoMessages(settings.input.clone()));
    }
    draft.keep()?;
    Ok(ExportReport::new(settings, plan, unfinished, tally, omissions))
}

fn progressed(
    progress: &ExportProgress,
    cancelled: &CancellationToken,
    trials: usize,
) -> Result<(), ExportFailure> {
    progress.trials(trials);
    if cancelled.is_cancelled() { Err(ExportFailure::Cancelled) } else { Ok(()) }
}

/// Reads, selects and writes in three threads. This thread writes. If a step fails, its channel closes, and the step
/// before it ends.
fn write(
    settings: &ExportSettings,
    input: &Input,
    plan: &Plan,
    draft: &mut Draft,
    mut progressed: impl FnMut(usize) -> Result<(), ExportFailure>,
) -> Result<(Tally, Vec<Omission>), ExportFailure> {
    let options = FormatOptions { reward_names: plan.reward_names(), ..settings.options.clone() };
    let mut exporter = settings.format.exporter(draft, &options)?;
    // First, so that no group waits for them until the input ends.
    plan.rowless_trials().try_for_each(|trial| exporter.write(trial))?;
    thread::scope(|scope| {
        let (read, to_choose) = ahead();
        let (chosen, mut to_write) = ahead();
        let with_messages = settings.reads_messages();
        let reading = scope.spawn(move || read_all(input, with_messages, &read));
        let choosing = scope.spawn(move || choose_all(plan, to_choose, &chosen));
        let mut written = 0;
        let wrote = to_write.try_for_each(|trial: Trial| {
            exporter.write(trial)?;
            written += 1;
            progressed(written)
        });
        // The other threads end only when this receiver is closed, so it must be dropped before they are joined.
        drop(to_write);
        let tally = choosing.join().unwrap_or(Err(ExportFailure::Changed));
        let read = reading.join().unwrap_or(Err(ExportFailure::Changed));
        // An error of a later step comes first, because it is the reason why the earlier steps ended.
        wrote?;
        let tally = tally?;
        read?;
        Ok((tally, exporter.finish()?))
    })
}

fn read_all(input: &Input, with_messages: bool, read: &Sender<Vec<RolloutRow>>) -> Result<(), ExportFailure> {
    for rows in input.trials(with_messages)? {
        let rows = rows?;
        let tokens = tokens_of(&rows);
        if read.send(rows, tokens).is_err() {
            break; // the closed step returns its own error
        }
    }
    Ok(())
}

fn choose_all(
    plan: &Plan,
    to_choose: impl Iterator<Item = Vec<RolloutRow>>,
    chosen: &Sender<Trial>,
) -> Result<Tally, ExportFailure> {
    let mut tally = Tally::default();
    for rows in to_choose {
        let Some(trial) = plan.take(rows, &mut tally)? else { continue };
        let tokens = tokens_of(&trial.rows);
        if chosen.send(trial, tokens).is_err() {
            break; // the closed step returns its own error
        }
    }
    Ok(tally)
}

fn tokens_of(rows: &[RolloutRow]) -> usize {
    rows.iter().map(|row| row.token_ids.len()).sum()
}

#[cfg(test)]
mod tests;
