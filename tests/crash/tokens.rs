//! Tokens that encode their origin: the trial of a prompt, and the answer of a sampled token.
//!
//! A word of text `t123` is token 123, and any other word is some token. So the agent's text, the upstream's answers
//! and the store's records can be compared.

/// Ends a message.
pub(crate) const END: u32 = 1;
/// The tokens that begin a message, by its role.
pub(crate) const SYSTEM: u32 = 2;
pub(crate) const USER: u32 = 3;
pub(crate) const ASSISTANT: u32 = 4;

/// Tokens of ordinary text.
pub(crate) const WORDS: std::ops::Range<u64> = 100..50_000;
/// The token that names trial 0. The next token names trial 1.
const TRIALS: u32 = 100_000_000;
/// The token that begins answer 0. The next token begins answer 1.
const ANSWERS: u32 = 1_000_000_000;

/// Returns the token that names a trial.
pub(crate) fn of_trial(number: u32) -> u32 {
    TRIALS + number
}

/// Returns the token that begins an answer.
pub(crate) fn of_answer(number: u32) -> u32 {
    ANSWERS + number
}

/// Returns the trial of this prompt.
pub(crate) fn trial_in(prompt: &[u32]) -> Option<u32> {
    prompt.iter().find(|&&id| (TRIALS..ANSWERS).contains(&id)).map(|id| id - TRIALS)
}

/// Returns the answer that begins with this token.
pub(crate) fn answer_at(first: u32) -> Option<u32> {
    first.checked_sub(ANSWERS)
}

/// Returns the word for this token.
pub(crate) fn word(id: u32) -> String {
    format!("t{id}")
}

/// Returns the tokens of a text.
pub(crate) fn ids_of(text: &str) -> Vec<u32> {
    text.split_whitespace().map(id_of).collect()
}

fn id_of(word: &str) -> u32 {
    let number = word.strip_prefix('t').and_then(|digits| digits.parse().ok());
    number.unwrap_or_else(|| {
        60_000 + word.bytes().fold(0, |sum: u32, byte| (sum * 31 + u32::from(byte)) % 9973)
    })
}
