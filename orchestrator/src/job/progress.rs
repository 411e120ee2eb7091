//! The progress of a running job, always on standard error: lines that are redrawn on a terminal, lines that stay
//! elsewhere.

mod board;
mod figures;
mod lines;
mod live;
mod output;
mod screen;
mod tasks;
mod ticker;
mod token_rate;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) use self::lines::{resumed, to_be_done};
pub(super) use self::live::Following;
use self::output::Output;
pub use self::output::above_progress;
use self::ticker::{Shared, Ticker};
use crate::admin_client::AdminClient;
use crate::common::activity::{Activities, Activity};
use crate::trial::Events;
use crate::trial::{TrialOutcome, TrialPlan};

/// The progress of a running job.
#[derive(Debug)]
pub struct Progress {
    shared: Arc<Shared>,
    /// Redraws the lines. `None` without output, and after the end.
    ticker: Option<Ticker>,
    /// Whether the warning about a verdict without a reward has been shown. It is shown once per job.
    has_warned_of_no_reward: bool,
    /// Whether labels of trials name the agent.
    has_several_agents: bool,
    /// The event stream for programs.
    pub(super) events: Arc<Events>,
}

impl Progress {
    /// Chooses the form that suits standard error.
    pub fn for_stderr(quiet: bool) -> Self {
        Self::to(Output::for_stderr(quiet))
    }

    fn to(output: Output) -> Self {
        let shared = Arc::new(Shared::new(output));
        let ticker = Ticker::start(&shared);
        let events = Arc::new(listening(Events::default(), &shared));
        Self { shared, ticker, has_warned_of_no_reward: false, has_several_agents: false, events }
    }

    /// Writes events for programs as well.
    #[must_use]
    pub fn telling(mut self, events: Events) -> Self {
        self.events = Arc::new(listening(events, &self.shared));
        self
    }

    /// Shows work that comes before the first trial, until the result is dropped.
    #[must_use]
    pub fn activity(&self, work: &str, object: &str) -> Activity {
        self.shared.activities.begin(work, object)
    }

    /// The list of builds and other work that trials wait for.
    pub(super) fn activities(&self) -> &Activities {
        &self.shared.activities
    }

    /// Shows the start of a job of `trials` trials, of which up to `at_once` run at the same time. `done` ended in an
    /// earlier run of the job.
    pub(super) fn start(&mut self, trials: usize, at_once: usize, done: &[TrialOutcome]) {
        self.shared.board().plan(trials, done, Instant::now());
        if matches!(self.shared.output, Output::Lines) {
            let to_run = to_be_done(trials, done.len());
            let at_once = at_once.min(trials.saturating_sub(done.len()));
            self.note(&if at_once > 1 { format!("{to_run}, {at_once} at a time") } else { to_run });
        }
    }

    /// Reads the tokens of running trials at intervals, until the result is dropped. `None` without output.
    pub(super) fn follow(&self, admin: &AdminClient) -> Option<Following> {
        live::follow(&self.shared, admin)
    }

    /// Makes the labels of trials name their agent.
    pub(super) fn name_agents(&mut self, has_several_agents: bool) {
        self.has_several_agents = has_several_agents;
    }

    /// Shows a text that concerns the whole job.
    pub(super) fn note(&self, text: &str) {
        self.shared.output.line(text);
    }

    /// Warns once about a trial whose tests gave a verdict but no reward, which cannot be trained as it is.
    pub(super) fn warn_of_no_reward(&mut self, trial: &TrialOutcome) {
        if !std::mem::replace(&mut self.has_warned_of_no_reward, true) {
            self.note(&format!("warning: {} {}", trial.name, trial.end_in_words()));
        }
    }

    pub(super) fn trial_started(&self, plan: &TrialPlan) {
        self.events.trial_started(plan);
        self.shared.board().begin(plan, self.has_several_agents, Instant::now());
    }

    /// Shows the end of a trial, which counts.
    pub(super) fn trial_ended(&self, trial: &TrialOutcome) {
        let (done, planned) = {
            let mut board = self.shared.board();
            board.end(trial, false, Instant::now());
            (board.all.done, board.planned)
        };
        // On a terminal, the figures show the others.
        if matches!(self.shared.output, Output::Lines) || trial.failure.is_some() {
            let width = planned.to_string().len();
            self.shared.output.styled(&format!("[{done:>width$}/{planned}] "), &lines::ended(trial));
        }
    }

    /// Shows the end of a failed attempt that another attempt follows after this wait.
    pub(super) fn trial_retried(&self, trial: &TrialOutcome, wait: Duration) {
        self.shared.board().end(trial, true, Instant::now());
        self.shared.output.styled("[retry] ", &lines::retried(trial, wait));
    }

    /// Clears the lines that are redrawn. Later notes are still shown.
    pub(super) fn end(&mut self) {
        self.ticker = None;
    }
}

fn listening(events: Events, shared: &Arc<Shared>) -> Events {
    let shared = Arc::clone(shared);
    events.listening(move |trial, phase| shared.board().enter(trial, phase, Instant::now()))
}
