//! One conversation of a kind, and what became of its tokens from turn to turn.

use rolltap_proxy::History;
use rolltap_rollout::call::{Call, CallStatus};
use rolltap_rollout::token::TokenId;
use rolltap_rollout::token_list::TokenList;
use serde_json::{Value, json};

use super::models::{Model, Shape};
use crate::conversation::{Conversation, Echo, Manner, Wire};
use crate::harness::Stage;

/// What the model does in a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Answers of noise, cut by their length, in the middle of characters too.
    Cut,
    /// Answers of noise that end by themselves.
    Ended,
    /// Thinks, then says something.
    Thinking,
    /// Calls tools and speaks, in turn.
    Tools,
    /// Both.
    ThinkingTools,
    /// Is cut in the middle of a thought.
    Unfinished,
    /// Thinks where nobody takes the thought out of the text.
    Aloud,
}

impl Kind {
    /// With a server that parses reasoning and tool calls.
    pub(super) const PARSED: [Self; 6] =
        [Self::Cut, Self::Ended, Self::Thinking, Self::Tools, Self::ThinkingTools, Self::Unfinished];
    /// With one that does not.
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

/// A conversation to be held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) kind: Kind,
    pub(super) manner: Manner,
    pub(super) turns: usize,
}

/// What a proxy that is faithful to the template must make of a later call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// The template shows what was sampled.
    Kept,
    /// It does not.
    Rendered,
    /// Noise that thinks, and whose thought is sent back, never says the `<think>` that templates write.
    Either,
    /// The agent sent nothing of the last answer: in one dialect an empty answer has no form. To the proxy, and to the
    /// template, that answer was never given.
    Unsaid,
}

/// A later call of a conversation.
pub(super) struct Step<'a> {
    /// What the prompt holds after the previous prompt and answer, if it begins with them.
    pub(super) tail: Option<Vec<TokenId>>,
    pub(super) due: Due,
    pub(super) call: Call,
    /// The conversation as it stood before this call was made, and its request.
    before: Conversation<'a>,
    asked: Value,
}

impl Step<'_> {
    /// The answer before, as it was sent back, and what came then.
    pub(super) fn last_said(&self) -> String {
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
            talk.says(&format!(" Turn {turn}: what now? 日本\u{301}\n"));
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
    let later = calls.windows(2).map(|pair| (tail(&pair[0], &pair[1]), pair[1].clone()));
    steps
        .into_iter()
        .skip(1)
        .zip(later)
        .map(|((due, before, asked), (tail, call))| Step { tail, due, call, before, asked })
        .collect()
}

/// Given whether the last answer thought, and any since the user spoke.
fn due(model: &Model, plan: Plan, after_results: bool, [last, since_user]: [bool; 2]) -> Due {
    let dropped = match plan.manner.echo {
        // Of older answers, the previous prompt lacked the reasoning too.
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

/// What a prompt holds after another call's prompt and first answer, if it begins with them.
pub(super) fn tail(before: &Call, after: &Call) -> Option<Vec<TokenId>> {
    assert_eq!((before.status, after.status), (CallStatus::Complete, CallStatus::Complete));
    let mut whole = before.prompt_token_ids.clone();
    whole.extend_from_slice(&before.choices[0].token_ids);
    let kept = after.prompt_token_ids.starts_with(&whole);
    kept.then(|| after.prompt_token_ids.iter().skip(whole.len()).copied().collect())
}

/// Whether vLLM's own rendering ends with this tail, and the tail is all that follows the last answer: what the user or
/// the tools said, and the beginning of the next answer.
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

/// The prompt that vLLM itself makes of this call's request.
pub(super) async fn own_rendering(stage: &Stage, step: &Step<'_>, manner: Manner) -> TokenList {
    if manner.wire == Wire::Chat {
        return stage.rendered(&step.before.request(&step.asked)).await;
    }
    // What a dialect is translated to is known to the proxy alone: asked once more, with nothing spliced.
    let trial = stage.open_with(History::Off).await;
    let mut asked = step.asked.clone();
    asked["max_tokens"] = json!(1);
    step.before.try_out(&trial, &asked).await;
    stage.calls(&trial).await.remove(0).prompt_token_ids
}
