//! The trials of a running job: their start, their end and their retries.

use std::time::Duration;

use tokio::time::Instant;

use super::Job;
use crate::agent_reported::Returned;
use crate::job::plan;
use crate::job::queue::NextTrial;
use crate::job::running::Running;
use crate::trial::{TrialOutcome, TrialPlan, spans};

impl Job {
    pub(super) async fn run_trials(&mut self) {
        let mut running = Running::default();
        loop {
            while let Some(turn) = self.next_to_start() {
                if let Some(before) = turn.before {
                    self.attempts.follow(*before);
                }
                self.progress.trial_started(&turn.plan);
                running.start(&self.context, turn.plan);
                // Starting many trials takes a while, and a request to stop the job must be noticed meanwhile.
                tokio::task::yield_now().await;
            }
            let stop = &self.context.cancellation.stop;
            let due = if self.is_ending() { None } else { self.queue.next_due(Instant::now()) };
            let (plan, result) = match due {
                None => match running.next().await {
                    Some(ended) => ended,
                    None => break,
                },
                Some(due) => tokio::select! {
                    Some(ended) = running.next() => ended,
                    () = tokio::time::sleep_until(due) => continue,
                    () = stop.cancelled() => continue,
                },
            };
            let outcome = match result {
                Ok(outcome) => outcome,
                Err(error) => self.context.record_panic(&plan, &error).await,
            };
            self.queue.ended(&plan);
            self.record_outcome(&plan, outcome);
            if let Err(problem) = self.write_result(running.count(), None) {
                self.context.log.line(problem);
            }
        }
        // An outcome whose retry did not begin counts as it is. A resumed job retries it.
        self.queue.give_up().for_each(|before| self.attempts.count(before));
    }

    fn next_to_start(&mut self) -> Option<NextTrial> {
        if self.is_ending() { None } else { self.queue.take(Instant::now()) }
    }

    fn record_outcome(&mut self, plan: &TrialPlan, outcome: TrialOutcome) {
        let (name, log) = (&outcome.name, &self.context.log);
        log.line(format!("{name} {}", outcome.end_in_words()));
        for note in outcome.returned.iter().flat_map(Returned::notes) {
            log.line(format!("{name} handed back: {note}"));
        }
        self.empty_in_a_row = match outcome.is_captured() {
            // Such a trial has no complete call and gives no evidence either way.
            None => self.empty_in_a_row,
            Some(true) => 0,
            Some(false) => self.empty_in_a_row.saturating_add(1),
        };
        if outcome.lacks_the_reward() {
            self.progress.warn_of_no_reward(&outcome);
        }
        let is_in_vain = self.max_empty > 0 && self.empty_in_a_row >= self.max_empty;
        let in_vain = is_in_vain.then(|| nothing_to_train(self.empty_in_a_row));
        if let Some(why) = outcome.halts.clone().or(in_vain).filter(|_| self.halted.is_none()) {
            log.line(format!("no further trial begins: {why}"));
            self.halted = Some(why);
        }
        if let Some(tracer) = &self.context.tracer {
            spans::record(tracer, self.records.job_name(), plan, &outcome);
        }
        let again = self.next_attempt(plan, &outcome);
        self.progress.events.trial_ended(&outcome, again.is_some());
        match again {
            // The failed outcome counts only if its retry never begins, so the queue holds it.
            Some((next, wait)) => {
                self.context.log.line(format!(
                    "{name} is tried again as {} in {} s",
                    next.name,
                    wait.as_secs_f64()
                ));
                self.progress.trial_retried(&outcome, wait);
                self.queue.again(next, Instant::now() + wait, outcome);
            }
            None => {
                self.progress.trial_ended(&outcome);
                self.attempts.count(outcome);
            }
        }
    }

    /// Returns the next attempt and the wait before it, if a retry is due.
    fn next_attempt(&self, plan: &TrialPlan, outcome: &TrialOutcome) -> Option<(TrialPlan, Duration)> {
        if self.is_ending() || !outcome.awaits_retry {
            return None;
        }
        let wait = self.context.retry.wait(outcome, plan.retries)?;
        let number = plan.attempt.checked_add(1)?;
        let mut next = plan::trial(plan, self.records.job_id(), plan.sample_index, number).ok()?;
        next.retries = plan.retries.saturating_add(1);
        if outcome.opened {
            next.supersedes.push((outcome.name.clone(), outcome.reward_to_put()));
        }
        Some((next, wait))
    }
}

fn nothing_to_train(trials: u32) -> String {
    format!(
        "{trials} trials in a row were captured without anything to train: the upstream, or a router before it, sends no token \
         ids or no logprobs; the proxy's log names the field (--max-empty-trials 0 runs the job all the same)"
    )
}
