//! Runs a task with steps: one environment and one trial at the proxy, with an agent's time and a verdict for each
//! step.

use std::collections::{BTreeMap, BTreeSet};

use rolltap_proxy::api::TrialOpened;

use super::instruction::Instruction;
use crate::common::shell::quoted;
use crate::environment::{Environment, Exec};
use crate::failure::{Cause, Phase, TrialFailure, environment_failure};
use crate::task::{RewardStrategy, Step};
use crate::trial::{Round, StepOutcome, Trial};
use crate::verify::{Emptied, Rewards, make_empty, of_tests};

impl Trial<'_> {
    pub(crate) async fn run_steps(&mut self, environment: &mut Option<Environment>, opened: &TrialOpened) {
        let steps = self.task.steps.clone();
        let count = steps.len();
        let mut tests_are_inside = false;
        for (index, step) in steps.iter().enumerate() {
            self.log.line(format!("step {}: {} of {count}", step.name, index + 1));
            let round = match self.dir.create_step(&step.name) {
                Ok(dir) => {
                    let instruction = Instruction {
                        task: &step.task,
                        dir,
                        step: Some(&step.name),
                        is_last: index + 1 == count,
                    };
                    let prepared =
                        self.prepare_step(environment.as_ref(), step, index, tests_are_inside).await;
                    match prepared {
                        Ok(()) => Box::pin(self.round(environment, opened, &instruction)).await,
                        Err(failure) => self.failed_step(failure),
                    }
                }
                Err(error) => {
                    self.failed_step(TrialFailure::from_error(Phase::StepSetup, Cause::Internal, &error))
                }
            };
            // The next step must remove these tests before its agent sees them.
            tests_are_inside = step.task.separate_verifier.is_none() && round.verifier.is_some();
            let goes_on = self.goes_on(step, &round);
            self.keep_step(step, round);
            if !goes_on {
                break;
            }
        }
        let strategy = self.task.config.multi_step_reward_strategy.unwrap_or_default();
        self.outcome.verifier_truncated = truncated(&self.outcome.steps);
        let rewards = overall(&self.outcome.steps, strategy);
        self.outcome.take_verdict(rewards);
    }

    fn failed_step(&self, failure: TrialFailure) -> Round {
        self.log.line(format!("failed: {failure}"));
        Round { failure: Some(failure), ..Round::default() }
    }

    /// Records a step. As in Harbor, a failure that ends the trial is the trial's, and any other failure is the step's.
    fn keep_step(&mut self, step: &Step, round: Round) {
        let name = step.name.clone();
        if let Some(failure) = &round.failure {
            let ends_all = failure.cause.ends_the_trial();
            let step = (!ends_all).then(|| name.clone());
            self.outcome.failure.get_or_insert(TrialFailure { step, ..failure.clone() });
        }
        self.outcome.steps.push(StepOutcome { name, round });
    }

    /// Returns whether the next step begins, by Harbor's rules.
    fn goes_on(&self, step: &Step, round: &Round) -> bool {
        // A failure with a verdict does not end the trial.
        if let (Some(failure), None) = (&round.failure, &round.verdict) {
            self.log.line(format!("no step after {}: {}", step.name, failure.cause));
            return false;
        }
        let (Some(least), false) = (&step.min_reward, self.plan.extras.without_verifier) else { return true };
        let none = BTreeMap::new();
        let unmet = least.unmet(round.verdict.as_ref().map_or(&none, |verdict| &verdict.rewards));
        if let Some(unmet) = &unmet {
            self.log.line(format!("no step after {}: {unmet}", step.name));
        }
        unmet.is_none()
    }

    /// Prepares the environment for a step: removes logs and tests of the earlier step, and uploads the files of this
    /// step.
    async fn prepare_step(
        &self,
        environment: Option<&Environment>,
        step: &Step,
        index: usize,
        tests_are_inside: bool,
    ) -> Result<(), TrialFailure> {
        let phase = Phase::StepSetup;
        let Some(environment) = environment else { return Ok(()) };
        let user = step.task.config.agent.user.as_deref();
        let prepare = async {
            let paths = environment.paths();
            let open = |dir| Emptied { dir, is_open: true };
            let mut dirs = Vec::new();
            // A fresh environment has no logs of an earlier step.
            if index > 0 {
                dirs.extend([open(&paths.agent_logs), open(&paths.artifacts)]);
            }
            if tests_are_inside {
                dirs.extend(of_tests(paths));
            }
            make_empty(environment, &dirs).await?;
            let Some(workdir) = &step.workdir else { return Ok(None) };
            environment.upload(workdir, &paths.workdir).await?;
            if !workdir.join("setup.sh").is_file() {
                return Ok(None);
            }
            let script = quoted(&format!("{}/setup.sh", paths.workdir.trim_end_matches('/')));
            let command = format!("bash {script}");
            let exec = Exec { command, user: user.map(str::to_owned), ..Exec::default() };
            environment.exec(exec).await.map(Some)
        };
        let done = Box::pin(self.within(phase, prepare)).await?;
        let output = done.map_err(|error| environment_failure(phase, &error))?;
        if let Some(output) = output.filter(|output| output.exit_code != Some(0)) {
            let said = output.last_words();
            let code =
                output.exit_code.map_or_else(|| "a signal".to_owned(), |code| format!("exit code {code}"));
            let message = format!("setup.sh of step {} ended with {code}: {said}", step.name);
            return Err(TrialFailure::new(phase, Cause::StepSetup, message));
        }
        match &step.healthcheck {
            Some(check) => self.check_health(environment, check, user).await,
            None => Ok(()),
        }
    }
}

/// Returns what was too large to be stored whole, with the name of its step.
pub(crate) fn truncated(steps: &[StepOutcome]) -> Vec<String> {
    let notes = |step: &StepOutcome| {
        let notes = step.round.verdict.iter().flat_map(|verdict| &verdict.truncated);
        notes.map(|note| format!("step {}: {note}", step.name)).collect::<Vec<_>>()
    };
    steps.iter().flat_map(notes).collect()
}

/// Returns the rewards of a task with steps, or `None` if no step was verified.
///
/// The rules are Harbor's. The mean ignores steps without a verdict, and counts a key that a verdict lacks as 0. The
/// final rewards are those of the last step that began, if it has a verdict.
pub(crate) fn overall(steps: &[StepOutcome], strategy: RewardStrategy) -> Option<Rewards> {
    let judged = || steps.iter().filter_map(|step| step.round.verdict.as_ref());
    match strategy {
        RewardStrategy::Final => steps.last()?.round.verdict.clone(),
        RewardStrategy::Mean => {
            let keys: BTreeSet<_> = judged().flat_map(|verdict| verdict.rewards.keys()).collect();
            // Verdicts without any number have no mean.
            let count = u32::try_from(judged().count()).ok().filter(|_| !keys.is_empty())?;
            let sum =
                |key| judged().map(|verdict| verdict.rewards.get(key).copied().unwrap_or(0.0)).sum::<f64>();
            let means = keys.into_iter().map(|key| (key.clone(), sum(key) / f64::from(count)));
            Some(Rewards::from(means.collect::<BTreeMap<_, _>>()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(rewards: Option<&[(&str, f64)]>) -> StepOutcome {
        let rewards = rewards.map(|rewards| {
            Rewards::from(
                rewards.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect::<BTreeMap<_, _>>(),
            )
        });
        StepOutcome { name: "a".to_owned(), round: Round { verdict: rewards, ..Round::default() } }
    }

    #[test]
    fn rewards_of_steps_become_one_by_harbors_rules() {
        use RewardStrategy::{Final, Mean};
        let all =
            [step(Some(&[("reward", 1.0), ("style", 0.5)])), step(None), step(Some(&[("reward", 0.0)]))];
        let of = |steps: &[StepOutcome], strategy| {
            overall(steps, strategy).map(|rewards| format!("{:?}", rewards.rewards)).unwrap_or_default()
        };
        assert_eq!(of(&all, Mean), r#"{"reward": 0.5, "style": 0.25}"#);
        assert_eq!(of(&all, Final), r#"{"reward": 0.0}"#);
        assert_eq!(of(&all[..2], Final), "", "the last step was not judged");
        assert_eq!(of(&all[1..2], Mean), "");
        assert_eq!(of(&[step(Some(&[]))], Mean), "", "no key, no reward");
        assert_eq!(of(&[], Final), "");
    }
}
