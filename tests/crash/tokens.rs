//! Tokens that say where they come from: whose trial a prompt is of, and which answer a sampled token belongs to.
//!
//! A word of text `t123` is token 123, any other word some token. So what an agent reads, what the upstream sent and what
//! the store holds can be held against each other.

/// Ends a message.
pub(crate) const END: u32 = 1;
/// Begin a message, by its role.
pub(crate) const SYSTEM: u32 = 2;
pub(crate) const USER: u32 = 3;
pub(crate) const ASSISTANT: u32 = 4;

/// Tokens of ordinary text.
pub(crate) const WORDS: std::ops::Range<u64> = 100..50_000;
/// Trial 0 is named by this token, trial 1 by the next.
const TRIALS: u32 = 100_000_000;
/// Answer 0 begins with this token, answer 1 with the next.
const ANSWERS: u32 = 1_000_000_000;

/// The token that names a trial.
pub(crate) fn of_trial(number: u32) -> u32 {
    TRIALS + number
}

/// The token that an answer begins with.
pub(crate) fn of_answer(number: u32) -> u32 {
    ANSWERS + number
}

/// The trial whose prompt this is.
pub(crate) fn trial_in(prompt: &[u32]) -> Option<u32> {
    prompt.iter().find(|&&id| (TRIALS..ANSWERS).contains(&id)).map(|id| id - TRIALS)
}

/// The answer that begins with this token.
pub(crate) fn answer_at(first: u32) -> Option<u32> {
    first.checked_sub(ANSWERS)
}

/// The word that is this token.
pub(crate) fn word(id: u32) -> String {
    format!("t{id}")
}

/// The tokens of a text.
pub(crate) fn ids_of(text: &str) -> Vec<u32> {
    text.split_whitespace().map(id_of).collect()
}

fn id_of(word: &str) -> u32 {
    let number = word.strip_prefix('t').and_then(|digits| digits.parse().ok());
    number.unwrap_or_else(|| {
        60_000 + word.bytes().fold(0, |sum: u32, byte| (sum * 31 + u32::from(byte)) % 9973)
    })
}
