//! The tokens of a row whose captured logprob can be compared with a recomputed one.

use std::collections::BTreeMap;

use super::Policy;
use crate::row::{CallSpan, RolloutRow};

/// Why a trained token is not compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A list of the row has no value for the token, or the token is in no call's span. A span that exceeds the lists
    /// of the row does not count.
    Misaligned,
    /// The prompt contained images, audio or video, which ids do not represent.
    Media,
    /// The call was constrained, so its logprobs are not those of all tokens.
    Constrained,
    /// The row's `logprobs_mode` is neither `raw_logprobs` nor `processed_logprobs`.
    UnknownMode,
    /// Processed logprobs at another temperature than 1, or under a truncation or a penalty. A server computes the
    /// logprobs of prompts without these.
    Processed,
    /// Processed logprobs, and the temperature, `top_p` or `top_k` is unknown.
    UnknownSampling,
    /// The first token of the sequence, for which no server computes a logprob.
    FirstToken,
    /// The token is of another policy version than the chosen one.
    OtherPolicy,
    /// The sequence up to the token does not fit into the context of the server.
    Context,
}

impl Reason {
    /// Describes the tokens, after a number of tokens.
    pub fn about(self) -> &'static str {
        match self {
            Self::Misaligned => "of rows whose lists do not fit together",
            Self::Media => "of rows with images, audio or video",
            Self::Constrained => "of constrained calls",
            Self::UnknownMode => "of rows with an unknown logprobs_mode",
            Self::Processed => {
                "with processed logprobs at a temperature other than 1, or under top_p, top_k, min_p or a penalty"
            }
            Self::UnknownSampling => {
                "with processed logprobs at an unknown temperature, top_p or top_k (see --generation-defaults of the proxy)"
            }
            Self::FirstToken => "without a token before them",
            Self::OtherPolicy => "of other policy versions",
            Self::Context => "beyond the server's max_model_len",
        }
    }
}

/// Trained tokens that are not compared, by reason.
pub type LeftOut = BTreeMap<Reason, u64>;

/// A trained token whose logprob can be recomputed.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedToken {
    /// The index in the row's `token_ids`, at least 1.
    pub index: usize,
    /// The captured logprob in nats.
    pub captured: f32,
    /// The policy version that sampled it.
    pub policy: Policy,
}

/// The comparable tokens of one row.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparable {
    /// The trial.
    pub trial_id: String,
    /// The row's `branch_index`.
    pub branch_index: i32,
    /// The model or adapter that sampled the tokens.
    pub model: String,
    /// The tokens of the row up to the last compared one: the prompt of the recomputation. Empty if no token is
    /// compared.
    pub token_ids: Vec<i32>,
    /// The compared tokens, in order.
    pub tokens: Vec<ComparedToken>,
}

impl Comparable {
    /// Selects the tokens with `loss_mask` 1, so that a token that several branches share is compared once. Adds those
    /// that cannot be compared to `left_out`.
    pub fn of(row: &RolloutRow, left_out: &mut LeftOut) -> Self {
        let mut selected = Self {
            trial_id: row.trial_id.clone(),
            branch_index: row.branch_index,
            model: model_of(row).to_owned(),
            token_ids: row.token_ids.clone(),
            tokens: Vec::new(),
        };
        let obstacles = obstacles(row);
        for (index, _) in row.loss_mask.iter().enumerate().filter(|(_, bit)| **bit == 1) {
            let place = (row.logprobs.get(index), row.token_version.get(index), obstacles.get(index));
            let (Some(&captured), Some(&version), Some(obstacle)) = place else {
                *left_out.entry(Reason::Misaligned).or_default() += 1;
                continue;
            };
            match obstacle {
                Some(reason) => *left_out.entry(*reason).or_default() += 1,
                None => {
                    let policy = Policy::of(row, version);
                    selected.tokens.push(ComparedToken { index, captured, policy });
                }
            }
        }
        selected.shorten();
        selected
    }

    /// Retains the tokens of this policy version.
    pub fn retain_policy(&mut self, policy: &Policy, left_out: &mut LeftOut) {
        self.retain(Reason::OtherPolicy, left_out, |token| token.policy == *policy);
    }

    /// Retains the tokens that a prompt of at most `longest` tokens contains.
    pub fn retain_prompt(&mut self, longest: usize, left_out: &mut LeftOut) {
        self.retain(Reason::Context, left_out, |token| token.index < longest);
    }

    fn retain(&mut self, reason: Reason, left_out: &mut LeftOut, keep: impl Fn(&ComparedToken) -> bool) {
        let before = self.tokens.len();
        self.tokens.retain(keep);
        let removed = before - self.tokens.len();
        if removed > 0 {
            *left_out.entry(reason).or_default() += removed as u64;
            self.shorten();
        }
    }

    /// Removes the tokens after the last compared one: no logprob depends on a later token.
    fn shorten(&mut self) {
        self.token_ids.truncate(self.tokens.last().map_or(0, |last| last.index + 1));
    }
}

/// Returns the model of a branch. One model or adapter sampled all of its calls.
fn model_of(row: &RolloutRow) -> &str {
    row.calls.iter().find_map(|span| span.model.as_deref()).unwrap_or(&row.model)
}

/// Returns for each token of the row why its logprob cannot be recomputed, or `None` if it can.
fn obstacles(row: &RolloutRow) -> Vec<Option<Reason>> {
    let everywhere = row.has_media.then_some(Reason::Media);
    // A sampled token outside of all spans breaks an invariant.
    let mut obstacles = vec![Some(everywhere.unwrap_or(Reason::Misaligned)); row.token_ids.len()];
    for span in &row.calls {
        let range = usize::try_from(span.start).ok().zip(usize::try_from(span.end).ok());
        let Some(tokens) = range.and_then(|(start, end)| obstacles.get_mut(start..end)) else { continue };
        tokens.fill(everywhere.or_else(|| obstacle(row, span)));
    }
    if let Some(first @ None) = obstacles.first_mut() {
        *first = Some(Reason::FirstToken);
    }
    obstacles
}

/// Returns why the logprobs of a call differ from those of a prompt, which vLLM computes from the logits alone, at any
/// `--logprobs-mode` (`_get_prompt_logprobs_dict` of vLLM 0.32).
fn obstacle(row: &RolloutRow, span: &CallSpan) -> Option<Reason> {
    if span.constrained {
        return Some(Reason::Constrained);
    }
    match row.logprobs_mode.as_str() {
        "raw_logprobs" => None,
        "processed_logprobs" => {
            let is_divided = span.temperature.is_some_and(|temperature| temperature != 1.0);
            let is_unknown = span.temperature.is_none() || span.top_p.is_none() || span.top_k.is_none();
            if is_divided || span.shaped_by().next().is_some() {
                Some(Reason::Processed)
            } else {
                is_unknown.then_some(Reason::UnknownSampling)
            }
        }
        _ => Some(Reason::UnknownMode),
    }
}
