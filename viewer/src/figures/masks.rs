//! Which tokens of a branch an export trains, and why it masks the others.

use std::fmt;
use std::ops::Range;

use rolltap_rollout::call::{Call, CallRole};
use rolltap_rollout::export::exporter::Trial;
use rolltap_rollout::row::{CallSpan, RolloutRow};
use rolltap_rollout::training::TrainingPolicy;

use crate::collection::TrialContent;
use crate::figures::exported::NotExported;
use crate::figures::runs::{is_set, tokens_with_calls};

/// Why a token is not trained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Masked {
    /// The policy did not sample it in this trial.
    Prompt,
    /// The trial does not train calls of the role.
    Role(String),
    /// The call did not end well, or its record has flaws: the status and the flaws.
    Call(String),
    /// The row does not train it, and only captures have the reason.
    Untrainable(String),
    /// The recorded logprob is not that of the distribution that was sampled from.
    Constrained,
    /// The trial has no reward that measures the agent. Has the cause of the failure, if there is one.
    Failed(Option<String>),
    /// Another branch trains it. Has the index of the branch if the export has it.
    Elsewhere(Option<i32>),
    /// The export leaves the branch out.
    Branch,
    /// The export has no record of the trial, for this reason.
    Trial(String),
}

impl fmt::Display for Masked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prompt => f.write_str("prompt"),
            Self::Role(role) => write!(f, "calls of role {role} are not trained in this trial"),
            Self::Call(defect) => write!(f, "call that cannot be trained: {defect}"),
            Self::Untrainable(role) => write!(f, "sampled, but not trainable (call of role {role})"),
            Self::Constrained => f.write_str("constrained call (--train-constrained trains it)"),
            Self::Failed(None) => f.write_str("the trial has no valid reward (see --failed)"),
            Self::Failed(Some(cause)) => write!(f, "the trial failed: {cause} (see --failed)"),
            Self::Elsewhere(Some(branch)) => write!(f, "trained on branch {branch}"),
            Self::Elsewhere(None) => f.write_str("trained on another branch"),
            Self::Branch => f.write_str("branch left out (--on-fork longest)"),
            Self::Trial(reason) => f.write_str(reason),
        }
    }
}

/// Consecutive tokens of one call with one treatment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MaskRun {
    /// The indices of the tokens in the branch.
    pub(crate) tokens: Range<usize>,
    /// The index of the call that sampled the tokens, or whose prompt has them. `None` behind the last call.
    pub(crate) call: Option<usize>,
    /// Whether the policy sampled the tokens in this trial.
    pub(crate) is_sampled: bool,
    /// Why the tokens are not trained. `None` if they are.
    pub(crate) masked: Option<Masked>,
}

/// A branch beside the export of its trial.
pub(crate) struct MaskedBranch<'t> {
    content: &'t TrialContent,
    exported: Result<&'t Trial, &'t NotExported>,
    /// The branch as captured.
    captured: &'t RolloutRow,
    /// The branch in the export. `None` if the export leaves the branch or the trial out.
    taken: Option<&'t RolloutRow>,
}

impl<'t> MaskedBranch<'t> {
    pub(crate) fn of(
        content: &'t TrialContent,
        exported: Result<&'t Trial, &'t NotExported>,
        captured: &'t RolloutRow,
    ) -> Self {
        let rows = exported.map_or(&[][..], |trial| trial.rows.as_slice());
        let taken = rows.iter().find(|row| row.branch_index == captured.branch_index);
        Self { content, exported, captured, taken }
    }

    /// Whether the export has the branch.
    pub(crate) fn is_taken(&self) -> bool {
        self.taken.is_some()
    }

    /// The number of tokens that the export trains on the branch.
    pub(crate) fn trained(&self) -> usize {
        self.taken.map_or(0, |row| row.loss_mask.iter().filter(|bit| **bit == 1).count())
    }

    /// Returns the runs of these tokens. Runs end at the bounds of `tokens`.
    pub(crate) fn runs(&self, tokens: Range<usize>) -> Vec<MaskRun> {
        let mut runs: Vec<MaskRun> = Vec::new();
        // The reason of the token before, because the tokens of a call have few reasons.
        let mut last_reason = None;
        for (at, call) in tokens_with_calls(self.captured, tokens) {
            let is_sampled = is_set(&self.captured.sampled_mask, at);
            let index = call.map(|(index, _)| index);
            let is_trainable = is_set(&self.captured.trainable_mask, at);
            let key = (index, is_sampled, is_trainable, self.is_trained(at));
            let masked = match last_reason.take() {
                Some((last, masked)) if last == key => masked,
                _ => self.masked(at, call.map(|(_, span)| span)),
            };
            last_reason = Some((key, masked.clone()));
            match runs.last_mut() {
                Some(last)
                    if last.call == index && last.is_sampled == is_sampled && last.masked == masked =>
                {
                    last.tokens.end = at + 1;
                }
                _ => runs.push(MaskRun { tokens: at..at + 1, call: index, is_sampled, masked }),
            }
        }
        runs
    }

    /// Whether the export trains a token on the branch.
    fn is_trained(&self, at: usize) -> bool {
        self.taken.is_some_and(|row| is_set(&row.loss_mask, at))
    }

    /// Returns why a token is not trained. The reasons are in the order in which the rows and the export apply them.
    fn masked(&self, at: usize, span: Option<&CallSpan>) -> Option<Masked> {
        if self.is_trained(at) {
            return None;
        }
        if !is_set(&self.captured.sampled_mask, at) {
            return Some(Masked::Prompt);
        }
        if !is_set(&self.captured.trainable_mask, at) {
            return Some(self.untrainable(span));
        }
        if span.is_some_and(|span| span.constrained) {
            return Some(Masked::Constrained);
        }
        let exported = match self.exported {
            Ok(exported) => exported,
            Err(reason) => return Some(Masked::Trial(reason.to_string())),
        };
        if self.taken.is_none() {
            return Some(Masked::Branch);
        }
        // A trial that counts as 0 has a reward in the export.
        if exported.reward.is_none() {
            return Some(Masked::Failed(self.captured.failure_cause.clone()));
        }
        Some(Masked::Elsewhere(span.and_then(|span| owner(exported, at, span))))
    }

    /// Returns why the row itself does not train a sampled token.
    fn untrainable(&self, span: Option<&CallSpan>) -> Masked {
        let role = span.map_or("", |span| span.role.as_str());
        let trains = |training: &TrainingPolicy| {
            let role = CallRole::ALL.into_iter().find(|known| known.as_str() == role);
            role.is_none_or(|role| training.trains(role))
        };
        if self.content.export.training.as_ref().is_some_and(|training| !trains(training)) {
            return Masked::Role(role.to_owned());
        }
        match span.and_then(|span| self.content.call(&span.call_id)) {
            Some(call) if !call.is_trainable() => Masked::Call(defect(call)),
            Some(_) => Masked::Call("no usable logprob, or several answers with the same tokens".to_owned()),
            None => Masked::Untrainable(role.to_owned()),
        }
    }
}

/// Returns the branch that trains a token of a call.
fn owner(exported: &Trial, at: usize, span: &CallSpan) -> Option<i32> {
    let is_same = |other: &CallSpan| {
        (other.start, other.choice_index) == (span.start, span.choice_index) && other.call_id == span.call_id
    };
    let trains = |row: &&RolloutRow| is_set(&row.loss_mask, at) && row.calls.iter().any(is_same);
    exported.rows.iter().find(trains).map(|row| row.branch_index)
}

fn defect(call: &Call) -> String {
    let flaws = call.flaws.iter().map(|flaw| flaw.as_str());
    [call.status.as_str()].into_iter().chain(flaws).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
