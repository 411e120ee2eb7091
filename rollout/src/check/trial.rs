//! Checks the rows of one trial together.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::captured::{self, Captured};
use super::row::{AnswerKey, answers, span_tokens};
use super::{Findings, Invariant};
use crate::row::{CallSpan, RolloutRow};

/// The state of a trial while further rows may follow: its answers, each once.
#[derive(Debug)]
pub(super) struct TrialState {
    trial_id: String,
    columns: Columns,
    rows: i32,
    num_branches: i32,
    answers: BTreeMap<AnswerKey, SampledAnswer>,
    named: HashSet<AnswerKey>,
    expected: Option<Vec<AnswerKey>>,
    /// Whether the answers of a row were unreadable. The owners of tokens are then unknown.
    has_unreadable_tokens: bool,
}

impl TrialState {
    /// Returns the state before the trial's first row `row`. The caller must [`Self::add`] that row next.
    pub(super) fn new(row: &RolloutRow) -> Self {
        Self {
            trial_id: row.trial_id.clone(),
            columns: trial_columns(row),
            rows: 0,
            num_branches: row.num_branches,
            answers: BTreeMap::new(),
            named: HashSet::new(),
            expected: None,
            has_unreadable_tokens: false,
        }
    }

    pub(super) fn trial_id(&self) -> &str {
        &self.trial_id
    }

    /// Requires that the captured answers are in the trial's rows.
    pub(super) fn expect(&mut self, captured: &Captured<'_>) {
        self.expected.get_or_insert_with(|| captured.answers());
    }

    pub(super) fn add(&mut self, row: &RolloutRow, is_aligned: bool, found: &mut Findings<'_>) {
        found.require(row.branch_index == self.rows, Invariant::BranchOrder, || {
            format!("branch_index is {} on row {} of the trial, counted from 0", row.branch_index, self.rows)
        });
        // Counted after the check, so that the first row must have index 0.
        self.rows = self.rows.saturating_add(1);
        for ((name, value), (_, first)) in trial_columns(row).iter().zip(&self.columns) {
            found.require(value == first, Invariant::TrialColumns, || {
                format!("{name} is {value}, on the trial's first row {first}")
            });
        }
        self.named.extend(answers(row));
        if is_aligned { self.add_answers(row, found) } else { self.has_unreadable_tokens = true }
    }

    fn add_answers(&mut self, row: &RolloutRow, found: &mut Findings<'_>) {
        let mut prefix = PrefixHash::new(&row.token_ids);
        let mut seen = HashSet::new();
        for (index, span) in row.calls.iter().enumerate() {
            let key = (span.call_id.clone(), span.choice_index);
            // Spans out of bounds or out of order, and repeated answers within a row, are breaches of other invariants.
            let Some(answer) = SampledAnswer::of(span, row, &mut prefix) else {
                self.has_unreadable_tokens = true;
                continue;
            };
            if !seen.insert(key.clone()) {
                continue;
            }
            let known = self.answers.entry(key).or_insert_with(|| answer.clone());
            if let Some(difference) = known.difference(&answer) {
                found.add(Invariant::SharedSpan, || {
                    format!("calls[{index}] (call {}): {difference} than on an earlier branch", span.call_id)
                });
            }
            let loss = span_tokens(span, &row.loss_mask).unwrap_or_default();
            known.claim(row.branch_index, &answer.trainable, loss);
        }
    }

    /// Checks the invariants that need all rows of the trial.
    pub(super) fn finish(&self, found: &mut Findings<'_>) {
        found.require(self.rows == self.num_branches, Invariant::BranchOrder, || {
            format!("num_branches is {}, and the trial has {} rows", self.num_branches, self.rows)
        });
        // An unread row may own or share any token, so a breach of ownership cannot be proven.
        if !self.has_unreadable_tokens {
            self.answers.iter().for_each(|(key, answer)| answer.check_owners(key, found));
        }
        if let Some(expected) = &self.expected {
            captured::check_presence(expected, &self.named, found);
        }
    }
}

type Columns = Vec<(&'static str, String)>;

/// Returns the columns that describe the trial rather than one branch.
fn trial_columns(row: &RolloutRow) -> Columns {
    vec![
        ("group_id", format!("{:?}", row.group_id)),
        ("group_size", format!("{:?}", row.group_size)),
        ("sample_index", row.sample_index.to_string()),
        ("attempt", row.attempt.to_string()),
        ("superseded", row.superseded.to_string()),
        ("task_id", format!("{:?}", row.task_id)),
        ("environment", format!("{:?}", row.environment)),
        ("num_branches", row.num_branches.to_string()),
        ("reward", format!("{:?}", row.reward)),
        ("advantage", format!("{:?}", row.advantage)),
        ("rewards", format!("{:?}", row.rewards)),
        ("reward_valid", row.reward_valid.to_string()),
        ("failure_cause", format!("{:?}", row.failure_cause)),
        ("suspicious", format!("{:?}", row.suspicious)),
        ("logprobs_mode", format!("{:?}", row.logprobs_mode)),
        ("origin", format!("{:?}", row.origin)),
    ]
}

/// One sampled answer as in the first row that has it, with the owners of its tokens.
#[derive(Clone, Debug)]
struct SampledAnswer {
    start: i32,
    prefix_hash: u64,
    token_ids: Vec<i32>,
    logprobs: Vec<f32>,
    versions: Vec<i32>,
    trainable: Vec<u8>,
    owners: Vec<Owners>,
}

/// The branches that have one trainable token.
#[derive(Clone, Debug, Default)]
struct Owners {
    lowest_sharer: Option<i32>,
    in_loss_of: Option<i32>,
    /// Further branches. A sound trial has none, and a list per token would dominate the memory of a check.
    also_in_loss_of: Vec<i32>,
}

impl SampledAnswer {
    fn of(span: &CallSpan, row: &RolloutRow, prefix: &mut PrefixHash<'_>) -> Option<Self> {
        let token_ids = span_tokens(span, &row.token_ids)?.to_vec();
        Some(Self {
            start: span.start,
            prefix_hash: prefix.up_to(usize::try_from(span.start).ok()?)?,
            logprobs: span_tokens(span, &row.logprobs)?.to_vec(),
            versions: span_tokens(span, &row.token_version)?.to_vec(),
            trainable: span_tokens(span, &row.trainable_mask)?.to_vec(),
            owners: vec![Owners::default(); token_ids.len()],
            token_ids,
        })
    }

    fn difference(&self, other: &Self) -> Option<String> {
        // Bits, because NaN never equals itself and 0.0 equals −0.0.
        let bits = |logprobs: &[f32]| logprobs.iter().map(|logprob| logprob.to_bits()).collect::<Vec<_>>();
        if self.start != other.start {
            return Some(format!("starts at {} rather than {}, elsewhere", other.start, self.start));
        }
        // A hash of the prefix: the prefixes of all shared answers would need memory for turns × context.
        if self.prefix_hash != other.prefix_hash {
            return Some("stands after other tokens".to_owned());
        }
        let token =
            first_difference(&self.token_ids, &other.token_ids).map(|at| format!("has another token {at}"));
        let logprob = || first_difference(&bits(&self.logprobs), &bits(&other.logprobs));
        let version = || first_difference(&self.versions, &other.versions);
        let trainable = || first_difference(&self.trainable, &other.trainable);
        token
            .or_else(|| logprob().map(|at| format!("has another logprob at its token {at}")))
            .or_else(|| version().map(|at| format!("has another version at its token {at}")))
            .or_else(|| trainable().map(|at| format!("has another trainable_mask at its token {at}")))
    }

    fn claim(&mut self, branch_index: i32, trainable: &[u8], loss: &[u8]) {
        for ((owners, &trainable), &loss) in self.owners.iter_mut().zip(trainable).zip(loss) {
            if trainable != 0 {
                let lowest = owners.lowest_sharer.map_or(branch_index, |lowest| lowest.min(branch_index));
                owners.lowest_sharer = Some(lowest);
            }
            match (loss, owners.in_loss_of) {
                (0, _) => {}
                (_, None) => owners.in_loss_of = Some(branch_index),
                (_, Some(_)) => owners.also_in_loss_of.push(branch_index),
            }
        }
    }

    fn check_owners(&self, (call_id, choice_index): &AnswerKey, found: &mut Findings<'_>) {
        for (offset, owners) in self.owners.iter().enumerate() {
            // A token that is trainable in no branch has no owner.
            let Some(lowest) = owners.lowest_sharer else { continue };
            let token = || format!("token {offset} of choice {choice_index} of call {call_id}");
            match (owners.in_loss_of, owners.also_in_loss_of.as_slice()) {
                (Some(owner), []) => found.require(owner == lowest, Invariant::LossOwnerLowest, || {
                    format!("{} is in loss_mask of branch {owner}, though branch {lowest} has it", token())
                }),
                (None, _) => found.add(Invariant::LossOwner, || format!("{} is in no loss_mask", token())),
                (Some(first), more) => found.add(Invariant::LossOwner, || {
                    let several: Vec<_> = std::iter::once(first).chain(more.iter().copied()).collect();
                    format!("{} is in loss_mask of the branches {several:?}", token())
                }),
            }
        }
    }
}

/// Returns the first index at which two lists differ, or `None` if they are equal.
pub(super) fn first_difference<T: PartialEq>(left: &[T], right: &[T]) -> Option<usize> {
    let differs = left.iter().zip(right).position(|(left, right)| left != right);
    differs.or_else(|| (left.len() != right.len()).then(|| left.len().min(right.len())))
}

/// Hashes of increasing prefixes of one row's tokens, in one pass.
struct PrefixHash<'a> {
    token_ids: &'a [i32],
    hashed: usize,
    hasher: DefaultHasher,
}

impl<'a> PrefixHash<'a> {
    fn new(token_ids: &'a [i32]) -> Self {
        Self { token_ids, hashed: 0, hasher: DefaultHasher::new() }
    }

    /// Returns the hash of the first `length` tokens. `None` if there are fewer tokens, or if an earlier request was
    /// longer.
    fn up_to(&mut self, length: usize) -> Option<u64> {
        let tokens = self.token_ids.get(self.hashed..length)?;
        tokens.iter().for_each(|token| token.hash(&mut self.hasher));
        self.hashed = length;
        Some(self.hasher.finish())
    }
}
