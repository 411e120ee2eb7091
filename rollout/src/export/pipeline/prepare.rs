//! The rules of an export for one trial alone: for a trainer that reads trials from a proxy and no file.
//!
//! [`prepare`] runs the passes of an export over the rows of one trial. The functions that mask, choose and refuse the
//! rows of an exported file thus also decide about these rows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::advantage::Advantage;
use super::plan::PlanError;
use super::projection::RowFacts;
use super::rules::{Comparison, Failed, OnFork, Rules};
use super::select::{SelectionError, Tally};
use super::survey::{SeenTwice, Survey};
use crate::export::choices::named;
use crate::export::exporter::{ExportError, Trial};
use crate::export::shared::compared::{held, remove_texts};
use crate::export::shared::policy_number::{PolicyNumbers, names};
use crate::export::shared::refusal::refuse_unfit;
use crate::export::shared::sequence::{Sequence, cut_tail};
use crate::rollout::{Reward, RewardRule};
use crate::row::RolloutRow;

named! {
    /// How much of a trial a preparation returns.
    pub enum Extent {
        /// every chosen branch with all of its tokens, as `rolltap export --format jsonl` writes it
        Mask = "mask",
        /// branches that train something, or one if none does, each up to its last trained token
        Train = "train",
    }
}

/// The choices that a reader makes. Each is the option of `rolltap export` of the same name.
#[derive(Clone, Debug, PartialEq)]
pub struct PrepareOptions {
    /// How much of the trial is returned.
    pub extent: Extent,
    /// The treatment of a trial of several branches.
    pub on_fork: OnFork,
    /// The treatment of a trial without a reward that measures the agent. One trial has no group to drop.
    pub failed: Failed,
    /// Trains calls whose logprobs are not those of the distribution that they were sampled from.
    pub train_constrained: bool,
    /// The rule that makes the number to train on, instead of the trial's own.
    pub reward: Option<RewardRule>,
}

impl PrepareOptions {
    /// The values of `failed` that have an effect on a trial alone.
    pub const FAILED: &'static [Failed] = &[Failed::Mask, Failed::Zero];

    /// The options of a reader that chose nothing but the extent.
    pub fn of(extent: Extent) -> Self {
        Self { extent, on_fork: OnFork::All, failed: Failed::Mask, train_constrained: false, reward: None }
    }

    /// Rules that compare trials do not apply to one trial: nothing is left out by age, attempt or group.
    fn rules(&self) -> Rules {
        Rules {
            on_fork: self.on_fork,
            failed: self.failed,
            advantage: Advantage::None,
            comparison: Comparison::Never,
            open_groups: true,
            untrained_groups: true,
            superseded: true,
            train_constrained: self.train_constrained,
            reward: self.reward.clone(),
            staleness: None,
            min_reward: None,
            best_of_group: None,
        }
    }
}

/// A trial as a trainer takes it. Nothing in it is left to decide.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PreparedTrial {
    /// The number to train on. A trial that sampled nothing has one too, and counts in the baseline of its group. `None`
    /// if the reward does not measure the agent, or if the trial is refused.
    pub reward: Option<f64>,
    /// The branches to train, in order of their index. Empty if nothing was sampled or the trial is refused.
    pub rows: Vec<PreparedRow>,
    /// Branches of the trial that are not in `rows`.
    pub left_out: u64,
    /// Why the trial cannot be trained: the problem, its place and the remedy.
    pub refused: Option<String>,
}

/// A [`RolloutRow`] after all rules. Its lists per token have one length, and its first `prompt_len` tokens are the
/// prompt. `calls` are those of the whole branch, without `sampling`, `messages` and `tools`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PreparedRow {
    /// The row. Tokens that are not trained are 0 in `trainable_mask` and `loss_mask`.
    #[serde(flatten)]
    pub row: RolloutRow,
    /// Per token, the number by which the trainer knows the weights that sampled the token: the label of the version if
    /// all labels of the trial are whole numbers, else rolltap's count. −1 if the token was not sampled.
    pub policy_numbers: Vec<i64>,
    /// The lowest policy number of the trained tokens, or of the sampled tokens if none is trained.
    pub oldest_policy: i64,
    /// The highest policy number of the same tokens.
    pub newest_policy: i64,
    /// The names of those policy versions, oldest first: the label, or rolltap's count.
    pub policy_names: Vec<String>,
}

/// Why a trial cannot be prepared.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    SeenTwice(#[from] SeenTwice),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Selection(#[from] SelectionError),
    #[error(transparent)]
    Unfit(#[from] ExportError),
}

/// Applies the rules of an export to all rows of one trial with this reward. A refusal is part of the result, so that a
/// reader of many trials can continue with the next.
pub fn prepare(rows: Vec<RolloutRow>, reward: &Reward, options: &PrepareOptions) -> PreparedTrial {
    let branches = rows.len();
    let made = exported(rows, options).and_then(|trial| match trial {
        Some(trial) => prepared(trial, branches, options.extent),
        None => Ok(PreparedTrial { reward: without_rows(reward, options), ..PreparedTrial::default() }),
    });
    made.unwrap_or_else(|refusal| PreparedTrial {
        left_out: branches as u64,
        refused: Some(refusal.to_string()),
        ..PreparedTrial::default()
    })
}

/// The number to train on of a trial that sampled nothing, as the plan of an export counts it.
fn without_rows(reward: &Reward, options: &PrepareOptions) -> Option<f64> {
    let (number, is_valid) = match &options.reward {
        None => (reward.reward, reward.valid),
        Some(rule) => {
            let has_failed = reward.failure_cause.is_some();
            rule.instead_of(reward.reward, &reward.rewards, reward.valid, has_failed)
        }
    };
    number.filter(|_| is_valid).or((options.failed == Failed::Zero).then_some(0.0))
}

/// The trial as the only trial of an export. `None` if it has no rows or the rules leave it out.
fn exported(rows: Vec<RolloutRow>, options: &PrepareOptions) -> Result<Option<Trial>, Refusal> {
    let Some(first) = rows.first() else { return Ok(None) };
    let mut survey = Survey::new(options.rules());
    survey.trial(RowFacts::from(first))?;
    Ok(survey.plan()?.take(rows, &mut Tally::default())?)
}

fn prepared(trial: Trial, branches: usize, extent: Extent) -> Result<PreparedTrial, Refusal> {
    refuse_unfit(&trial)?;
    let Trial { mut rows, reward, .. } = trial;
    match extent {
        Extent::Mask => remove_texts(&mut rows),
        Extent::Train => {
            rows = held(rows);
            for row in &mut rows {
                cut_tail(row);
            }
        }
    }
    // The policy numbers of a trial are of one kind: labels if all labels of its rows are numbers, else ordinals.
    let numbers = PolicyNumbers::of(&rows);
    let left_out = branches.saturating_sub(rows.len()) as u64;
    let rows = rows.into_iter().map(|row| PreparedRow::of(row, numbers)).collect::<Result<_, _>>()?;
    Ok(PreparedTrial { reward, rows, left_out, refused: None })
}

impl PreparedRow {
    fn of(row: RolloutRow, numbers: PolicyNumbers) -> Result<Self, ExportError> {
        // Readers cut the row at `prompt_len`.
        Sequence::of(&row)?;
        let (oldest_policy, newest_policy) = numbers.span(&row);
        let number = |&version| numbers.of_token(&row, version);
        let policy_numbers = row.token_version.iter().map(number).collect();
        Ok(Self { policy_numbers, oldest_policy, newest_policy, policy_names: names(&row), row })
    }
}

#[cfg(test)]
mod tests;
