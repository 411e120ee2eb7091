//! The pair of a group, and the reasons why a group has none.

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::export::exporter::ExportError;
use crate::export::shared::training_message::training_message;
use crate::export::shared::transcript::{Message, offered_tools, transcript};
use crate::row::RolloutRow;

/// A trial that may be a side of a pair.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    reward: f64,
    messages: Vec<Message>,
    tools: Option<Box<RawValue>>,
    trial_id: String,
    task_id: String,
    group_id: Option<String>,
}

/// Which conversations make a pair.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PairRules {
    /// The smallest difference of the rewards. Equal rewards never make a pair.
    pub min_margin: f64,
    /// Whether conversations without a common beginning make a pair. Its prompt is that of the chosen one.
    pub differing_prompts: bool,
}

/// A line of the file.
#[derive(Debug, Serialize)]
pub(super) struct Pair<'a> {
    prompt: &'a [Message],
    chosen: &'a [Message],
    rejected: &'a [Message],
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<&'a RawValue>,
    score_chosen: f64,
    score_rejected: f64,
    task_id: &'a str,
    group_id: Option<&'a str>,
    chosen_trial_id: &'a str,
    rejected_trial_id: &'a str,
    /// Whether the rejected conversation had another prompt.
    #[serde(skip)]
    pub(super) has_other_prompt: bool,
}

/// Why a group has no pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoPair {
    TooFew,
    EqualRewards,
    SmallMargin,
    OtherTools,
    OtherBeginning,
    EqualWords,
}

impl NoPair {
    /// The reason as an omission of the export.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::TooFew => "groups: fewer than two of their trials can be compared",
            Self::EqualRewards => "groups: all of their rewards are equal",
            Self::SmallMargin => "groups: their highest and lowest reward differ by less than --min-margin",
            Self::OtherTools => "groups: their best and worst trial were offered different tools",
            Self::OtherBeginning => {
                "groups: their best and worst conversation begin with different messages (--differing-prompts makes \
                 pairs of these)"
            }
            Self::EqualWords => "groups: their best and worst conversation have the same words",
        }
    }
}

impl Candidate {
    /// Returns `None` if no messages of the row were recorded.
    ///
    /// # Errors
    /// The messages or tools of a call are not JSON of the expected form.
    pub(super) fn of(row: &RolloutRow, reward: f64) -> Result<Option<Self>, ExportError> {
        let messages: Vec<_> = transcript(row)?.into_iter().map(training_message).collect();
        if messages.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self {
            reward,
            messages,
            tools: offered_tools(row)?.map(ToOwned::to_owned),
            trial_id: row.trial_id.clone(),
            task_id: row.task_id.clone(),
            group_id: row.group_id.clone(),
        }))
    }
}

impl<'a> Pair<'a> {
    /// Returns the pair of the best and the worst candidate, or the reason why these make none.
    pub(super) fn of(candidates: &'a [Candidate], rules: PairRules) -> Result<Self, NoPair> {
        let [first, others @ ..] = candidates else { return Err(NoPair::TooFew) };
        if others.is_empty() {
            return Err(NoPair::TooFew);
        }
        // The first among equals, so that the choice does not depend on anything but the order of the input.
        let best =
            others.iter().fold(first, |best, other| if other.reward > best.reward { other } else { best });
        let worst =
            others.iter().fold(first, |worst, other| if other.reward < worst.reward { other } else { worst });
        let margin = best.reward - worst.reward;
        if margin <= 0.0 {
            return Err(NoPair::EqualRewards);
        }
        if margin < rules.min_margin {
            return Err(NoPair::SmallMargin);
        }
        Self::between(best, worst, rules.differing_prompts)
    }

    fn between(best: &'a Candidate, worst: &'a Candidate, differing_prompts: bool) -> Result<Self, NoPair> {
        if best.tools.as_deref().map(RawValue::get) != worst.tools.as_deref().map(RawValue::get) {
            return Err(NoPair::OtherTools);
        }
        if best.messages == worst.messages {
            return Err(NoPair::EqualWords);
        }
        let common = prompt_length(&best.messages, &worst.messages).map(|length| (length, length));
        let own = || first_answer(&best.messages).zip(first_answer(&worst.messages));
        let ends = common.or_else(|| own().filter(|_| differing_prompts));
        let sides = ends.and_then(|(best_end, worst_end)| {
            let (_, rejected) = worst.messages.split_at_checked(worst_end)?;
            Some((best.messages.split_at_checked(best_end)?, rejected))
        });
        let ((prompt, chosen), rejected) = sides.ok_or(NoPair::OtherBeginning)?;
        Ok(Self {
            prompt,
            chosen,
            rejected,
            tools: best.tools.as_deref(),
            score_chosen: best.reward,
            score_rejected: worst.reward,
            task_id: &best.task_id,
            group_id: best.group_id.as_deref(),
            chosen_trial_id: &best.trial_id,
            rejected_trial_id: &worst.trial_id,
            has_other_prompt: common.is_none(),
        })
    }

    pub(super) fn trial_id(&self) -> &'a str {
        self.chosen_trial_id
    }

    /// Whether a side has messages that no model answered.
    pub(super) fn has_other_messages(&self) -> bool {
        self.chosen.iter().chain(self.rejected).any(|message| !is_answer(message))
    }
}

/// Returns the number of messages of the prompt: the longest common beginning of both conversations after which both
/// have an answer. `None` if there is none, or if it has no message.
fn prompt_length(best: &[Message], worst: &[Message]) -> Option<usize> {
    let common = best.iter().zip(worst).take_while(|(a, b)| a == b).count();
    // If the answers agree and then the results of tools differ, the pair begins with the last answer of both.
    let is_answered = |messages: &[Message], at: usize| messages.get(at).is_some_and(is_answer);
    (1..=common).rev().find(|&at| is_answered(best, at) && is_answered(worst, at))
}

/// Returns the number of messages before the first answer. `None` if there is no answer, or nothing before it.
fn first_answer(messages: &[Message]) -> Option<usize> {
    messages.iter().position(is_answer).filter(|&length| length > 0)
}

fn is_answer(message: &Message) -> bool {
    message.get("role").and_then(Value::as_str) == Some("assistant")
}
