//! What was captured of a trial beside what its agent handed back of it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::call::{Call, CallStatus, Choice};
use crate::forest::Forest;
use crate::token_list::common_prefix;

/// How far two records of one trial agree. An answer is the same where its prompt and its tokens are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Answers that were captured whole.
    pub captured: usize,
    /// Turns that were handed back.
    pub returned: usize,
    /// How many of both are the same.
    pub same: usize,
    /// Turns handed back without prompt or answer, which nothing can be held against.
    pub incomplete: usize,
    /// Same answers with another logprob somewhere.
    pub other_logprobs: usize,
    /// Where the records first differ, in the order of the turns handed back.
    pub first_difference: Option<Difference>,
}

/// One place where the records differ. Turns and tokens are counted from 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Difference {
    /// A turn has other tokens than the first captured answer that no turn is the same as.
    Token {
        /// Among those handed back.
        turn: usize,
        /// Among those captured.
        captured_turn: usize,
        /// Which list.
        part: TurnList,
        /// Index in it.
        position: usize,
        /// None where the list has ended.
        captured: Option<i32>,
        /// None where the list has ended.
        returned: Option<i32>,
    },
    /// A turn has another logprob.
    Logprob {
        /// Among those handed back.
        turn: usize,
        /// Index in the answer.
        position: usize,
        /// None where there is none.
        captured: Option<f32>,
        /// None where there is none.
        returned: Option<f32>,
    },
    /// A turn lacks its prompt or its answer.
    Incomplete {
        /// Among those handed back.
        turn: usize,
    },
    /// A turn beyond all that was captured.
    NotCaptured {
        /// Among those handed back.
        turn: usize,
    },
    /// A captured answer beyond all turns.
    NotReturned {
        /// Among those captured.
        captured_turn: usize,
    },
}

/// A list of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnList {
    /// What was asked with.
    Prompt,
    /// What was sampled.
    Answer,
}

/// An answer and what it answers.
#[derive(Clone, Copy)]
struct ReportedAnswer<'a> {
    call: &'a Call,
    choice: &'a Choice,
}

/// Holds what an agent handed back against what was captured, token for token. Agents tell their main conversation before
/// those of sub-agents, whatever happened first, so that an answer may stand elsewhere; but each is the same as one at most.
pub fn compare(captured: &[Call], returned: &[Call]) -> Comparison {
    let forest = Forest::build(captured.iter().filter(|call| call.status == CallStatus::Complete));
    let answers: Vec<_> =
        forest.nodes().iter().map(|node| ReportedAnswer { call: node.call, choice: node.choice }).collect();
    let mut free = Free::new(&answers);
    let turns: Vec<_> = returned.iter().map(ReportedAnswer::of).collect();
    let found: Vec<_> = turns.iter().map(|turn| free.take(turn.as_ref()?)).collect();
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

/// The captured answers that no turn is the same as yet.
struct Free<'a> {
    answers: &'a [ReportedAnswer<'a>],
    is_taken: Vec<bool>,
    /// After the one that was taken last: where the next turn's is, mostly.
    next: usize,
}

impl<'a> Free<'a> {
    fn new(answers: &'a [ReportedAnswer<'a>]) -> Self {
        Self { answers, is_taken: vec![false; answers.len()], next: 0 }
    }

    /// Which of them is the same as this turn; it is no longer free.
    fn take(&mut self, turn: &ReportedAnswer<'_>) -> Option<usize> {
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
    /// None where prompt or answer are missing.
    fn of(call: &'a Call) -> Option<Self> {
        let choice = call.choices.first().filter(|choice| !choice.token_ids.is_empty())?;
        (!call.prompt_token_ids.is_empty()).then_some(Self { call, choice })
    }

    fn is_same(&self, other: &Self) -> bool {
        // Lists of different lengths differ without being looked at.
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

    /// Both have the same tokens.
    fn other_logprob(&self, turn: &Self, number: usize) -> Option<Difference> {
        let at = |answer: &Self, position: usize| {
            let logprob = answer.choice.aligned_logprobs()?.get(position).copied().flatten()?;
            Some(logprob.get())
        };
        let pair = |position| (position, at(self, position), at(turn, position));
        let mut pairs = (0..self.choice.token_ids.len()).map(pair);
        let (position, captured, returned) =
            pairs.find(|(_, captured, returned)| captured.map(f32::to_bits) != returned.map(f32::to_bits))?;
        Some(Difference::Logprob { turn: number, position, captured, returned })
    }
}

impl Comparison {
    /// Whether the records hold the same.
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

/// A value that may not be there.
struct Told<T>(Option<T>);

impl<T: fmt::Display> fmt::Display for Told<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("nothing"),
        }
    }
}
