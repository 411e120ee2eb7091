//! Compares the captured calls of a trial with the agent's own record.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::call::{Call, CallStatus, Choice};
use crate::forest::Forest;
use crate::token_list::common_prefix;

/// The agreement of two records of one trial. Two answers are the same if their prompts and their tokens are equal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The number of complete captured answers.
    pub captured: usize,
    /// The number of turns in the agent's record.
    pub returned: usize,
    /// The number of answers that both records have.
    pub same: usize,
    /// The number of reported turns without prompt or answer, which cannot be compared.
    pub incomplete: usize,
    /// The number of same answers with a different logprob.
    pub other_logprobs: usize,
    /// The first difference, in the order of the reported turns.
    pub first_difference: Option<Difference>,
}

/// One difference between the records. Turns and tokens are counted from 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Difference {
    /// A turn has other tokens than the first captured answer without a matching turn.
    Token {
        /// The index among the reported turns.
        turn: usize,
        /// The index among the captured answers.
        captured_turn: usize,
        /// The list that differs.
        part: TurnList,
        /// The index in that list.
        position: usize,
        /// `None` if the list has ended.
        captured: Option<i32>,
        /// `None` if the list has ended.
        returned: Option<i32>,
    },
    /// A turn has a different logprob.
    Logprob {
        /// The index among the reported turns.
        turn: usize,
        /// The index in the answer.
        position: usize,
        /// `None` if there is no logprob.
        captured: Option<f32>,
        /// `None` if there is no logprob.
        returned: Option<f32>,
    },
    /// A turn has no prompt or no answer.
    Incomplete {
        /// The index among the reported turns.
        turn: usize,
    },
    /// A turn without a matching answer, after every captured answer was matched.
    NotCaptured {
        /// The index among the reported turns.
        turn: usize,
    },
    /// A captured answer without a matching turn, after every turn was matched.
    NotReturned {
        /// The index among the captured answers.
        captured_turn: usize,
    },
}

/// A list of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnList {
    /// The prompt.
    Prompt,
    /// The sampled tokens.
    Answer,
}

/// An answer with its call.
#[derive(Clone, Copy)]
struct ReportedAnswer<'a> {
    call: &'a Call,
    choice: &'a Choice,
}

/// Compares an agent's record with the captured calls, token for token. Agents report their main conversation before
/// those of sub-agents, whatever the order of time. So a turn may match an answer at any position, and each answer
/// matches at most one turn.
pub fn compare(captured: &[Call], returned: &[Call]) -> Comparison {
    // Only complete calls: an agent has no record of an answer that was cut off.
    let forest = Forest::build(captured.iter().filter(|call| call.status == CallStatus::Complete));
    let answers: Vec<_> =
        forest.nodes().iter().map(|node| ReportedAnswer { call: node.call, choice: node.choice }).collect();
    let mut free = Free::new(&answers);
    let turns: Vec<_> = returned.iter().map(ReportedAnswer::of).collect();
    let found: Vec<_> = turns.iter().map(|turn| free.take(turn.as_ref()?)).collect();
    // After all matches: the first unmatched answer is the one to compare an unmatched turn with.
    let left = free.first();
    let differs = |(turn, (answer, found)): (usize, (&Option<ReportedAnswer<'_>>, &Option<usize>))| {
        let Some(answer) = answer else { return Some(Difference::Incomplete { turn }) };
        match (found, left) {
            (Some(at), _) => answers.get(*at)?.other_logprob(answer, turn),
            (None, Some(at)) => answers.get(at)?.other_token(answer, turn, at),
            (None, None) => Some(Difference::NotCaptured { turn }),
        }
    };
    let differences: Vec<_> = turns.iter().zip(&found).enumerate().filter_map(differs).collect();
    let is_logprob = |difference: &&Difference| matches!(difference, Difference::Logprob { .. });
    Comparison {
        captured: answers.len(),
        returned: turns.len(),
        same: found.iter().flatten().count(),
        incomplete: turns.iter().filter(|turn| turn.is_none()).count(),
        other_logprobs: differences.iter().filter(is_logprob).count(),
        first_difference: differences
            .into_iter()
            .next()
            .or(left.map(|captured_turn| Difference::NotReturned { captured_turn })),
    }
}

/// The captured answers without a matching turn so far.
struct Free<'a> {
    answers: &'a [ReportedAnswer<'a>],
    is_taken: Vec<bool>,
    /// The index after the last match. The next turn mostly matches there, so the search starts there.
    next: usize,
}

impl<'a> Free<'a> {
    fn new(answers: &'a [ReportedAnswer<'a>]) -> Self {
        Self { answers, is_taken: vec![false; answers.len()], next: 0 }
    }

    /// Returns the index of the answer that equals this turn, and removes it from the free answers.
    fn take(&mut self, turn: &ReportedAnswer<'_>) -> Option<usize> {
        // The search wraps around, because the agents' order may differ from the order of time.
        let order = (self.next..self.answers.len()).chain(0..self.next);
        let is_same = |&at: &usize| {
            let is_free = self.is_taken.get(at) == Some(&false);
            is_free && self.answers.get(at).is_some_and(|answer| answer.is_same(turn))
        };
        let at = order.into_iter().find(is_same)?;
        *self.is_taken.get_mut(at)? = true;
        self.next = at + 1;
        Some(at)
    }

    fn first(&self) -> Option<usize> {
        self.is_taken.iter().position(|is_taken| !is_taken)
    }
}

impl<'a> ReportedAnswer<'a> {
    /// Returns `None` if the prompt or the answer is missing.
    fn of(call: &'a Call) -> Option<Self> {
        let choice = call.choices.first().filter(|choice| !choice.token_ids.is_empty())?;
        (!call.prompt_token_ids.is_empty()).then_some(Self { call, choice })
    }

    fn is_same(&self, other: &Self) -> bool {
        // The comparison of the cheaper list comes first. Lists of different lengths differ without a comparison of
        // their ids.
        self.choice.token_ids == other.choice.token_ids
            && self.call.prompt_token_ids == other.call.prompt_token_ids
    }

    fn other_token(&self, turn: &Self, number: usize, captured_turn: usize) -> Option<Difference> {
        let (prompt, other_prompt) = (&self.call.prompt_token_ids, &turn.call.prompt_token_ids);
        let (answer, other_answer) = (&self.choice.token_ids, &turn.choice.token_ids);
        let in_prompt = prompt.common_prefix(other_prompt);
        let (part, position, captured, returned) = if prompt == other_prompt {
            let at = common_prefix(answer, other_answer);
            (TurnList::Answer, at, answer.get(at), other_answer.get(at))
        } else {
            (TurnList::Prompt, in_prompt, prompt.get(in_prompt), other_prompt.get(in_prompt))
        };
        let (captured, returned) = (captured.map(|id| id.as_i32()), returned.map(|id| id.as_i32()));
        Some(Difference::Token { turn: number, captured_turn, part, position, captured, returned })
    }

    /// Returns the first difference of logprobs between two answers with the same tokens.
    fn other_logprob(&self, turn: &Self, number: usize) -> Option<Difference> {
        let at = |answer: &Self, position: usize| {
            let logprob = answer.choice.aligned_logprobs()?.get(position).copied().flatten()?;
            Some(logprob.get())
        };
        let pair = |position| (position, at(self, position), at(turn, position));
        let mut pairs = (0..self.choice.token_ids.len()).map(pair);
        let (position, captured, returned) =
            // Bits, so that a lost digit counts as a difference.
            pairs.find(|(_, captured, returned)| captured.map(f32::to_bits) != returned.map(f32::to_bits))?;
        Some(Difference::Logprob { turn: number, position, captured, returned })
    }
}

impl Comparison {
    /// Whether the records agree.
    pub fn agrees(&self) -> bool {
        self.first_difference.is_none()
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { captured, returned, same, incomplete, other_logprobs, first_difference } = self;
        write!(f, "{returned} turns handed back, {captured} captured, {same} of them the same")?;
        if *incomplete > 0 {
            write!(f, ", {incomplete} handed back without prompt or answer")?;
        }
        if *other_logprobs > 0 {
            write!(f, ", {other_logprobs} with other logprobs")?;
        }
        first_difference.iter().try_for_each(|difference| write!(f, "; first difference: {difference}"))
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token { turn, captured_turn, part, position, captured, returned } => {
                let part = if *part == TurnList::Prompt { "prompt" } else { "answer" };
                let (captured, returned) = (Told(*captured), Told(*returned));
                write!(
                    f,
                    "token {position} of the {part} of turn {turn} is {returned}, captured turn {captured_turn} has {captured}"
                )
            }
            Self::Logprob { turn, position, captured, returned } => {
                let (captured, returned) = (Told(*captured), Told(*returned));
                write!(f, "logprob {position} of turn {turn} is {returned}, captured was {captured}")
            }
            Self::Incomplete { turn } => write!(f, "turn {turn} lacks its prompt or its answer"),
            Self::NotCaptured { turn } => write!(f, "turn {turn} was not captured"),
            Self::NotReturned { captured_turn } => {
                write!(f, "captured turn {captured_turn} was not handed back")
            }
        }
    }
}

/// An optional value in a message.
struct Told<T>(Option<T>);

impl<T: fmt::Display> fmt::Display for Told<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("nothing"),
        }
    }
}
