//! Verifies the work in an environment by Harbor's rules: the task's own commands, its artifacts, its tests, and the
//! reward that they leave. The tests run where the agent worked, or in a separate environment.
//!
//! Trials, episodes of the environment server and the agent without a job all verify here. [`VerificationContext`] is
//! the part that differs between a trial and an episode.

mod artifacts;
mod collect;
mod context;
mod hooks;
pub mod integrity;
mod prepare_dirs;
mod reward_files;
mod separate;
mod tests_run;

use std::collections::BTreeMap;
use std::path::PathBuf;

pub(crate) use artifacts::{Artifacts, Collected};
pub(crate) use collect::{collect, download_logs};
pub(crate) use context::VerificationContext;
pub(crate) use hooks::run_hooks;
pub(crate) use prepare_dirs::{Emptied, empty_for_tests, make_empty, of_tests};
pub use reward_files::parse;
use rolltap_rollout::rollout::Reward;
pub(crate) use separate::verify_apart;
pub use tests_run::verify;
pub(crate) use tests_run::{Tests, run_tests};

use crate::environment::EnvironmentError;
use crate::failure::{Cause, Phase, TrialFailure};

/// The rewards from the tests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rewards {
    /// The entries of the reward file. All are finite.
    pub rewards: BTreeMap<String, f64>,
    /// The number that trainers use: the entry `reward`, or else the only entry. `None` otherwise.
    pub reward: Option<f64>,
    /// Output and logs of the tests that were too large to be stored whole, each with its limit.
    pub truncated: Vec<String>,
}

impl From<BTreeMap<String, f64>> for Rewards {
    fn from(rewards: BTreeMap<String, f64>) -> Self {
        let Reward { rewards, reward, .. } = Reward::from_named(rewards);
        Self { rewards, reward, truncated: Vec::new() }
    }
}

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub enum VerifierError {
    /// The tests left no reward.
    #[error(
        "tests/test.sh left neither reward.json nor reward.txt in /logs/verifier (exit code {}); its output is in {}",
        exit(.exit_code), .output.display()
    )]
    RewardFileNotFound {
        /// The exit code of `test.sh`.
        exit_code: Option<i64>,
        /// The path of its output on this host.
        output: PathBuf,
    },
    /// The tests left an empty file.
    #[error("{0} is empty")]
    RewardFileEmpty(&'static str),
    /// The tests left a file that is not a reward.
    #[error("{file}: {problem}; expected {expected}")]
    OutputParse {
        /// The file.
        file: &'static str,
        /// The problem.
        problem: String,
        /// The expected content.
        expected: &'static str,
    },
    /// The tests left a single number in the file for objects. Harbor has an exception of its own for this.
    #[error("reward.json: {0} is no object; expected one, such as {{\"reward\": {0}}}, or else reward.txt")]
    NoObject(String),
    /// The tests took too long.
    #[error(
        "the tests were still running after {seconds} s; their output is in {}", .output.display()
    )]
    Timeout {
        /// The time limit.
        seconds: f64,
        /// The path of the output on this host.
        output: PathBuf,
    },
    /// The environment failed, not the tests.
    #[error("the environment failed during verification")]
    Environment(#[from] EnvironmentError),
    /// This host failed.
    #[error("cannot {action} {}", .path.display())]
    Io {
        /// The action that failed.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
}

fn exit(code: &Option<i64>) -> String {
    code.map_or_else(|| "unknown".to_owned(), |code| code.to_string())
}

impl VerifierError {
    /// Returns the name of Harbor's exception for this error.
    pub fn failure_cause(&self) -> &'static str {
        match self {
            Self::RewardFileNotFound { .. } => "RewardFileNotFoundError",
            Self::RewardFileEmpty(_) => "RewardFileEmptyError",
            Self::OutputParse { .. } => "VerifierOutputParseError",
            Self::NoObject(_) => "ValidationError",
            Self::Timeout { .. } => "VerifierTimeoutError",
            Self::Environment(_) | Self::Io { .. } => "RuntimeError",
        }
    }
}

fn verifier_failure(error: &VerifierError) -> TrialFailure {
    let cause = match error {
        VerifierError::Environment(_) => Cause::Environment,
        _ => Cause::Verifier(error.failure_cause()),
    };
    TrialFailure::from_error(Phase::Verifier, cause, error)
}

#[cfg(test)]
mod tests;
