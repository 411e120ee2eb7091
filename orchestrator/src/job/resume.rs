//! Resumes a job that was interrupted by Ctrl-C or by the death of its process. Samples that the directory records as
//! done stay as they are, and trials that were in progress get another attempt.

pub(super) mod difference;
mod error;

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use jiff::Timestamp;
use rolltap_proxy::api::PutReward;
use rolltap_rollout::ids::{GroupId, InvalidId, TrialId};
use serde_json::Value;
use uuid::Uuid;

use self::difference::{Difference, difference_of_jobs};
pub use self::error::ResumeError;
use super::plan;
use super::stretch::Stretch;
use crate::failure::{Cause, Phase, TrialFailure};
use crate::job_dir::{JobDir, is_of_a_service};
use crate::trial::{TrialOutcome, TrialPlan};

/// The state that an interrupted job left.
pub(super) struct Left {
    pub(super) job_id: Uuid,
    pub(super) started_at: Option<Timestamp>,
    pub(super) retries: u64,
    /// Whether the last run ended, by itself or by Ctrl-C.
    pub(super) has_ended: bool,
    config: Value,
    /// The attempts by group and sample, in order of their number.
    trials: BTreeMap<(String, u64), Vec<LeftTrial>>,
    checksums: BTreeMap<String, String>,
}

struct LeftTrial {
    name: TrialId,
    attempt: u32,
    /// Whether a worker may still run it.
    on_workers: bool,
    result: Option<Value>,
}

/// The samples of a job, sorted by the work that remains.
#[derive(Default)]
pub(super) struct Remaining {
    /// Samples that are done.
    pub(super) done: Vec<TrialOutcome>,
    /// Attempts with a result that a later attempt supersedes, or that the next attempt will supersede.
    pub(super) older: Vec<TrialOutcome>,
    /// Attempts without a result, because their process died. A later attempt supersedes these as well.
    pub(super) interrupted: Vec<TrialPlan>,
    /// The trials to run.
    pub(super) plans: Vec<Stretch>,
}

/// Reads the state of an earlier run of the job, or `None` if no run has written its configuration. It yields to the
/// runtime between trials, because there may be many.
pub(super) async fn look(dir: &JobDir) -> Result<Option<Left>, ResumeError> {
    // A start writes `config.json` before its first trial, so without this file there is no trial.
    let Some(config) = read(dir, &dir.config())? else { return Ok(None) };
    let id = |value: Option<&Value>| Uuid::parse_str(value?.as_str()?).ok();
    let unreadable = |problem: &str| ResumeError::Unreadable {
        dir: dir.path().to_owned(),
        file: dir.config(),
        problem: problem.to_owned(),
    };
    let job_id = id(config.pointer("/rolltap/job_id"));
    let job_id = job_id.ok_or_else(|| unreadable("is of another program, or of an older version"))?;
    let result = read(dir, &dir.result())?.unwrap_or_default();
    let mut left = Left {
        job_id,
        started_at: result.pointer("/started_at").and_then(Value::as_str).and_then(|at| at.parse().ok()),
        has_ended: result.get("finished_at").is_some_and(Value::is_string),
        retries: result.pointer("/stats/n_retries").and_then(Value::as_u64).unwrap_or(0),
        config,
        trials: BTreeMap::new(),
        checksums: BTreeMap::new(),
    };
    let names = dir.trials().map_err(|error| unreadable(&error.to_string()))?;
    for name in names {
        tokio::task::yield_now().await;
        left.add(dir, name)?;
    }
    left.trials.values_mut().for_each(|attempts| attempts.sort_by_key(|trial| trial.attempt));
    Ok(Some(left))
}

/// Reads and parses a file, or returns `None` if it does not exist.
fn read(dir: &JobDir, path: &Path) -> Result<Option<Value>, ResumeError> {
    let unreadable = |problem: String| ResumeError::Unreadable {
        dir: dir.path().to_owned(),
        file: path.to_owned(),
        problem,
    };
    match std::fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| unreadable(error.to_string())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(error.to_string())),
    }
}

impl Left {
    fn add(&mut self, dir: &JobDir, name: TrialId) -> Result<(), ResumeError> {
        let trial = dir.trial(&name);
        let Some(config) = read(dir, &trial.config())? else { return Ok(()) };
        let own = config.get("rolltap");
        let number = |key: &str| own?.get(key)?.as_u64();
        let group = own.and_then(|own| own.get("group_id")?.as_str());
        // A folder without these keys is not rolltap's and is ignored.
        let (Some(group), Some(sample), Some(attempt)) = (group, number("sample_index"), number("attempt"))
        else {
            return Ok(());
        };
        let result = read(dir, &trial.result())?;
        let checksum = result.as_ref().and_then(|result| {
            let text = |key: &str| result.get(key)?.as_str().map(str::to_owned);
            Some((group.to_owned(), text("task_checksum")?))
        });
        self.checksums.extend(checksum);
        let attempt = u32::try_from(attempt).unwrap_or(u32::MAX);
        self.trials.entry((group.to_owned(), sample)).or_default().push(LeftTrial {
            name,
            attempt,
            on_workers: own.and_then(|own| own.get("on_workers")?.as_bool()).unwrap_or(false),
            result,
        });
        Ok(())
    }

    /// Returns the attempts of these groups that have no result.
    pub(super) fn unfinished<'l>(
        &'l self,
        groups: &'l HashSet<GroupId>,
    ) -> impl Iterator<Item = &'l TrialId> {
        let is_meant = |group: &str| groups.iter().any(|meant| meant.as_str() == group);
        let tried = self.trials.iter().filter(move |((group, _), _)| is_meant(group));
        let attempts = tried.flat_map(|(_, attempts)| attempts).filter(|trial| trial.result.is_none());
        attempts.map(|trial| &trial.name)
    }

    /// Whether the directory belongs to a service.
    pub(super) fn is_of_a_service(&self) -> bool {
        is_of_a_service(&self.config)
    }

    /// Returns the last attempt at each sample, with its result if it ended.
    pub(super) fn last_attempts(&self) -> impl Iterator<Item = (&TrialId, Option<&Value>)> {
        let last = self.trials.values().filter_map(|attempts| attempts.last());
        last.map(|trial| (&trial.name, trial.result.as_ref()))
    }

    /// Checks that the current configuration describes the same job.
    pub(super) fn is_of(&self, dir: &JobDir, config: &Value) -> Result<(), ResumeError> {
        match difference_of_jobs(&self.config, config) {
            None => Ok(()),
            Some(Difference { key, before, now }) => {
                Err(ResumeError::Differs { dir: dir.path().to_owned(), key, before, now })
            }
        }
    }

    /// Sorts the samples of the job by their state. Each group is represented by its first trial. If workers run the job,
    /// trials that it left with workers continue there.
    pub(super) fn sort(
        &self,
        dir: &JobDir,
        groups: &[TrialPlan],
        on_workers: bool,
    ) -> Result<Remaining, ResumeError> {
        let mut remaining = Remaining::default();
        for group in groups {
            let id = group.group_id.to_string();
            // The rewards of a group are comparable only if all of its samples had the same task.
            if self.checksums.get(&id).is_some_and(|before| *before != group.task_files.checksum()) {
                let (dir, task) = (dir.path().to_owned(), group.task.name.clone());
                return Err(ResumeError::TaskChanged { dir, task });
            }
            for sample in 0..group.group_size {
                match self.trials.get(&(id.clone(), u64::from(sample))).and_then(|tried| tried.split_last()) {
                    Some((last, earlier)) => {
                        let plan = plan::trial(group, self.job_id, sample, 0)?;
                        if on_workers && last.may_run_on_a_worker() {
                            earlier.iter().for_each(|trial| remaining.supersede(&plan, trial));
                            remaining.plans.push(Stretch::one(last.again(&plan, earlier)));
                        } else {
                            self.sort_tried(&plan, last, earlier, &mut remaining)?;
                        }
                    }
                    None => remaining.add_untried(group, self.job_id, sample)?,
                }
            }
        }
        Ok(remaining)
    }

    fn sort_tried(
        &self,
        plan: &TrialPlan,
        last: &LeftTrial,
        earlier: &[LeftTrial],
        remaining: &mut Remaining,
    ) -> Result<(), ResumeError> {
        earlier.iter().for_each(|trial| remaining.supersede(plan, trial));
        match last.result.as_ref().map(|result| last.outcome(plan, result)) {
            // A trial that was cancelled with its job, or that waits for a retry, is not done.
            Some(outcome) if !outcome.is_cancelled() && !outcome.awaits_retry => {
                remaining.done.push(outcome);
            }
            _ => {
                remaining.supersede(plan, last);
                // The name of an attempt is never used again, because a sealed trial does not reopen.
                let next = last.attempt.saturating_add(1);
                let mut next = plan::trial(plan, self.job_id, plan.sample_index, next)?;
                let attempts = earlier.iter().chain([last]);
                next.supersedes = attempts.map(|trial| trial.name_and_reward(plan)).collect();
                remaining.plans.push(Stretch::one(next));
            }
        }
        Ok(())
    }
}

impl Remaining {
    fn add_untried(&mut self, group: &TrialPlan, job_id: Uuid, sample: u32) -> Result<(), InvalidId> {
        // Consecutive untried samples share one stretch, so that a large group takes little memory.
        if !self.plans.last_mut().is_some_and(|last| last.extend(group, sample)) {
            self.plans.push(Stretch::one(plan::trial(group, job_id, sample, 0)?));
        }
        Ok(())
    }

    fn supersede(&mut self, plan: &TrialPlan, trial: &LeftTrial) {
        match &trial.result {
            Some(result) => self.older.push(trial.outcome(plan, result)),
            None => self.interrupted.push(trial.plan(plan)),
        }
    }
}

impl LeftTrial {
    fn may_run_on_a_worker(&self) -> bool {
        self.on_workers && self.result.is_none()
    }

    /// Returns the plan of the same attempt.
    fn again(&self, plan: &TrialPlan, earlier: &[Self]) -> TrialPlan {
        let supersedes = earlier.iter().map(|trial| trial.name_and_reward(plan)).collect();
        TrialPlan { supersedes, ..self.plan(plan) }
    }

    fn plan(&self, plan: &TrialPlan) -> TrialPlan {
        TrialPlan { name: self.name.clone(), attempt: self.attempt, ..plan.clone() }
    }

    /// Returns the trial's name and the reward to set once a later attempt is open.
    fn name_and_reward(&self, plan: &TrialPlan) -> (TrialId, PutReward) {
        let outcome = match &self.result {
            Some(result) => self.outcome(plan, result),
            None => interrupted(&self.plan(plan)),
        };
        (self.name.clone(), outcome.reward_to_put())
    }

    fn outcome(&self, plan: &TrialPlan, result: &Value) -> TrialOutcome {
        TrialOutcome::recorded(&self.plan(plan), result)
    }
}

/// Returns the outcome of a trial that an earlier run of the job did not end.
pub(super) fn interrupted(plan: &TrialPlan) -> TrialOutcome {
    let why = "the job was interrupted; a later attempt counts instead";
    TrialOutcome::new(plan).failed(TrialFailure::new(Phase::Agent, Cause::Cancelled, why))
}
