//! Builds the dictionary of a record: the [`DICTIONARY`] and the preceding text of its trial.
//!
//! An agent's turns are alike: the same files, names and tools. The reader already has the earlier records when it
//! reaches a record, so their words need not be stored again. The dictionary is built from earlier records alone, and
//! the writer and the reader build the same bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use rolltap_rollout::call::Call;
use rolltap_rollout::token::TokenId;

use super::content::DICTIONARY;
use super::varint::NumbersMut;

/// Dictionary bytes per byte of the body. Each byte of a dictionary takes time to load, so a short body gets a short
/// one.
const WORDS_PER_BYTE: usize = 8;
/// The maximum number of dictionary bytes from earlier records.
const MOST: usize = 64 << 10;
/// The maximum number of texts in a chain. To read a text, a reader needs all texts before it in the chain.
const LINKS: usize = 32;
/// The maximum number of bytes of a token id.
const LONGEST_ID: usize = 5;

/// Returns how many dictionary bytes a body of that length gets.
pub(crate) fn room(body: usize) -> usize {
    body.saturating_mul(WORDS_PER_BYTE).min(MOST)
}

/// Builds the dictionary for a text from the texts before it, newest first.
pub(crate) fn of_texts<'a>(newest_first: impl IntoIterator<Item = &'a str>, room: usize) -> Vec<u8> {
    let mut texts = Vec::new();
    let mut left = room;
    for text in newest_first {
        let text = text.as_bytes();
        // A text that does not fit loses its beginning: its end is nearest to the new text.
        let fits = text.get(text.len().saturating_sub(left)..).unwrap_or(text);
        texts.push(fits);
        left -= fits.len();
        if left == 0 {
            break;
        }
    }
    let mut words = DICTIONARY.to_vec();
    // The newest text comes last, where zstd reaches it with the shortest offsets.
    texts.iter().rev().for_each(|text| words.extend_from_slice(text));
    words
}

/// Builds the dictionary for the record of a call from the call that it builds on. It contains that call's JSON
/// (`small`), and the last ids of its prompt and answers.
pub(crate) fn of_call(small: &[u8], call: &Call, room: usize) -> Vec<u8> {
    let mut words = [DICTIONARY, small].concat();
    let answers: Vec<&[TokenId]> = call.choices.iter().map(|choice| choice.token_ids.as_slice()).collect();
    let sampled: usize = answers.iter().map(|ids| ids.len()).sum();
    // Every id counts with its maximum length, so the ids never exceed the room.
    let of_prompt = (room / LONGEST_ID).saturating_sub(sampled);
    let prompt = &call.prompt_token_ids;
    let mut put = |ids: &[TokenId]| ids.iter().for_each(|&id| words.put_number(u32::from(id).into()));
    let mut before = prompt.len().saturating_sub(of_prompt);
    for ids in prompt.slices() {
        put(ids.get(before..).unwrap_or_default());
        before = before.saturating_sub(ids.len());
    }
    let mut left = room / LONGEST_ID;
    for ids in answers {
        put(ids.get(..left).unwrap_or(ids));
        left = left.saturating_sub(ids.len());
    }
    words
}

/// The latest texts of a trial. Each is compressed with the texts before it as dictionary.
#[derive(Debug, Default)]
pub(crate) struct LatestTexts {
    texts: VecDeque<Arc<str>>,
    /// The length of all texts together.
    bytes: usize,
    /// The number of texts in the current chain.
    links: usize,
    /// The offset of the newest text in the segment.
    at: u64,
}

impl LatestTexts {
    /// Returns the offset of the newest text, and the dictionary for a text of that length. Returns `None` if the text
    /// begins a chain.
    pub(crate) fn words(&mut self, length: usize) -> Option<(u64, Vec<u8>)> {
        // A new chain begins, so that a reader never needs more than `LINKS` texts.
        if self.links >= LINKS {
            *self = Self::default();
        }
        let words = || of_texts(self.texts.iter().rev().map(|text| &**text), room(length));
        (!self.texts.is_empty()).then(|| (self.at, words()))
    }

    /// Adds a text that was written at that offset. A text that is not linked to the others begins a chain.
    pub(crate) fn add(&mut self, text: &Arc<str>, at: u64, is_linked: bool) {
        if !is_linked {
            *self = Self::default();
        }
        self.at = at;
        self.links += 1;
        self.bytes += text.len();
        self.texts.push_back(Arc::clone(text));
        // Older texts no longer fit into any dictionary.
        while let Some(oldest) = self.texts.front().filter(|oldest| self.bytes - oldest.len() >= MOST) {
            self.bytes -= oldest.len();
            self.texts.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn behind_dictionary(words: &[u8]) -> &str {
        std::str::from_utf8(words.strip_prefix(DICTIONARY).unwrap()).unwrap()
    }

    #[test]
    fn the_newest_words_are_kept_and_come_last() {
        assert_eq!(behind_dictionary(&of_texts(["newest", "older", "oldest"], 9)), "dernewest");
        assert_eq!(behind_dictionary(&of_texts(["newest"], 4)), "west");
        assert_eq!(behind_dictionary(&of_texts(["newest", "older"], 100)), "oldernewest");
    }

    #[test]
    fn a_text_needs_no_more_than_so_many_before_it() {
        let mut latest = LatestTexts::default();
        let text: Arc<str> = "word ".repeat(300).into();
        let mut linked = Vec::new();
        for at in 0..100 {
            let words = latest.words(text.len());
            linked.push(words.is_some());
            assert!(
                words
                    .is_none_or(|(newest, words)| newest == at - 1 && words.len() <= MOST + DICTIONARY.len())
            );
            latest.add(&text, at, linked[at as usize]);
        }
        let alone: Vec<_> = (0..100).filter(|&at| !linked[at]).collect();
        assert_eq!(alone, [0, 32, 64, 96]);
    }
}
