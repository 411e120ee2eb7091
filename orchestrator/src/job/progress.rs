//! The progress of a running job, always on standard error: a bar on a terminal, lines elsewhere.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::common::shown_path::shown;
use crate::job_dir::JobDir;
use crate::trial::Events;
use crate::trial::{TrialOutcome, in_words};

/// The progress of a running job.
#[derive(Debug)]
pub struct Progress {
    shown: Shown,
    /// Whether the warning about a verdict without a reward has been shown. It is shown once per job.
    has_warned_of_no_reward: bool,
    /// The event stream for programs.
    pub(super) events: Arc<Events>,
}

/// The form of the progress for people.
#[derive(Debug)]
enum Shown {
    /// A bar that is redrawn.
    Bar(ProgressBar),
    /// A line per trial.
    Lines,
    /// Nothing.
    Quiet,
}

impl Progress {
    /// Chooses the form that suits standard error.
    pub fn for_stderr(quiet: bool) -> Self {
        let shown = if quiet {
            Shown::Quiet
        } else if std::io::stderr().is_terminal() {
            Shown::Bar(ProgressBar::no_length())
        } else {
            Shown::Lines
        };
        Self { shown, has_warned_of_no_reward: false, events: Arc::default() }
    }

    /// Writes events for programs as well.
    pub fn telling(self, events: Events) -> Self {
        Self { events: Arc::new(events), ..self }
    }

    /// Shows the start of a job of `trials` trials. `done` ended in an earlier run of the job.
    pub(super) fn start(&self, trials: usize, done: &[TrialOutcome]) {
        match &self.shown {
            Shown::Bar(bar) => {
                let template = "{bar:32} {pos}/{len} trials  {elapsed}  {msg}";
                let style =
                    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
                bar.set_style(style);
                bar.set_length(trials as u64);
                bar.set_position(done.len() as u64);
                bar.enable_steady_tick(Duration::from_millis(200));
            }
            Shown::Lines => self.note(&to_be_done(trials, done.len())),
            Shown::Quiet => {}
        }
    }

    /// Shows a text that concerns the whole job.
    pub(super) fn note(&self, text: &str) {
        match &self.shown {
            Shown::Bar(bar) => bar.println(text),
            // An error of standard error, as on a full disk, must not stop the job.
            Shown::Lines => drop(writeln!(std::io::stderr(), "{text}")),
            Shown::Quiet => {}
        }
    }

    /// Warns once about a trial whose tests gave a verdict but no reward, which cannot be trained as it is.
    pub(super) fn warn_of_no_reward(&mut self, trial: &TrialOutcome) {
        if !std::mem::replace(&mut self.has_warned_of_no_reward, true) {
            self.note(&format!("warning: {} {}", trial.name, trial.end_in_words()));
        }
    }

    /// Shows the end of a trial. `done` holds every trial that ended, this trial last.
    pub(super) fn trial_ended(&self, done: &[TrialOutcome], planned: usize) {
        let Some(trial) = done.last() else { return };
        match &self.shown {
            Shown::Bar(bar) => {
                let rewards: Vec<f64> = done.iter().filter_map(|trial| trial.reward).collect();
                let failed = done.iter().filter(|trial| trial.failure.is_some()).count();
                bar.set_position(done.len() as u64);
                bar.set_message(match mean(&rewards) {
                    Some(mean) => format!("mean reward {mean:.3}, {failed} failed"),
                    None => format!("{failed} failed"),
                });
            }
            Shown::Lines => self.note(&format!("[{}/{planned}] {}", done.len(), line(trial))),
            Shown::Quiet => {}
        }
    }

    pub(super) fn end(&self) {
        if let Shown::Bar(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}

/// Formats the number of trials of a job, and how many ended in an earlier run.
pub(super) fn to_be_done(trials: usize, before: usize) -> String {
    let said = if trials == 1 { "1 trial".to_owned() } else { format!("{trials} trials") };
    if before == 0 { format!("{said} to run") } else { format!("{said}, {before} of them ended before") }
}

/// Formats the state in which a resumed job begins.
pub(super) fn resumed(dir: &JobDir, planned: usize, done: &[TrialOutcome]) -> String {
    let failed = done.iter().filter(|trial| trial.failure.is_some()).count();
    let (complete, left) = (done.len(), planned.saturating_sub(done.len()));
    format!(
        "resuming {}: {complete} of {planned} trials complete ({failed} failed), {left} to run",
        shown(dir.path()).display()
    )
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Formats one trial as one line.
fn line(trial: &TrialOutcome) -> String {
    let reward = match trial.reward {
        Some(reward) => reward.to_string(),
        None if trial.rewards.is_empty() => "none".to_owned(),
        None => format!("none ({})", in_words(&trial.rewards, f64::to_string)),
    };
    let calls = trial.status.as_ref().map_or(0, |status| status.calls.total);
    let seconds = trial.duration().as_secs_f64();
    let failure = trial.failure.as_ref().map(|failure| format!("  {failure}")).unwrap_or_default();
    format!("{}  reward {reward}  {calls} calls  {seconds:.1} s{failure}", trial.name)
}
