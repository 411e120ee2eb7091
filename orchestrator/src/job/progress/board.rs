//! The state of a running job as people follow it. It does no I/O, and the caller gives the time.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rolltap_rollout::ids::TrialId;

use super::figures::Figures;
use super::tasks::Tasks;
use crate::failure::Phase;
use crate::trial::{TrialOutcome, TrialPlan};

/// The state of a running job.
#[derive(Debug)]
pub(super) struct Board {
    /// When this run of the job began.
    pub(super) since: Instant,
    /// The number of samples of all tasks together. 0 before the job is planned.
    pub(super) planned: usize,
    /// The figures of all tasks together.
    pub(super) all: Figures,
    /// The number of failed attempts that another attempt follows.
    pub(super) retried: usize,
    running: HashMap<TrialId, RunningTrial>,
    pub(super) tasks: Tasks,
    /// The total time and the number of attempts that ended in this run.
    ended_here: (Duration, u32),
}

/// A running trial.
#[derive(Clone, Debug)]
pub(super) struct RunningTrial {
    task: String,
    /// Its task and sample.
    pub(super) label: String,
    pub(super) since: Instant,
    pub(super) phase: Phase,
    /// When the phase began.
    pub(super) phase_since: Instant,
    /// Whether its agent calls a model.
    calls_model: bool,
    /// The number of its calls so far.
    pub(super) calls: u64,
    /// The number of its sampled tokens so far.
    pub(super) tokens: u64,
    /// When `calls` and `tokens` were read.
    read_at: Option<Instant>,
}

impl Board {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            since: now,
            planned: 0,
            all: Figures::default(),
            retried: 0,
            running: HashMap::new(),
            tasks: Tasks::default(),
            ended_here: (Duration::ZERO, 0),
        }
    }

    /// Begins a job of `planned` trials. `done` ended in an earlier run of the job.
    pub(super) fn plan(&mut self, planned: usize, done: &[TrialOutcome], now: Instant) {
        (self.since, self.planned) = (now, planned);
        done.iter().for_each(|trial| self.count(trial));
    }

    /// Begins a trial. With several agents, its label names the agent.
    pub(super) fn begin(&mut self, plan: &TrialPlan, has_several_agents: bool, now: Instant) {
        let agent = if has_several_agents { format!(" by {}", plan.agent.label()) } else { String::new() };
        let retry = if plan.attempt > 0 { format!(" attempt {}", plan.attempt + 1) } else { String::new() };
        let label = format!("{}{agent} #{}{retry}", plan.task.name, plan.sample_index);
        self.tasks.begin(&plan.task.name);
        let trial = RunningTrial {
            task: plan.task.name.to_string(),
            label,
            since: now,
            phase: Phase::Open,
            phase_since: now,
            calls_model: plan.agent.spec.calls_model(),
            calls: 0,
            tokens: 0,
            read_at: None,
        };
        self.running.insert(plan.name.clone(), trial);
    }

    pub(super) fn enter(&mut self, trial: &TrialId, phase: Phase, now: Instant) {
        if let Some(trial) = self.running.get_mut(trial) {
            (trial.phase, trial.phase_since) = (phase, now);
        }
    }

    /// Returns up to `most` running trials that may have calls that are not read yet, the least recently read first.
    pub(super) fn to_read(&self, most: usize) -> Vec<TrialId> {
        let has_news = |trial: &RunningTrial| {
            let is_calling = trial.phase == Phase::Agent;
            // After the agent's time, one more reading has all calls.
            let has_called = trial.phase > Phase::Agent && trial.read_at < Some(trial.phase_since);
            trial.calls_model && (is_calling || has_called)
        };
        let mut trials: Vec<_> = self.running.iter().filter(|(_, trial)| has_news(trial)).collect();
        trials.sort_by_key(|(_, trial)| trial.read_at);
        trials.into_iter().take(most).map(|(name, _)| name.clone()).collect()
    }

    /// Records the numbers of a running trial's calls and sampled tokens.
    pub(super) fn read(&mut self, trial: &TrialId, calls: u64, tokens: u64, now: Instant) {
        let Some(trial) = self.running.get_mut(trial) else { return };
        let new = tokens.saturating_sub(trial.tokens);
        self.all.sampled(new, now);
        self.tasks.sampled(&trial.task, new, now);
        (trial.calls, trial.tokens, trial.read_at) = (calls, tokens, Some(now));
    }

    /// Ends an attempt. It counts unless another attempt follows.
    pub(super) fn end(&mut self, outcome: &TrialOutcome, is_retried: bool, now: Instant) {
        if let Some(status) = &outcome.status {
            self.read(&outcome.name, status.calls.total, status.completion_tokens, now);
        }
        if let Some(trial) = self.running.remove(&outcome.name) {
            self.tasks.end(&trial.task);
        }
        self.ended_here.0 += outcome.duration();
        self.ended_here.1 += 1;
        if is_retried {
            self.retried += 1;
        } else {
            self.count(outcome);
        }
    }

    fn count(&mut self, outcome: &TrialOutcome) {
        self.tasks.count(outcome);
        self.all.count(outcome);
    }

    /// Returns the running trials, the longest running first.
    pub(super) fn running(&self) -> Vec<&RunningTrial> {
        let mut running: Vec<_> = self.running.values().collect();
        running.sort_by(|one, other| (one.since, &one.label).cmp(&(other.since, &other.label)));
        running
    }

    /// Returns the number of running trials.
    pub(super) fn running_count(&self) -> usize {
        self.running.len()
    }

    /// Returns the number of running trials in each phase, in the order of the phases.
    pub(super) fn phases(&self) -> Vec<(Phase, usize)> {
        let mut phases: Vec<_> = self.running.values().map(|trial| trial.phase).collect();
        phases.sort();
        phases
            .chunk_by(|one, other| one == other)
            .filter_map(|same| Some((*same.first()?, same.len())))
            .collect()
    }

    /// Estimates the time to the end of the job. Each trial is assumed to take the mean time of those that ended in this
    /// run, with as many at once as now. `None` before the first end.
    pub(super) fn time_left(&self, now: Instant) -> Option<Duration> {
        let (total, ended) = self.ended_here;
        let each = total.checked_div(ended)?;
        let left = |trial: &RunningTrial| each.saturating_sub(now.saturating_duration_since(trial.since));
        let of_running: Vec<_> = self.running.values().map(left).collect();
        let waiting = self.planned.saturating_sub(self.all.done + self.running.len());
        let of_waiting = each.saturating_mul(u32::try_from(waiting).unwrap_or(u32::MAX));
        let work = of_running.iter().fold(of_waiting, |work, left| work.saturating_add(*left));
        let at_once = u32::try_from(self.running.len().max(1)).unwrap_or(u32::MAX);
        let longest = of_running.into_iter().max().unwrap_or_default();
        Some(longest.max(work / at_once))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a job of 40 trials in its 100th second: four ended in 20 s each, one of them failed, and `running` run.
    pub(in super::super) fn sample(running: usize, now: Instant) -> Board {
        let ago = |seconds| now - Duration::from_secs(seconds);
        let mut board = Board::new(ago(100));
        board.planned = 40;
        (board.all.done, board.all.failed, board.all.rewards) = (4, 1, (2.0, 3));
        board.ended_here = (Duration::from_secs(80), 4);
        for number in 0..running {
            let phase = if number % 2 == 0 { Phase::Agent } else { Phase::Verifier };
            board.tasks.begin("task");
            let trial = RunningTrial {
                task: "task".to_owned(),
                label: format!("task #{number}"),
                since: ago(15 - number as u64 % 10),
                phase,
                phase_since: ago(5),
                calls_model: true,
                calls: number as u64,
                tokens: 1_000 * number as u64,
                read_at: None,
            };
            board.running.insert(TrialId::new(format!("task__{number}")).unwrap(), trial);
        }
        board
    }

    #[test]
    fn the_estimate_counts_waiting_and_running_trials() {
        let now = Instant::now();
        // 34 trials wait, of 20 s each with two at once. The two that run need 5 and 6 s more.
        assert_eq!(sample(2, now).time_left(now), Some(Duration::from_millis(345_500)));
        assert_eq!(Board::new(now).time_left(now), None, "no trial has ended");
        let mut last = sample(2, now);
        last.all.done = 38;
        assert_eq!(last.time_left(now), Some(Duration::from_secs(6)), "the longest of the last ones");
    }

    #[test]
    fn calls_are_read_during_the_agents_time_and_once_after_it() {
        let now = Instant::now();
        let mut board = sample(2, now);
        assert_eq!(board.to_read(8).len(), 2);
        assert_eq!(board.to_read(1).len(), 1);
        let all = board.to_read(8);
        all.iter().for_each(|trial| board.read(trial, 7, 5_000, now));
        let calling: Vec<_> = board.to_read(8).iter().map(ToString::to_string).collect();
        assert_eq!(calling, ["task__0"], "the other is in its verifier");
        assert_eq!(board.all.tokens_per_second(board.since, now), Some((5_000.0 + 4_000.0) / 60.0));
        assert_eq!(board.phases(), [(Phase::Agent, 1), (Phase::Verifier, 1)]);
    }
}
