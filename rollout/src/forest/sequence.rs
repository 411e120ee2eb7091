//! The whole token sequence of an answer: the prompt of its call, then the sampled tokens.

use std::cmp::Ordering;

use crate::call::{Call, Choice};
use crate::token::TokenId;
use crate::token_list::TokenList;

/// A borrowed prompt and an answer to it.
#[derive(Clone, Copy)]
pub(super) struct Sequence<'a> {
    prompt: &'a TokenList,
    answer: &'a [TokenId],
}

impl<'a> Sequence<'a> {
    pub(super) fn of(call: &'a Call, choice: &'a Choice) -> Self {
        Self { prompt: &call.prompt_token_ids, answer: &choice.token_ids }
    }

    /// Returns the number of leading tokens that both sequences share. Shared memory of prompts is not read.
    pub(super) fn common_prefix(&self, other: &Self) -> usize {
        let of_prompts = self.prompt.common_prefix(other.prompt);
        if of_prompts < self.prompt.len().min(other.prompt.len()) {
            return of_prompts;
        }
        let rest = self.iter_from(of_prompts).zip(other.iter_from(of_prompts));
        of_prompts + rest.take_while(|(a, b)| a == b).count()
    }

    /// Compares token by token, so that a sequence directly precedes its extensions.
    pub(super) fn cmp(&self, other: &Self) -> Ordering {
        let shared = self.common_prefix(other);
        self.iter_from(shared).next().cmp(&other.iter_from(shared).next())
    }

    fn iter_from(&self, start: usize) -> impl Iterator<Item = TokenId> + 'a {
        let answer = self.answer.get(start.saturating_sub(self.prompt.len())..).unwrap_or_default();
        self.prompt.iter_from(start).chain(answer).copied()
    }
}
