//! The filter of a list of trials. It is the query of the page's address, so that a link shows the same list.

use serde::{Deserialize, Serialize};

use crate::collection::TrialEntry;

/// The filter of a page. Empty members admit every trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Filter {
    /// The exact name of a task.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) task: String,
    /// The exact name of a group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) group: String,
    /// The smallest reward, as typed. Trials without a reward do not match.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) min: String,
    /// The largest reward, as typed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) max: String,
    /// A cause of branches.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) cause: String,
    /// A cause of failures, or `any`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) failure: String,
    /// A role of calls.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) role: String,
    /// Text in the messages and answers of calls. Upper and lower case are equal.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) words: String,
    /// Text in the names of trial, task, group and agent. Upper and lower case are equal.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) q: String,
    /// The number of the page, from 1.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) page: String,
}

/// The filter's name for any failure.
pub(crate) const ANY_FAILURE: &str = "any";

impl Filter {
    /// Whether the filter admits the trial, apart from [`Self::role`] and [`Self::words`]. A bound that is no number
    /// admits every trial: [`Self::problem`] reports it.
    pub(crate) fn admits(&self, trial: &TrialEntry) -> bool {
        let is = |wanted: &str, found: Option<&str>| wanted.is_empty() || found == Some(wanted);
        let within = |bound: Option<f64>, fits: fn(f64, f64) -> bool| {
            bound.is_none_or(|bound| trial.reward().is_some_and(|reward| fits(reward, bound)))
        };
        is(&self.task, Some(&trial.task))
            && is(&self.group, trial.group.as_deref())
            && within(number(&self.min), |reward, min| reward >= min)
            && within(number(&self.max), |reward, max| reward <= max)
            && (self.cause.is_empty() || trial.causes.contains_key(&self.cause))
            && match self.failure.as_str() {
                ANY_FAILURE => trial.failure().is_some(),
                cause => is(cause, trial.failure()),
            }
            && self.has_text(trial)
    }

    fn has_text(&self, trial: &TrialEntry) -> bool {
        let wanted = self.q.to_lowercase();
        let texts = [Some(&trial.id), Some(&trial.task), trial.group.as_ref(), trial.agent.as_ref()];
        wanted.is_empty() || texts.into_iter().flatten().any(|text| text.to_lowercase().contains(&wanted))
    }

    /// Describes a member that is not a number. `None` if all are valid.
    pub(crate) fn problem(&self) -> Option<String> {
        let bounds = [("min", &self.min), ("max", &self.max)];
        let (name, text) = bounds.into_iter().find(|(_, text)| !text.is_empty() && number(text).is_none())?;
        Some(format!("{name} is {text:?}, which is no number: this bound is ignored"))
    }

    /// Whether the calls of each trial must be read to decide.
    pub(crate) fn needs_calls(&self) -> bool {
        !self.role.is_empty() || !self.words.is_empty()
    }

    /// Returns the index of the page, from 0.
    pub(crate) fn page_index(&self) -> usize {
        self.page.parse::<usize>().unwrap_or(1).saturating_sub(1)
    }

    /// Whether the filter leaves out no trial.
    pub(crate) fn is_empty(&self) -> bool {
        Self { page: String::new(), ..self.clone() } == Self::default()
    }

    /// Returns the address of the list with this filter, relative to the page of the job.
    pub(crate) fn address(&self, path: &str) -> String {
        let query = serde_urlencoded::to_string(self).unwrap_or_default();
        if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
    }
}

fn number(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|number: &f64| !number.is_nan())
}
