//! A trial as a page shows it: an entry of a list, or the whole trial.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use rolltap_proxy::store::{CallNote, Damage, Pause, PolicyChange, StoredConversation, TrialOutline};
use rolltap_rollout::call::Call;
use rolltap_rollout::check::recomputation::RecomputedRow;
use rolltap_rollout::conversation::Conversations;
use rolltap_rollout::export::pipeline::projection::RowFacts;
use rolltap_rollout::rollout::Reward;
use rolltap_rollout::row::RolloutRow;
use rolltap_rollout::training::TrainingPolicy;

use super::files::TrialFiles;

/// A trial in a list of trials. Counts are `None` where the source does not have them without a read of all calls.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialEntry {
    /// The name of the trial.
    pub id: String,
    /// Harbor's task name.
    pub task: String,
    /// The group of samples that a trainer compares.
    pub group: Option<String>,
    /// The index of the sample in its group, from 0.
    pub sample: i64,
    /// The number of the attempt at this sample, from 0.
    pub attempt: i64,
    /// Whether a later attempt at the same sample counts instead.
    pub is_superseded: bool,
    /// Whether the trial can still make calls.
    pub is_open: bool,
    /// The agent, if it is known.
    pub agent: Option<String>,
    /// The verifier's result. `None` while there is no verdict.
    pub reward: Option<Reward>,
    /// When the trial was opened.
    pub opened_at: Option<Timestamp>,
    /// When the trial was sealed.
    pub sealed_at: Option<Timestamp>,
    /// The number of recorded calls.
    pub calls: Option<u64>,
    /// The number of calls whose answer failed, was cancelled or was interrupted.
    pub incomplete_calls: Option<u64>,
    /// The number of sampled tokens.
    pub sampled_tokens: Option<u64>,
    /// The number of branches by cause, and the tokens that were prefilled again for them.
    pub causes: BTreeMap<String, CauseCost>,
}

/// The branches of one cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CauseCost {
    /// The number of branches.
    pub branches: u64,
    /// The tokens that were prefilled again.
    pub tokens: u64,
}

impl CauseCost {
    /// Adds the branches of another trial.
    pub(crate) fn add(&mut self, other: Self) {
        self.branches += other.branches;
        self.tokens += other.tokens;
    }
}

/// A call with its conversation, as captures have them.
pub type CapturedCall = (Arc<Call>, Option<Arc<StoredConversation>>);

/// The calls and rows of a trial, for a search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SearchedTrial<'c> {
    pub(crate) id: &'c str,
    /// The rows of the trial.
    pub(crate) rows: &'c [RolloutRow],
    /// The calls, each with its conversation. Empty without captures.
    pub(crate) calls: &'c [CapturedCall],
}

/// A whole trial.
#[derive(Debug)]
pub struct TrialContent {
    /// The trial's entry in the list.
    pub entry: TrialEntry,
    /// The trial's branches, in order. Empty if no token was sampled.
    pub rows: Vec<RolloutRow>,
    /// The calls in the order in which they ended, each with its conversation. Empty without captures.
    pub calls: Vec<CapturedCall>,
    /// The changes of the policy version while the trial was open.
    pub version_changes: Vec<PolicyChange>,
    /// The pauses of the trainer that began before the trial was sealed and lasted after it was opened.
    pub pauses: Vec<Pause>,
    /// The notes about the calls: answers that a retry got from the record, and audits of spliced prompts.
    pub notes: Vec<CallNote>,
    /// The lines of the trial in the report of a recomputation.
    pub recomputed: Vec<RecomputedRow>,
    /// The facts that an export of the job has of the trial in addition to its rows.
    pub export: ExportFacts,
    /// The files of the trial's directory in a job.
    pub files: TrialFiles,
    /// Descriptions of the parts that cannot be read, for the reader of the page.
    pub problems: Vec<String>,
}

/// The facts that an export of a capture store has of a trial in addition to its rows. A file of rows has none of them.
#[derive(Clone, Debug, Default)]
pub struct ExportFacts {
    /// The facts of a trial that sampled nothing, and so has no rows.
    pub without_rows: Option<RowFacts>,
    /// Whether calls or reward may still change.
    pub is_unfinished: bool,
    /// Whether no further trial is added to the group.
    pub is_group_closed: bool,
    /// The roles whose calls are trained.
    pub training: Option<TrainingPolicy>,
    /// The first damaged place of the captures.
    pub damage: Option<Damage>,
}

impl TrialContent {
    /// Returns the recorded conversations of the calls.
    pub(crate) fn conversations(&self) -> Conversations {
        let calls = self.calls.iter();
        calls
            .filter_map(|(call, told)| Some((call.call_id.clone(), told.as_ref()?.to_conversation())))
            .collect()
    }

    /// Returns the captured call of this name.
    pub(crate) fn call(&self, call_id: &str) -> Option<&Call> {
        self.calls.iter().map(|(call, _)| call.as_ref()).find(|call| call.call_id.as_str() == call_id)
    }
}

impl TrialEntry {
    /// Describes a trial of a capture store.
    pub(super) fn of_outline(outline: &TrialOutline<'_>) -> Self {
        let facts = outline.facts();
        let summary = outline.summary();
        let mut causes: BTreeMap<String, CauseCost> = BTreeMap::new();
        for of_model in summary.iter().flat_map(|summary| &summary.causes) {
            let cost = CauseCost { branches: of_model.cost.branches, tokens: of_model.cost.tokens };
            causes.entry(of_model.cause.to_string()).or_default().add(cost);
        }
        Self {
            id: facts.trial_id.to_string(),
            task: facts.task_id.to_string(),
            group: facts.group_id.as_ref().map(ToString::to_string),
            sample: facts.sample_index.into(),
            attempt: facts.attempt.into(),
            is_superseded: outline.is_superseded(),
            is_open: outline.sealed_at().is_none(),
            agent: facts.agent.clone(),
            reward: outline.reward().cloned(),
            opened_at: Some(outline.opened_at()),
            sealed_at: outline.sealed_at(),
            calls: Some(outline.calls() as u64),
            incomplete_calls: summary.map(|summary| summary.calls.saturating_sub(summary.complete)),
            sampled_tokens: summary.map(|summary| summary.completion_tokens),
            causes,
        }
    }

    /// Describes a trial by the facts of one of its rows.
    pub(crate) fn of_facts(facts: RowFacts) -> Self {
        let reward = Reward {
            rewards: facts.rewards,
            reward: facts.reward,
            valid: facts.reward_valid,
            failure_cause: facts.failure_cause,
            version: None,
            suspicious: facts.suspicious,
        };
        Self {
            id: facts.trial_id,
            task: facts.task_id,
            group: facts.group_id,
            sample: facts.sample_index.into(),
            attempt: facts.attempt.into(),
            is_superseded: facts.superseded,
            is_open: false,
            agent: None,
            reward: Some(reward),
            opened_at: None,
            sealed_at: None,
            calls: None,
            incomplete_calls: None,
            sampled_tokens: None,
            causes: BTreeMap::new(),
        }
    }

    /// Returns the number to train on. `None` (never 0) if there is none.
    pub fn reward(&self) -> Option<f64> {
        self.reward.as_ref().and_then(|reward| reward.reward)
    }

    /// Returns why the trial failed.
    pub fn failure(&self) -> Option<&str> {
        self.reward.as_ref().and_then(|reward| reward.failure_cause.as_deref())
    }

    /// Returns the reasons for which the trial is suspected of cheating.
    pub fn suspicious(&self) -> &[String] {
        self.reward.as_ref().and_then(|reward| reward.suspicious.as_deref()).unwrap_or_default()
    }
}
