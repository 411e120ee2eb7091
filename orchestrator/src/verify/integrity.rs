//! Signs that an agent manipulated its tests or its reward. They mark a trial, and never change its reward.
//!
//! The commands of an agent are in its captured answers, and [`Rules`] examines them. The environment has further
//! signs, which a script collects once between the agent's time and the tests ([`inspect`]). Neither sees everything: an
//! agent with root's rights can also replace the shell that looks for signs.

mod action;
mod command;
mod inspection;
mod rules;

use std::collections::BTreeSet;

pub(crate) use action::{Action, of_message, of_trajectory};
pub(crate) use inspection::{Inspector, Ticks, process_reference};
pub(crate) use rules::Rules;
use serde::{Deserialize, Serialize};

use crate::common::plain::plain;

/// The most signs of one reason. Further signs add no information.
const SIGNS: usize = 5;
/// The most characters of one piece of evidence.
const EVIDENCE: usize = 300;

/// Why a trial is suspected of cheating. The names are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The agent wrote to the directory of the reward.
    RewardFileWritten,
    /// A process of the agent outlives its time and has to do with the reward, or a command starts such a process.
    RewardDaemon,
    /// The agent wrote to the directory of the tests.
    TestsTampered,
    /// The agent left a file or a variable by which Python or pytest runs its code during the tests.
    TestRunnerHook,
    /// A script of the agent is in place of, or in front of, a program that tests use.
    PathShadowed,
    /// The agent made the dynamic linker load a library into the programs of the tests.
    LibraryPreloaded,
    /// The agent read the directory of the task's solution.
    SolutionRead,
    /// Files of the task changed on this host after the job had read them.
    TaskFilesChanged,
}

impl Reason {
    /// Every reason.
    const ALL: [Self; 8] = [
        Self::RewardFileWritten,
        Self::RewardDaemon,
        Self::TestsTampered,
        Self::TestRunnerHook,
        Self::PathShadowed,
        Self::LibraryPreloaded,
        Self::SolutionRead,
        Self::TaskFilesChanged,
    ];

    /// The name in results and rows.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RewardFileWritten => "reward_file_written",
            Self::RewardDaemon => "reward_daemon",
            Self::TestsTampered => "tests_tampered",
            Self::TestRunnerHook => "test_runner_hook",
            Self::PathShadowed => "path_shadowed",
            Self::LibraryPreloaded => "library_preloaded",
            Self::SolutionRead => "solution_read",
            Self::TaskFilesChanged => "task_files_changed",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == name)
    }
}

/// One sign of cheating.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspicion {
    /// The reason.
    pub reason: Reason,
    /// The file, process or command, as plain text of at most 300 characters.
    pub evidence: String,
}

impl Suspicion {
    /// Creates a sign. The evidence may be any text of an agent.
    pub(crate) fn new(reason: Reason, evidence: &str) -> Self {
        let words = plain(evidence);
        let words: Vec<_> = words.split_whitespace().collect();
        let words = words.join(" ");
        let mut evidence: String = words.chars().take(EVIDENCE).collect();
        if evidence.len() < words.len() {
            evidence.pop();
            evidence.push('…');
        }
        Self { reason, evidence }
    }
}

/// The signs that were found in a trial: each once, and at most five of one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Suspicions(Vec<Suspicion>);

impl Suspicions {
    /// Adds a sign, unless it is known or its reason has enough of them. Returns whether it was added.
    pub(crate) fn add(&mut self, sign: Suspicion) -> bool {
        let of_reason = self.0.iter().filter(|known| known.reason == sign.reason).count();
        let is_new = of_reason < SIGNS && !self.0.contains(&sign);
        if is_new {
            self.0.push(sign);
        }
        is_new
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names of the reasons, each once, in alphabetical order.
    pub fn reasons(&self) -> Vec<String> {
        let names: BTreeSet<_> = self.0.iter().map(|sign| sign.reason.as_str()).collect();
        names.into_iter().map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_those_of_the_json_and_of_the_page() {
        let page = include_str!("../../../docs/reference/integrity.md");
        for reason in Reason::ALL {
            let name = reason.as_str();
            assert_eq!(serde_json::to_value(reason).unwrap(), name);
            assert_eq!(Reason::from_name(name), Some(reason));
            assert!(page.contains(&format!("| `{name}` |")), "integrity.md has no row for {name}");
        }
        assert_eq!(Reason::from_name("processes"), None);
    }

    #[test]
    fn a_sign_counts_once_and_a_reason_has_five_at_most() {
        let mut found = Suspicions::default();
        for number in [0, 0, 1, 2, 3, 4, 5] {
            found.add(Suspicion::new(Reason::SolutionRead, &format!("cat /solution/{number}")));
        }
        found.add(Suspicion::new(Reason::RewardDaemon, "process 7"));
        assert_eq!(found.0.len(), 6);
        assert_eq!(found.reasons(), ["reward_daemon", "solution_read"]);
    }

    proptest! {
        #[test]
        fn evidence_is_one_short_line_of_plain_text(text in "\\PC{0,400}|(?s).{0,400}") {
            let sign = Suspicion::new(Reason::RewardDaemon, &text);
            prop_assert!(sign.evidence.chars().count() <= EVIDENCE);
            let has_control = sign.evidence.contains(['\n', '\r', '\u{1b}']);
            prop_assert!(!has_control);
        }
    }
}
