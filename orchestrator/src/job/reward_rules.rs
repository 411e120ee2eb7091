//! Chooses the rule that makes the number to train on for each task of a job.

use std::collections::BTreeMap;

use rolltap_rollout::rollout::RewardRule;

use super::tasks::{JobTask, fnmatch};
use crate::common::suggest::{did_you_mean, nearest};

/// The rules of a job for the number to train on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RewardRules {
    /// The rule of all tasks without a rule of their own. `None` for the entry `reward`, or else the only entry.
    pub all: Option<RewardRule>,
    /// The rules of single tasks. A key is the name of a task or of its directory, or a shell pattern of such names.
    pub of_tasks: BTreeMap<String, RewardRule>,
}

/// Why the rules of a job do not fit its tasks.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RewardRulesError {
    /// No task has this name.
    #[error("task_rewards: no task of the job matches {pattern:?}{}", did_you_mean(.nearest.as_deref()))]
    NoTask {
        /// The key of the rule.
        pattern: String,
        /// The most similar name of a task, if one is similar enough.
        nearest: Option<String>,
    },
    /// Two patterns with different rules match one task.
    #[error(
        "task_rewards: task {task:?} matches {first:?} and {second:?}, which have different rules; a rule with the exact \
         name of the task overrides both"
    )]
    Ambiguous {
        /// The name of the task.
        task: String,
        /// One pattern.
        first: String,
        /// The other pattern.
        second: String,
    },
}

impl RewardRules {
    /// Returns the rule of a task. The exact name of the task or of its directory overrides patterns, and any of these
    /// overrides the rule of all tasks.
    ///
    /// # Errors
    /// Fails if patterns with different rules match.
    pub(super) fn of(&self, task: &JobTask) -> Result<Option<&RewardRule>, RewardRulesError> {
        let names = names(task);
        if let Some(rule) = names.iter().find_map(|name| self.of_tasks.get(*name)) {
            return Ok(Some(rule));
        }
        let is_match = |pattern: &str| names.iter().any(|name| fnmatch::matches(pattern, name));
        let mut matching = self.of_tasks.iter().filter(|(pattern, _)| is_match(pattern));
        let Some((first, rule)) = matching.next() else { return Ok(self.all.as_ref()) };
        match matching.find(|(_, other)| *other != rule) {
            None => Ok(Some(rule)),
            Some((second, _)) => Err(RewardRulesError::Ambiguous {
                task: task.task.name.clone(),
                first: first.clone(),
                second: second.clone(),
            }),
        }
    }

    /// Checks that each key names a task, and that each task has one rule.
    ///
    /// # Errors
    /// Returns the first key or task that violates this.
    pub(super) fn check(&self, tasks: &[JobTask]) -> Result<(), RewardRulesError> {
        for pattern in self.of_tasks.keys() {
            let is_named = |task: &JobTask| {
                names(task).iter().any(|name| fnmatch::matches(pattern, name) || name == pattern)
            };
            if !tasks.iter().any(is_named) {
                let nearest = nearest(pattern, tasks.iter().flat_map(names)).map(str::to_owned);
                return Err(RewardRulesError::NoTask { pattern: pattern.clone(), nearest });
            }
        }
        tasks.iter().try_for_each(|task| self.of(task).map(drop))
    }
}

/// Returns the names by which a rule can name the task.
fn names(JobTask { task, .. }: &JobTask) -> Vec<&str> {
    let dir = task.dir.file_name().and_then(|name| name.to_str());
    [Some(task.name.as_str()), dir].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::Task;

    fn tasks() -> Vec<JobTask> {
        let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/tasks");
        let load = |name: &str| Task::load(&std::path::Path::new(examples).join(name)).unwrap().into();
        ["hello-file", "count-errors"].map(load).to_vec()
    }

    fn rules(all: Option<&str>, of_tasks: &[(&str, &str)]) -> RewardRules {
        let rule = |text: &str| text.parse().unwrap();
        RewardRules {
            all: all.map(rule),
            of_tasks: of_tasks.iter().map(|(name, text)| ((*name).to_owned(), rule(text))).collect(),
        }
    }

    #[test]
    fn the_most_specific_rule_counts() {
        let given = rules(Some("mean"), &[("hello-*", "sum"), ("*", "speed"), ("hello-file", "style")]);
        let tasks = tasks();
        let of = |task: &JobTask| given.of(task).unwrap().map(ToString::to_string);
        assert_eq!(of(&tasks[0]).as_deref(), Some("style"));
        assert_eq!(of(&tasks[1]).as_deref(), Some("speed"));
        assert_eq!(rules(Some("mean"), &[("hello-*", "sum")]).of(&tasks[1]), Ok(Some(&RewardRule::Mean)));
        assert_eq!(RewardRules::default().of(&tasks[0]), Ok(None));
        assert_eq!(given.check(&tasks), Ok(()));
    }

    #[test]
    fn a_rule_without_a_task_and_two_rules_for_one_task_are_errors() {
        let error = |given: &[(&str, &str)]| rules(None, given).check(&tasks()).unwrap_err().to_string();
        assert_eq!(
            error(&[("hello-fil", "sum")]),
            "task_rewards: no task of the job matches \"hello-fil\" (did you mean \"hello-file\"?)"
        );
        let ambiguous = error(&[("hello-*", "sum"), ("*-file", "mean")]);
        assert!(
            ambiguous.contains("matches \"*-file\" and \"hello-*\", which have different rules"),
            "{ambiguous}"
        );
    }
}
