//! Reads Harbor's `TrialResult`.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::failure::{Cause, Phase, TrialFailure};
use crate::trial::{Round, StepOutcome, Timing};
use crate::verify::Rewards;

/// The part of Harbor's `TrialResult` that rolltap uses. Harbor writes the file, but agents can influence some of its
/// values.
#[derive(Debug, Default, PartialEq, Deserialize)]
pub(crate) struct HarborResult {
    agent_result: Option<AgentResult>,
    verifier_result: Option<VerifierResult>,
    exception_info: Option<ExceptionInfo>,
    environment_setup: Option<Span>,
    agent_setup: Option<Span>,
    agent_execution: Option<Span>,
    verifier: Option<Span>,
    step_results: Option<Vec<StepResult>>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct AgentResult {
    metadata: Option<Map<String, Value>>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct VerifierResult {
    rewards: Option<BTreeMap<String, f64>>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct ExceptionInfo {
    exception_type: String,
    exception_message: String,
    occurred_at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
struct Span {
    started_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct StepResult {
    step_name: String,
    agent_result: Option<AgentResult>,
    verifier_result: Option<VerifierResult>,
    exception_info: Option<ExceptionInfo>,
    agent_execution: Option<Span>,
    verifier: Option<Span>,
}

/// Harbor's `failure_cause` of exceptions, by class.
pub(crate) type Causes = BTreeMap<String, String>;

/// The result of a trial in rolltap's terms.
#[derive(Debug, Default)]
pub(crate) struct Came {
    /// The round of the whole trial. In a task with steps, its failure may come from a step.
    pub(crate) round: Round,
    pub(crate) environment_setup: Option<Timing>,
    pub(crate) agent_setup: Option<Timing>,
    pub(crate) steps: Vec<StepOutcome>,
}

impl HarborResult {
    /// Reads the result from this file, or returns `None` if Harbor wrote none.
    ///
    /// # Errors
    /// Fails if the file cannot be read or is not a result.
    pub(crate) fn read(path: &Path) -> io::Result<Option<Self>> {
        match std::fs::read(path) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Converts the result to rolltap's terms. Harbor's `failure_cause` decides whether a failure is the agent's own.
    pub(crate) fn told(self, causes: &Causes) -> Came {
        let phases = [
            (Phase::Verifier, self.verifier),
            (Phase::Agent, self.agent_execution),
            (Phase::AgentSetup, self.agent_setup),
        ];
        let steps = self.step_results.unwrap_or_default().into_iter().map(|step| step.told(causes));
        let steps: Vec<_> = steps.collect();
        // The trial's own exception has priority over those of its steps.
        let own = self.exception_info.map(|exception| exception.told(&phases, causes));
        let of_step = || {
            let (name, failure) =
                steps.iter().find_map(|step| Some((&step.name, step.round.failure.clone()?)))?;
            Some(TrialFailure { step: Some(name.clone()), ..failure })
        };
        let round = Round {
            failure: own.or_else(of_step),
            verdict: rewards(self.verifier_result),
            agent_metadata: metadata(self.agent_result),
            agent_execution: timing(self.agent_execution),
            verifier: timing(self.verifier),
        };
        let (environment_setup, agent_setup) = (timing(self.environment_setup), timing(self.agent_setup));
        Came { round, environment_setup, agent_setup, steps }
    }
}

impl StepResult {
    fn told(self, causes: &Causes) -> StepOutcome {
        let phases = [(Phase::Verifier, self.verifier), (Phase::Agent, self.agent_execution)];
        let failure = self.exception_info.map(|exception| exception.told(&phases, causes));
        let round = Round {
            failure,
            verdict: rewards(self.verifier_result),
            agent_metadata: metadata(self.agent_result),
            agent_execution: timing(self.agent_execution),
            verifier: timing(self.verifier),
        };
        StepOutcome { name: self.step_name, round }
    }
}

impl ExceptionInfo {
    /// Returns the failure, in the last of these phases that had begun when the exception occurred. `phases` are in
    /// reverse order.
    fn told(self, phases: &[(Phase, Option<Span>)], causes: &Causes) -> TrialFailure {
        let had_begun = |span: &Option<Span>| {
            span.and_then(|span| span.started_at).is_some_and(|began| began <= self.occurred_at)
        };
        let phase = phases.iter().find(|(_, span)| had_begun(span)).map(|(phase, _)| *phase);
        failure(
            phase.unwrap_or(Phase::EnvironmentSetup),
            &self.exception_type,
            self.exception_message,
            causes,
        )
    }
}

/// Returns the failure for the class of Harbor's exception. A non-zero exit code is not judged by Harbor's cause,
/// because rolltap has seen the agent's calls and judges it later.
pub(crate) fn failure(phase: Phase, class: &str, message: String, causes: &Causes) -> TrialFailure {
    let failure = TrialFailure::new(phase, Cause::of_harbor(class), message);
    if failure.cause == Cause::NonZeroAgentExitCode {
        return failure;
    }
    let cause = causes.get(class).map(String::as_str);
    let is_agents_fault = matches!(cause, Some("agent_exhausted_budget" | "agent_refused_task"));
    TrialFailure { is_agents_fault, ..failure }
}

fn rewards(verified: Option<VerifierResult>) -> Option<Rewards> {
    verified?.rewards.filter(|rewards| !rewards.is_empty()).map(Rewards::from)
}

fn metadata(result: Option<AgentResult>) -> Map<String, Value> {
    result.and_then(|result| result.metadata).unwrap_or_default()
}

fn timing(span: Option<Span>) -> Option<Timing> {
    let Span { started_at, finished_at } = span?;
    let started_at = started_at?;
    // An interrupted phase has no end.
    Some(Timing { started_at, finished_at: finished_at.unwrap_or(started_at) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENT: &str =
        r#""agent_execution": {"started_at": "2026-01-01T00:00:10Z", "finished_at": "2026-01-01T00:00:20Z"}"#;

    fn told(json: &str, causes: &[(&str, &str)]) -> Came {
        let causes = causes.iter().map(|(class, cause)| ((*class).to_owned(), (*cause).to_owned()));
        serde_json::from_str::<HarborResult>(json).unwrap().told(&causes.collect())
    }

    fn exception(class: &str, at: &str) -> String {
        format!(
            r#""exception_info": {{"exception_type": "{class}", "exception_message": "why", "occurred_at": "2026-01-01T00:00:{at}Z"}}"#
        )
    }

    #[test]
    fn a_timeout_keeps_its_reward_and_is_the_agents() {
        let json = format!(
            r#"{{{AGENT}, {}, "verifier_result": {{"rewards": {{"reward": 0.3}}}},
                "verifier": {{"started_at": "2026-01-01T00:00:30Z", "finished_at": null}},
                "agent_result": {{"metadata": {{"n_episodes": 2}}, "rollout_details": []}}}}"#,
            exception("AgentTimeoutError", "20.5")
        );
        let came = told(&json, &[("AgentTimeoutError", "agent_exhausted_budget")]);
        let failure = came.round.failure.unwrap();
        assert_eq!((failure.phase, failure.cause), (Phase::Agent, Cause::AgentTimeout));
        assert!(failure.is_agents_fault);
        assert_eq!(came.round.verdict.unwrap().reward, Some(0.3));
        assert_eq!(came.round.agent_metadata["n_episodes"], 2);
        assert_eq!(came.round.agent_execution.unwrap().finished_at.to_string(), "2026-01-01T00:00:20Z");
    }

    #[test]
    fn a_class_that_only_harbor_has_keeps_its_name_and_harbors_blame() {
        let json = format!("{{{AGENT}, {}}}", exception("SandboxLikelyOutOfMemoryError", "12"));
        let failure =
            told(&json, &[("SandboxLikelyOutOfMemoryError", "sandbox_failed")]).round.failure.unwrap();
        assert_eq!(failure.to_string(), "SandboxLikelyOutOfMemoryError in phase agent: why");
        assert!(!failure.is_agents_fault);
        let json = format!("{{{AGENT}, {}}}", exception("ContentPolicyViolationError", "12"));
        let refused = [("ContentPolicyViolationError", "agent_refused_task")];
        assert!(told(&json, &refused).round.failure.unwrap().is_agents_fault);
        let early = format!("{{{AGENT}, {}}}", exception("RuntimeError", "01"));
        let failure = told(&early, &[]).round.failure.unwrap();
        assert_eq!((failure.phase, failure.is_agents_fault), (Phase::EnvironmentSetup, false));
    }

    #[test]
    fn a_steps_failure_is_the_steps() {
        let json = format!(
            r#"{{"step_results": [{{"step_name": "a", "verifier_result": {{"rewards": {{"x": 1}}}}}},
                {{"step_name": "b", {AGENT}, {}}}]}}"#,
            exception("NonZeroAgentExitCodeError", "11")
        );
        let came = told(&json, &[("NonZeroAgentExitCodeError", "unclassified")]);
        let failure = came.round.failure.unwrap();
        assert_eq!((failure.step.as_deref(), failure.is_agents_fault), (Some("b"), true));
        assert_eq!(came.steps.len(), 2);
        assert_eq!(came.steps[0].round.verdict.as_ref().unwrap().reward, Some(1.0));
    }

    #[test]
    fn no_file_is_no_result_and_half_a_one_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("result.json");
        assert_eq!(HarborResult::read(&path).unwrap(), None);
        std::fs::write(&path, "{\"agent_result\": ").unwrap();
        assert!(HarborResult::read(&path).is_err());
    }

    proptest::proptest! {
        #[test]
        fn whatever_a_file_holds_is_a_result_or_an_error(text in "\\PC{0,200}") {
            let _ = serde_json::from_str::<HarborResult>(&text);
        }
    }

    #[test]
    fn fuzz_harbor_result() {
        rolltap_testing::fuzz!("harbor_result", |json| {
            if let Ok(result) = serde_json::from_slice::<HarborResult>(json) {
                let _ = result.told(&Causes::default());
            }
        });
    }
}
