//! Events of a job and its trials for programs: one JSON object per line.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::sync::Mutex;

use jiff::Timestamp;
use rolltap_rollout::ids::{GroupId, TrialId};
use serde::Serialize;

use super::{TrialOutcome, TrialPlan};
use crate::failure::{Phase, TrialFailure};
use crate::verify::integrity::Suspicions;

/// The writer of events. The default writes nothing.
#[derive(Default)]
pub struct Events {
    out: Option<Mutex<Box<dyn Write + Send>>>,
    on_phase: Option<Box<PhaseListener>>,
}

/// A function that gets each trial that enters another phase.
type PhaseListener = dyn Fn(&TrialId, Phase) + Send + Sync;

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("writes", &self.out.is_some()).finish()
    }
}

/// An event of a trial. Later versions add fields and rename none.
#[derive(Serialize)]
#[serde(tag = "event")]
enum TrialEvent<'a> {
    #[serde(rename = "trial_started")]
    Started {
        trial: &'a TrialId,
        task: &'a str,
        source: Option<&'a str>,
        agent: &'a str,
        model: Option<&'a str>,
        group_id: &'a GroupId,
        sample_index: u32,
        attempt: u32,
    },
    #[serde(rename = "trial_phase")]
    Phase { trial: &'a TrialId, phase: Phase },
    #[serde(rename = "trial_ended")]
    Ended {
        trial: &'a TrialId,
        task: &'a str,
        sample_index: u32,
        attempt: u32,
        reward: Option<f64>,
        /// Every number that the verifier gave.
        rewards: &'a BTreeMap<String, f64>,
        reward_valid: bool,
        failure: Option<&'a TrialFailure>,
        /// The reasons for which the trial is suspected of cheating. Null if it was not examined.
        suspicious: Option<Vec<String>>,
        /// Whether another attempt at the sample follows. That attempt counts instead.
        retried: bool,
        calls: Option<u64>,
        seconds: f64,
    },
}

#[derive(Serialize)]
struct EventLine<E> {
    at: Timestamp,
    #[serde(flatten)]
    event: E,
}

impl Events {
    /// Writes events as lines of `out`.
    pub fn to(out: impl Write + Send + 'static) -> Self {
        Self { out: Some(Mutex::new(Box::new(out))), on_phase: None }
    }

    /// Calls this function too when a trial enters another phase.
    pub(crate) fn listening(self, on_phase: impl Fn(&TrialId, Phase) + Send + Sync + 'static) -> Self {
        Self { on_phase: Some(Box::new(on_phase)), ..self }
    }

    /// Writes one event. An error of the writer is ignored: a reader that closed its end misses the rest.
    pub(crate) fn write(&self, event: impl Serialize) {
        let Some(out) = &self.out else { return };
        let Ok(mut line) = serde_json::to_vec(&EventLine { at: Timestamp::now(), event }) else { return };
        line.push(b'\n');
        // One call under the lock writes a whole line, so that events of several trials do not mix.
        let mut out = out.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let _ = out.write_all(&line).and_then(|()| out.flush());
    }

    pub(crate) fn trial_started(&self, plan: &TrialPlan) {
        self.write(TrialEvent::Started {
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

    /// Writes that a trial has entered another phase.
    pub(crate) fn trial_phase(&self, trial: &TrialId, phase: Phase) {
        if let Some(listener) = &self.on_phase {
            listener(trial, phase);
        }
        self.write(TrialEvent::Phase { trial, phase });
    }

    pub(crate) fn trial_ended(&self, outcome: &TrialOutcome, retried: bool) {
        self.write(TrialEvent::Ended {
            trial: &outcome.name,
            task: &outcome.task_name,
            sample_index: outcome.sample_index,
            attempt: outcome.attempt,
            reward: outcome.reward,
            rewards: &outcome.rewards,
            reward_valid: outcome.reward_is_valid(),
            failure: outcome.failure.as_ref(),
            suspicious: outcome.suspicious.as_ref().map(Suspicions::reasons),
            retried,
            calls: outcome.status.as_ref().map(|status| status.calls.total),
            seconds: outcome.duration().as_secs_f64(),
        });
    }
}
