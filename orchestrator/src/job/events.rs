//! What happens in a job, for machines: a JSON object a line.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::sync::Mutex;

use jiff::Timestamp;
use rolltap_rollout::ids::{GroupId, TrialId};
use serde::Serialize;
use uuid::Uuid;

use super::{JobReport, RolloutFiles};
use crate::trial::{Phase, TrialFailure, TrialOutcome, TrialPlan};

/// Where events go.
#[derive(Default)]
pub struct Events {
    out: Option<Mutex<Box<dyn Write + Send>>>,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("told", &self.out.is_some()).finish()
    }
}

/// One event. Fields are added in later versions, and none is renamed.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Event<'a> {
    /// Everything is checked and started.
    JobStarted {
        job: &'a str,
        job_id: Uuid,
        dir: String,
        /// Samples of all tasks together.
        trials: usize,
        /// How many of them had ended in an earlier run.
        finished_before: usize,
    },
    TrialStarted {
        trial: &'a TrialId,
        task: &'a str,
        source: Option<&'a str>,
        agent: &'a str,
        model: Option<&'a str>,
        group_id: &'a GroupId,
        sample_index: u32,
        attempt: u32,
    },
    TrialPhase {
        trial: &'a TrialId,
        phase: Phase,
    },
    TrialEnded {
        trial: &'a TrialId,
        task: &'a str,
        sample_index: u32,
        attempt: u32,
        reward: Option<f64>,
        /// Every number that the verifier gave.
        rewards: &'a BTreeMap<String, f64>,
        reward_valid: bool,
        failure: Option<&'a TrialFailure>,
        /// Another attempt at the sample follows, and counts instead.
        retried: bool,
        calls: Option<u64>,
        seconds: f64,
    },
    JobEnded {
        dir: String,
        trials: usize,
        planned: usize,
        /// Whether the exit code is 0.
        clean: bool,
        rollouts: Option<&'a RolloutFiles>,
        problems: &'a [String],
    },
}

#[derive(Serialize)]
struct Line<'a> {
    at: Timestamp,
    #[serde(flatten)]
    event: Event<'a>,
}

impl Events {
    /// Events as lines of `out`.
    pub fn to(out: impl Write + Send + 'static) -> Self {
        Self { out: Some(Mutex::new(Box::new(out))) }
    }

    /// A reader that has left misses the rest, and nothing else happens.
    pub(super) fn tell(&self, event: Event<'_>) {
        let Some(out) = &self.out else { return };
        let Ok(mut line) = serde_json::to_vec(&Line { at: Timestamp::now(), event }) else { return };
        line.push(b'\n');
        let mut out = out.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let _ = out.write_all(&line).and_then(|()| out.flush());
    }

    pub(super) fn trial_started(&self, plan: &TrialPlan) {
        self.tell(Event::TrialStarted {
            trial: &plan.name,
            task: &plan.task.name,
            source: plan.source.as_deref(),
            agent: plan.agent.spec.name(),
            model: plan.agent.model.as_deref(),
            group_id: &plan.group_id,
            sample_index: plan.sample_index,
            attempt: plan.attempt,
        });
    }

    /// A trial goes on to another phase.
    pub(crate) fn trial_phase(&self, trial: &TrialId, phase: Phase) {
        self.tell(Event::TrialPhase { trial, phase });
    }

    pub(super) fn trial_ended(&self, outcome: &TrialOutcome, retried: bool) {
        self.tell(Event::TrialEnded {
            trial: &outcome.name,
            task: &outcome.task_name,
            sample_index: outcome.sample_index,
            attempt: outcome.attempt,
            reward: outcome.reward,
            rewards: &outcome.rewards,
            reward_valid: outcome.reward_is_valid(),
            failure: outcome.failure.as_ref(),
            retried,
            calls: outcome.status.as_ref().map(|status| status.calls.total),
            seconds: outcome.duration().as_secs_f64(),
        });
    }

    pub(super) fn job_ended(&self, report: &JobReport) {
        self.tell(Event::JobEnded {
            dir: report.dir.path().display().to_string(),
            trials: report.trials.len(),
            planned: report.planned,
            clean: report.is_clean(),
            rollouts: report.rollouts.as_ref(),
            problems: &report.problems,
        });
    }
}
