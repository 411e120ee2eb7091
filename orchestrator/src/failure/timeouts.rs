//! The time limits of the phases of a trial: a task's limits under a job's settings, by Harbor's rule.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A job's settings for the limits of its tasks. Harbor's rule is `min(override or task's, max) × (the phase's
/// multiplier or the general one)`, where an override or maximum of 0 counts as absent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TimeoutPolicy {
    /// `timeout_multiplier`: the multiplier of every limit whose phase has no multiplier of its own.
    pub multiplier: f64,
    /// `agent.override_timeout_sec`, `agent.max_timeout_sec`, `agent_timeout_multiplier`: the agent's time. In a task
    /// of several steps, the limit holds for each step.
    pub agent: PhaseLimit,
    /// `agent.override_setup_timeout_sec`, `agent_setup_timeout_multiplier`: the preparation of the agent. Harbor has
    /// no maximum for it.
    pub agent_setup: PhaseLimit,
    /// `verifier.override_timeout_sec`, `verifier.max_timeout_sec`, `verifier_timeout_multiplier`: the tests.
    pub verifier: PhaseLimit,
    /// `environment_build_timeout_multiplier`: the build and start of an environment. Harbor has no override and no
    /// maximum for it.
    pub environment_build: PhaseLimit,
    /// The most seconds of a whole trial, from its opening to its reward. `None` for no limit. A setting of rolltap:
    /// Harbor has none, and no multiplier applies.
    pub trial_deadline_sec: Option<f64>,
}

/// A job's settings for the limit of one phase. Each may be absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PhaseLimit {
    /// Seconds that replace the task's own limit.
    pub override_sec: Option<f64>,
    /// The most seconds, before the multiplier.
    pub max_sec: Option<f64>,
    /// The multiplier of this phase, in place of [`TimeoutPolicy::multiplier`].
    pub multiplier: Option<f64>,
}

/// A setting whose value is not a valid time.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{setting} = {value}: expected {expected}")]
pub struct InvalidTimeout {
    /// Harbor's name of the setting.
    pub setting: &'static str,
    /// The given value.
    pub value: f64,
    /// A description of valid values.
    pub expected: &'static str,
}

/// The default limit in seconds for the preparation of an agent, from Harbor.
pub const AGENT_SETUP_SEC: f64 = 360.0;

/// The valid values of multipliers and of the deadline.
const ABOVE_ZERO: &str = "a finite number above 0";
/// The valid values of overrides and maxima.
const NOT_BELOW_ZERO: &str = "a finite number of at least 0, where 0 means none";

impl Default for TimeoutPolicy {
    fn default() -> Self {
        Self {
            multiplier: 1.0,
            agent: PhaseLimit::default(),
            agent_setup: PhaseLimit::default(),
            verifier: PhaseLimit::default(),
            environment_build: PhaseLimit::default(),
            trial_deadline_sec: None,
        }
    }
}

impl TimeoutPolicy {
    /// Returns the policy that multiplies every limit by the same number.
    pub fn multiplied(multiplier: f64) -> Self {
        Self { multiplier, ..Self::default() }
    }

    /// Checks that every setting is finite, every multiplier and the deadline above 0, and every other setting at least
    /// 0.
    ///
    /// # Errors
    /// The first invalid setting, by Harbor's name.
    pub fn check(&self) -> Result<(), InvalidTimeout> {
        let above_zero = [
            ("timeout_multiplier", Some(self.multiplier)),
            ("agent_timeout_multiplier", self.agent.multiplier),
            ("agent_setup_timeout_multiplier", self.agent_setup.multiplier),
            ("verifier_timeout_multiplier", self.verifier.multiplier),
            ("environment_build_timeout_multiplier", self.environment_build.multiplier),
            ("trial_deadline_sec", self.trial_deadline_sec),
        ];
        let not_below_zero = [
            ("agent.override_timeout_sec", self.agent.override_sec),
            ("agent.max_timeout_sec", self.agent.max_sec),
            ("agent.override_setup_timeout_sec", self.agent_setup.override_sec),
            ("verifier.override_timeout_sec", self.verifier.override_sec),
            ("verifier.max_timeout_sec", self.verifier.max_sec),
        ];
        // An override or maximum may be 0, which means none.
        let positive =
            above_zero.map(|(setting, value)| (setting, value, value.is_some_and(|v| v <= 0.0), ABOVE_ZERO));
        let zero_is_none = not_below_zero
            .map(|(setting, value)| (setting, value, value.is_some_and(|v| v < 0.0), NOT_BELOW_ZERO));
        for (setting, value, too_small, expected) in positive.into_iter().chain(zero_is_none) {
            let Some(value) = value else { continue };
            // A comparison with NaN is false, so finiteness is checked too.
            if too_small || !value.is_finite() {
                return Err(InvalidTimeout { setting, value, expected });
            }
        }
        Ok(())
    }

    /// Returns the agent's time limit, or `None` if it has none.
    pub fn agent(&self, task: Option<f64>) -> Option<Duration> {
        self.agent.of(task, self.multiplier)
    }

    /// Returns the limit for the preparation of an agent whose own default is `default` seconds.
    pub fn agent_setup(&self, default: f64) -> Option<Duration> {
        self.agent_setup.of(Some(default), self.multiplier)
    }

    /// Returns the time limit of the tests.
    pub fn verifier(&self, task: f64) -> Option<Duration> {
        self.verifier.of(Some(task), self.multiplier)
    }

    /// Returns the limit for the build and start of an environment.
    pub fn environment_build(&self, task: f64) -> Option<Duration> {
        self.environment_build.of(Some(task), self.multiplier)
    }

    /// Returns the deadline of the whole trial, or `None` if it has none.
    pub fn deadline(&self) -> Option<Duration> {
        self.trial_deadline_sec.and_then(seconds)
    }
}

impl PhaseLimit {
    fn of(self, task: Option<f64>, multiplier: f64) -> Option<Duration> {
        // Harbor tests its overrides and maxima for truth, so that 0 counts as absent.
        let given = |value: &f64| *value != 0.0;
        let base = self.override_sec.filter(given).or(task)?;
        let capped = self.max_sec.filter(given).map_or(base, |max| base.min(max));
        seconds(capped * self.multiplier.unwrap_or(multiplier))
    }
}

/// Converts seconds to a duration. A number that `Duration` cannot represent means no limit.
fn seconds(limit: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(limit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(override_sec: Option<f64>, max_sec: Option<f64>, multiplier: Option<f64>) -> PhaseLimit {
        PhaseLimit { override_sec, max_sec, multiplier }
    }

    #[test]
    fn limits_follow_harbors_rule() {
        let secs = Duration::from_secs_f64;
        for (phase, task, expected) in [
            (limit(None, None, None), Some(10.0), Some(secs(20.0))),
            (limit(None, None, None), None, None),
            (limit(Some(4.0), None, None), Some(10.0), Some(secs(8.0))),
            (limit(Some(4.0), None, None), None, Some(secs(8.0))),
            (limit(Some(0.0), None, None), Some(10.0), Some(secs(20.0))),
            (limit(None, Some(6.0), None), Some(10.0), Some(secs(12.0))),
            (limit(None, Some(60.0), None), Some(10.0), Some(secs(20.0))),
            (limit(None, Some(6.0), None), None, None),
            (limit(Some(40.0), Some(6.0), Some(3.0)), Some(10.0), Some(secs(18.0))),
            (limit(None, None, Some(0.5)), Some(10.0), Some(secs(5.0))),
        ] {
            let policy = TimeoutPolicy { agent: phase, ..TimeoutPolicy::multiplied(2.0) };
            assert_eq!(policy.agent(task), expected, "{phase:?} {task:?}");
        }
        assert_eq!(TimeoutPolicy::multiplied(2.0).agent_setup(AGENT_SETUP_SEC), Some(secs(720.0)));
        assert_eq!(TimeoutPolicy::multiplied(1e300).verifier(1e9), None, "beyond what can be counted");
    }

    #[test]
    fn what_can_be_no_time_is_refused_by_name() {
        assert_eq!(TimeoutPolicy::default().check(), Ok(()));
        let error = TimeoutPolicy::multiplied(0.0).check().unwrap_err();
        assert_eq!(error.to_string(), "timeout_multiplier = 0: expected a finite number above 0");
        let verifier = limit(None, Some(f64::NAN), None);
        let error = TimeoutPolicy { verifier, ..TimeoutPolicy::default() }.check().unwrap_err();
        let expected =
            "verifier.max_timeout_sec = NaN: expected a finite number of at least 0, where 0 means none";
        assert_eq!(error.to_string(), expected);
        let agent = limit(Some(0.0), None, None);
        assert_eq!(TimeoutPolicy { agent, ..TimeoutPolicy::default() }.check(), Ok(()), "0 is none");
    }

    proptest::proptest! {
        #[test]
        fn a_maximum_is_never_exceeded(task in 0.1..1e6, max in 0.1..1e6, multiplier in 0.01..100.0) {
            let agent = limit(None, Some(max), Some(multiplier));
            let limit = TimeoutPolicy { agent, ..TimeoutPolicy::default() }.agent(Some(task)).unwrap();
            proptest::prop_assert!(limit <= Duration::from_secs_f64(max * multiplier));
        }
    }
}
