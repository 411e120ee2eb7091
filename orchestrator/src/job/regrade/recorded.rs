//! A completed trial as its files record it.

use std::collections::BTreeMap;

use rolltap_rollout::ids::TrialId;
use rolltap_rollout::rollout::RewardRule;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::failure::{Cause, Phase, TrialFailure};
use crate::verify::Rewards;

/// A completed trial as its files record it.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    pub(super) name: TrialId,
    pub(super) task: String,
    /// The dataset of the task.
    pub(super) source: Option<String>,
    pub(super) sample_index: u64,
    pub(super) attempt: u64,
    /// Whether the proxy has the trial.
    pub(super) is_at_proxy: bool,
    pub(super) rewards: Rewards,
    /// The rule that makes the number to train on. `None` for the entry `reward`, or else the only entry.
    pub(super) reward_rule: Option<RewardRule>,
    pub(super) is_valid: bool,
    pub(super) failure: Option<TrialFailure>,
    /// The steps that left work to verify, in order. Empty for a task without steps.
    pub(super) steps: Vec<String>,
}

impl Recorded {
    /// Reads the result of a trial. Returns `None` if the trial was cancelled or waits for another attempt.
    pub(super) fn read(name: &TrialId, result: &Value) -> Option<Self> {
        let failure: Option<TrialFailure> = at(result, "/rolltap/failure");
        let waits = at(result, "/rolltap/awaits_retry").unwrap_or(false);
        if waits || failure.as_ref().is_some_and(|failure| failure.cause == Cause::Cancelled) {
            return None;
        }
        let steps = result.get("step_results").and_then(Value::as_array).into_iter().flatten();
        // A step without tests, as of a job that disables them, left its work too.
        let is_failed = |step: &Value| step.get("exception_info").is_some_and(Value::is_object);
        let is_verified = |step: &Value| step.get("verifier").is_some_and(Value::is_object);
        let verified = steps.filter(|step| is_verified(step) || !is_failed(step));
        let rewards = at::<BTreeMap<String, f64>>(result, "/verifier_result/rewards").unwrap_or_default();
        Some(Self {
            name: name.clone(),
            task: at(result, "/task_name")?,
            source: at(result, "/source"),
            sample_index: at(result, "/config/rolltap/sample_index").unwrap_or(0),
            attempt: at(result, "/config/rolltap/attempt").unwrap_or(0),
            is_at_proxy: result.pointer("/rolltap/proxy").is_some_and(Value::is_object),
            rewards: Rewards { reward: at(result, "/rolltap/reward"), ..Rewards::from(rewards) },
            reward_rule: at(result, "/config/rolltap/reward"),
            is_valid: at(result, "/rolltap/reward_valid").unwrap_or(false),
            failure,
            steps: verified.filter_map(|step| at(step, "/step_name")).collect(),
        })
    }

    /// Returns the failure before the tests, which a later verification does not change.
    pub(super) fn failure_before_tests(&self) -> Option<&TrialFailure> {
        self.failure.as_ref().filter(|failure| failure.phase != Phase::Verifier)
    }

    /// Returns whether the agent left work that tests can verify.
    pub(super) fn has_work(&self) -> bool {
        let failure = self.failure_before_tests();
        // A failed step does not end the trial, and the other steps were verified.
        failure.is_none_or(|failure| failure.step.is_some() || failure.cause.leaves_work_to_verify())
    }

    /// Returns whether the tests gave no valid reward, for a reason that is not the agent's.
    pub(super) fn has_failed(&self) -> bool {
        !self.is_valid && self.failure.as_ref().is_none_or(|failure| !failure.is_agents_fault)
    }
}

/// Reads a value. Returns `None` if it is missing or has another type.
fn at<T: DeserializeOwned>(value: &Value, pointer: &str) -> Option<T> {
    value.pointer(pointer).and_then(|value| serde_json::from_value(value.clone()).ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn recorded(failure: Value) -> Option<Recorded> {
        let name = TrialId::new("a__1").unwrap();
        let result = json!({
            "task_name": "a", "verifier_result": {"rewards": {"reward": 1.0}},
            "rolltap": {"reward": 1.0, "reward_valid": true, "failure": failure, "proxy": {}},
        });
        Recorded::read(&name, &result)
    }

    fn failed(phase: &str, cause: &str) -> Value {
        json!({"phase": phase, "cause": cause, "message": "", "is_agents_fault": false, "step": null})
    }

    #[test]
    fn only_work_that_an_agent_left_is_verified_again() {
        for (failure, has_work) in [
            (Value::Null, true),
            (failed("verifier", "VerifierTimeoutError"), true),
            (failed("agent", "AgentTimeoutError"), true),
            (failed("environment_setup", "SandboxBuildFailedError"), false),
            (failed("agent", "ApiError"), false),
        ] {
            assert_eq!(recorded(failure.clone()).unwrap().has_work(), has_work, "{failure}");
        }
        assert!(recorded(failed("agent", "CancelledError")).is_none(), "a resumed job runs it");
    }

    proptest::proptest! {
        #[test]
        fn no_result_panics(text in r#"\{("(task_name|rolltap|step_results|source)":(1|"a"|\[\{\}\]|\{"reward":1e400\}),?){0,4}\}"#) {
            if let Ok(result) = serde_json::from_str(&text) {
                let _ = Recorded::read(&TrialId::new("a__1").unwrap(), &result);
            }
        }
    }
}
