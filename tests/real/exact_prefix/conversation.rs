//! One conversation of a kind, and the fate of its tokens from turn to turn.

use rolltap_proxy::History;
use rolltap_rollout::call::{Call, CallStatus};
use rolltap_rollout::token::TokenId;
use rolltap_rollout::token_list::TokenList;
use serde_json::{Value, json};

use super::models::{Model, Shape};
use crate::conversation::{Conversation, Echo, Manner, Wire};
use crate::harness::Stage;

/// The kind of a conversation, by the model's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Answers of noise, cut by their length, in the middle of characters too.
    Cut,
    /// Answers of noise with an end token.
    Ended,
    /// The model thinks and then writes some words.
    Thinking,
    /// The model calls tools and writes words, in turn.
    Tools,
    /// The model thinks and calls tools.
    ThinkingTools,
    /// The answer is cut in the middle of a thought.
    Unfinished,
    /// The model thinks, and no parser removes the thought from the text.
    Aloud,
}

impl Kind {
    /// The kinds for a server that parses reasoning and tool calls.
    pub(super) const PARSED: [Self; 6] =
        [Self::Cut, Self::Ended, Self::Thinking, Self::Tools, Self::ThinkingTools, Self::Unfinished];
    /// The kinds for a server that does not parse them.
    pub(super) const BARE: [Self; 3] = [Self::Cut, Self::Ended, Self::Aloud];

    pub(super) fn uses_tools(self) -> bool {
        matches!(self, Self::Tools | Self::ThinkingTools)
    }

    pub(super) fn thinks(self) -> bool {
        matches!(self, Self::Thinking | Self::ThinkingTools | Self::Unfinished)
    }

    fn shape(self, turn: usize, after_results: bool) -> Shape {
        match self {
            Self::Cut => Shape::Cut(8 + 5 * u32::try_from(turn).unwrap()),
            Self::Unfinished => Shape::Cut(3),
            Self::Ended => Shape::Ended,
            Self::Aloud => Shape::Aloud,
            Self::Tools | Self::ThinkingTools if !after_results => Shape::Calls,
            Self::Tools | Self::ThinkingTools | Self::Thinking => Shape::Words,
        }
    }
}

/// The plan of a conversation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) kind: Kind,
    pub(super) manner: Manner,
    pub(super) turns: usize,
}

/// The required treatment of a later call by a proxy that is faithful to the template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// The template shows the sampled text, so the tokens must be preserved.
    Kept,
    /// The template shows other text, so the prompt must be vLLM's rendering.
    Rendered,
    /// Either is correct. The answer is noise with a thought, but without the `<think>` that the template writes in
    /// front of it.
    Either,
    /// The agent sent nothing of the last answer, because an empty answer has no form in one dialect. For the proxy and
    /// for the template, that answer does not exist.
    Unsaid,
}

/// A later call of a conversation.
pub(super) struct Step<'a> {
    /// The ids after the previous prompt and answer, or `None` if the prompt does not begin with them.
    pub(super) tail: Option<Vec<TokenId>>,
    pub(super) due: Due,
    pub(super) call: Call,
    /// The ids of the previous answer.
    pub(super) sampled_before: Vec<TokenId>,
    /// The conversation before this call, and the request of the call.
    before: Conversation<'a>,
    asked: Value,
}

impl Step<'_> {
    /// Returns the previous answer as it was sent back, and the messages after it.
    pub(super) fn last_answer(&self) -> String {
        let turns = &self.before.history;
        serde_json::to_string(&turns[turns.len().saturating_sub(3)..]).unwrap()
    }
}

/// Holds a conversation in a trial of its own.
pub(super) async fn hold<'a>(stage: &'a Stage, model: &Model, plan: Plan, history: History) -> Vec<Step<'a>> {
    let trial = stage.open_with(history).await;
    let mut talk = Conversation::new(stage, &trial, model.name, plan.manner, "You look around. \n");
    let mut pending = Vec::new();
    let mut thought_since_user = false;
    let mut thought_last = false;
    let mut said_nothing = false;
    let mut steps = Vec::new();
    for turn in 0..plan.turns {
        let after_results = !pending.is_empty();
        if after_results {
            talk.results(&pending, "Blue {\"deep\": true}\n");
        } else {
            talk.add_user_message(&format!(" Turn {turn}: what now? 日本\u{301}\n"));
        }
        let seen = [thought_last, thought_since_user];
        let due = if said_nothing { Due::Unsaid } else { due(model, plan, after_results, seen) };
        let asked = model.request(plan.kind.shape(turn, after_results), plan.kind.thinks());
        let before = talk.clone();
        let answer = talk.ask(&asked).await;
        steps.push((due, before, asked));
        said_nothing = answer.turn.is_empty();
        pending = answer.calls;
        thought_last = !answer.reasoning.trim().is_empty();
        thought_since_user = thought_last || (after_results && thought_since_user);
    }
    let calls = stage.calls(&trial).await;
    assert_eq!(calls.len(), plan.turns, "{plan:?}");
    let later = calls.windows(2);
    steps
        .into_iter()
        .skip(1)
        .zip(later)
        .map(|((due, before, asked), pair)| Step {
            tail: tail(&pair[0], &pair[1]),
            due,
            call: pair[1].clone(),
            sampled_before: pair[0].choices[0].token_ids.clone(),
            before,
            asked,
        })
        .collect()
}

/// Returns the required treatment. `last` is true if the last answer had a thought, and `since_user` if any answer
/// since the last user message had one.
fn due(model: &Model, plan: Plan, after_results: bool, [last, since_user]: [bool; 2]) -> Due {
    let dropped = match plan.manner.echo {
        // The previous prompt lacked the reasoning of older answers too.
        Echo::NoReasoning => last,
        Echo::Whole => model.forgets_reasoning && !after_results && since_user,
    };
    if dropped {
        Due::Rendered
    } else if plan.kind.thinks() {
        Due::Either
    } else {
        Due::Kept
    }
}

/// Returns the ids after another call's prompt and first answer, or `None` if the prompt does not begin with them.
pub(super) fn tail(before: &Call, after: &Call) -> Option<Vec<TokenId>> {
    assert_eq!((before.status, after.status), (CallStatus::Complete, CallStatus::Complete));
    let mut whole = before.prompt_token_ids.clone();
    whole.extend_from_slice(&before.choices[0].token_ids);
    let kept = after.prompt_token_ids.starts_with(&whole);
    kept.then(|| after.prompt_token_ids.iter().skip(whole.len()).copied().collect())
}

/// Returns whether vLLM's own rendering ends with this tail, and whether the tail is everything after the last answer:
/// the text of the user or of the tools, and the beginning of the next answer.
pub(super) fn is_own_tail(own: &TokenList, tail: &[TokenId], model: &Model) -> bool {
    let own: Vec<TokenId> = own.iter().copied().collect();
    let is = |id: &TokenId, special: u32| u32::try_from(id.as_i32()) == Ok(special);
    let Some(before) = own.strip_suffix(tail) else { return false };
    let begins_at_the_end_of_a_turn =
        [before.last(), tail.first()].into_iter().flatten().filter(|id| is(id, model.end_of_turn)).count()
            == 1;
    let turns = tail.iter().filter(|id| is(id, model.start_of_turn)).count();
    begins_at_the_end_of_a_turn && turns == 2
}

/// Returns vLLM's own prompt for this call's request.
pub(super) async fn own_rendering(stage: &Stage, step: &Step<'_>, manner: Manner) -> TokenList {
    if manner.wire == Wire::Chat {
        return stage.rendered(&step.before.request(&step.asked)).await;
    }
    // Only the proxy knows a dialect's translation, so the request is sent once more, with exact prefix off.
    let trial = stage.open_with(History::Off).await;
    let mut asked = step.asked.clone();
    asked["max_tokens"] = json!(1);
    step.before.try_out(&trial, &asked).await;
    stage.calls(&trial).await.remove(0).prompt_token_ids
}
