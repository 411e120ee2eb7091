//! Runs the trials of a queue, a limited number at once, and decides which failed trial gets another attempt.

use std::sync::Arc;
use std::time::Duration;

use rolltap_proxy::TrialAdmission;
use tokio::time::Instant;
use uuid::Uuid;

use super::plan;
use super::queue::{NextTrial, Queue};
use super::running::{EndedTrial, Running};
use crate::agent_reported::Returned;
use crate::trial::{TrialContext, TrialOutcome, TrialPlan, spans};

/// The trials that run and those that wait.
pub(crate) struct Dispatcher {
    context: Arc<TrialContext>,
    pub(crate) queue: Queue,
    running: Running,
    /// `None` if only the queue limits the number of running trials.
    admission: Option<TrialAdmission>,
    /// Whether the next trial waits for [`Self::admission`].
    is_held: bool,
    job_id: Uuid,
    job_name: String,
    /// The number of consecutive trials without a trainable call.
    empty_in_a_row: u32,
    /// The number of such trials after which no further trial begins. 0 disables this limit.
    max_empty: u32,
    /// Why no further trial may begin, if a problem affects all trials.
    halted: Option<String>,
}

/// Why a dispatcher needs attention.
pub(crate) enum Wakeup {
    /// A trial ended.
    Ended(Box<EndedTrial>),
    /// A trial that waited may begin.
    Due,
}

/// The end of a trial, recorded.
pub(crate) struct TrialEnd {
    pub(crate) outcome: TrialOutcome,
    /// The attempt that follows. `None` if the outcome counts.
    pub(crate) next: Option<NextAttempt>,
}

/// Another attempt at the sample of a failed trial.
pub(crate) struct NextAttempt {
    plan: TrialPlan,
    /// The wait before it.
    pub(crate) wait: Duration,
}

impl Dispatcher {
    /// Makes a dispatcher of a job of this id and name.
    pub(crate) fn new(
        context: Arc<TrialContext>,
        queue: Queue,
        admission: Option<TrialAdmission>,
        (job_id, job_name): (Uuid, &str),
        max_empty: u32,
    ) -> Self {
        Self {
            context,
            queue,
            running: Running::default(),
            admission,
            is_held: false,
            job_id,
            job_name: job_name.to_owned(),
            empty_in_a_row: 0,
            max_empty,
            halted: None,
        }
    }

    /// Returns why no further trial may begin, if a problem affects all trials.
    pub(crate) fn halted(&self) -> Option<&str> {
        self.halted.as_deref()
    }

    /// Returns the number of running trials.
    pub(crate) fn running(&self) -> usize {
        self.running.count()
    }

    /// Returns whether a trial runs, or waits for a retry or for its admission.
    pub(crate) fn has_work(&self) -> bool {
        let waits = || self.is_held || self.queue.next_due(Instant::now()).is_some();
        self.running() > 0 || (!self.is_ending() && waits())
    }

    /// Returns whether no further trial may begin.
    fn is_ending(&self) -> bool {
        self.halted.is_some() || self.context.cancellation.stop.is_cancelled()
    }

    /// Takes the next trial that may start, for [`Self::start`]. `None` if none may.
    pub(crate) fn next_to_start(&mut self) -> Option<NextTrial> {
        self.is_held = false;
        if self.is_ending() {
            return None;
        }
        let (admission, is_held) = (self.admission.as_ref(), &mut self.is_held);
        self.queue.take(Instant::now(), |plan| {
            let admission = admission.filter(|_| plan.agent.spec.calls_model());
            *is_held = admission.is_some_and(|admission| !admission.admit(&plan.name, &kind(plan)));
            !*is_held
        })
    }

    /// Starts a trial.
    pub(crate) fn start(&mut self, plan: TrialPlan) {
        self.running.start(&self.context, plan);
    }

    /// Waits until a trial ends, or another may begin: a retry is due, or the admission has news. Returns `None` if no
    /// trial runs and none waits for that. The caller may drop the future: the end of a trial is not lost.
    pub(crate) async fn next(&mut self) -> Option<Wakeup> {
        let due = if self.is_ending() { None } else { self.queue.next_due(Instant::now()) };
        let admission = self.admission.as_ref().filter(|_| self.is_held && !self.is_ending());
        let stop = &self.context.cancellation.stop;
        if due.is_none() && admission.is_none() {
            return self.running.next().await.map(Box::new).map(Wakeup::Ended);
        }
        let is_due = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        let may_fit = async {
            match admission {
                Some(admission) => admission.changed().await,
                None => std::future::pending().await,
            }
        };
        Some(tokio::select! {
            Some(ended) = self.running.next() => Wakeup::Ended(Box::new(ended)),
            () = is_due => Wakeup::Due,
            () = may_fit => Wakeup::Due,
            () = stop.cancelled() => Wakeup::Due,
        })
    }

    /// Records the end of a trial, and decides whether another attempt follows.
    pub(crate) async fn record(&mut self, EndedTrial { plan, result }: EndedTrial) -> TrialEnd {
        let outcome = match result {
            Ok(outcome) => outcome,
            Err(error) => self.context.record_panic(&plan, &error).await,
        };
        self.queue.ended(&plan);
        // A trial that was never sealed still has its place.
        if let Some(admission) = &self.admission {
            admission.release(&plan.name);
        }
        let (name, log) = (&outcome.name, &self.context.log);
        log.line(format!("{name} {}", outcome.end_in_words()));
        for note in outcome.returned.iter().flat_map(Returned::notes) {
            log.line(format!("{name} handed back: {note}"));
        }
        self.watch(&outcome);
        if let Some(tracer) = &self.context.tracer {
            spans::record(tracer, &self.job_name, &plan, &outcome);
        }
        let next = self.next_attempt(&plan, &outcome);
        self.context.events.trial_ended(&outcome, next.is_some());
        TrialEnd { outcome, next }
    }

    /// Queues another attempt. The failed outcome counts only if this attempt never begins, so the queue holds it.
    pub(crate) fn try_again(&mut self, NextAttempt { plan, wait }: NextAttempt, failed: TrialOutcome) {
        let (name, next, wait_sec) = (&failed.name, &plan.name, wait.as_secs_f64());
        self.context.log.line(format!("{name} is tried again as {next} in {wait_sec} s"));
        self.queue.again(plan, Instant::now() + wait, failed);
    }

    /// Lets no further trial begin if the outcome shows a problem that affects all trials.
    fn watch(&mut self, outcome: &TrialOutcome) {
        self.empty_in_a_row = match outcome.is_captured() {
            // Such a trial has no complete call and gives no evidence either way.
            None => self.empty_in_a_row,
            Some(true) => 0,
            Some(false) => self.empty_in_a_row.saturating_add(1),
        };
        let is_in_vain = self.max_empty > 0 && self.empty_in_a_row >= self.max_empty;
        let in_vain = is_in_vain.then(|| nothing_to_train(self.empty_in_a_row));
        if let Some(why) = outcome.halts.clone().or(in_vain).filter(|_| self.halted.is_none()) {
            self.context.log.line(format!("no further trial begins: {why}"));
            self.halted = Some(why);
        }
    }

    /// Returns the next attempt if a retry is due.
    fn next_attempt(&self, plan: &TrialPlan, outcome: &TrialOutcome) -> Option<NextAttempt> {
        if self.is_ending() || plan.request.stop.is_cancelled() || !outcome.awaits_retry {
            return None;
        }
        let wait = self.context.retry.wait(outcome, plan.retries)?;
        let number = plan.attempt.checked_add(1)?;
        let mut next = plan::trial(plan, self.job_id, plan.sample_index, number).ok()?;
        next.retries = plan.retries.after(outcome);
        if outcome.opened {
            next.supersedes.push((outcome.name.clone(), outcome.reward_to_put()));
        }
        Some(NextAttempt { plan: next, wait })
    }
}

/// Returns the name that trials with the same first prompt share.
fn kind(plan: &TrialPlan) -> String {
    format!("{}/{}", plan.agent.label(), plan.task_id)
}

fn nothing_to_train(trials: u32) -> String {
    format!(
        "{trials} trials in a row were captured without anything to train: the upstream, or a router before it, sends no token \
         ids or no logprobs; the proxy's log names the field (--max-empty-trials 0 runs the job all the same)"
    )
}
