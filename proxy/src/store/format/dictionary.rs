//! What a record is compressed with in mind beside the [`DICTIONARY`]: what its trial said just before it.
//!
//! An agent's turns are alike: the same files, names and tools. Words that the reader has in hand when it comes to a record
//! need not be written again. They are made of earlier records alone, byte for byte the same on both ways.

use std::collections::VecDeque;
use std::sync::Arc;

use rolltap_rollout::call::Call;
use rolltap_rollout::token::TokenId;

use super::content::DICTIONARY;
use super::varint::NumbersMut;

/// Reading words in costs time for each byte, so a record gets so many for each of its own, ...
const WORDS_PER_BYTE: usize = 8;
/// ... and never more than this.
const MOST: usize = 64 << 10;
/// A text needs those before it to be read; so many at most.
const LINKS: usize = 32;
/// No id takes more bytes.
const LONGEST_ID: usize = 5;

/// How many bytes of words a body of that length gets.
pub(crate) fn room(body: usize) -> usize {
    body.saturating_mul(WORDS_PER_BYTE).min(MOST)
}

/// The words for a text, of the texts before it, the newest one first.
pub(crate) fn of_texts<'a>(newest_first: impl IntoIterator<Item = &'a str>, room: usize) -> Vec<u8> {
    let mut texts = Vec::new();
    let mut left = room;
    for text in newest_first {
        let text = text.as_bytes();
        let fits = text.get(text.len().saturating_sub(left)..).unwrap_or(text);
        texts.push(fits);
        left -= fits.len();
        if left == 0 {
            break;
        }
    }
    let mut words = DICTIONARY.to_vec();
    texts.iter().rev().for_each(|text| words.extend_from_slice(text));
    words
}

/// The words for the record of a call, of the one that it builds on: what is `small` in that one, and the last ids of its
/// prompt and its answers.
pub(crate) fn of_call(small: &[u8], call: &Call, room: usize) -> Vec<u8> {
    let mut words = [DICTIONARY, small].concat();
    let answers: Vec<&[TokenId]> = call.choices.iter().map(|choice| choice.token_ids.as_slice()).collect();
    let sampled: usize = answers.iter().map(|ids| ids.len()).sum();
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

/// The latest texts of a trial, each of them written with those before it in mind.
#[derive(Debug, Default)]
pub(crate) struct LatestTexts {
    texts: VecDeque<Arc<str>>,
    /// Of all of them together.
    bytes: usize,
    /// Texts since one was written by itself.
    links: usize,
    /// Where the newest lies.
    at: u64,
}

impl LatestTexts {
    /// Where the newest lies, and the words for a text of that length. None where it is written by itself.
    pub(crate) fn words(&mut self, length: usize) -> Option<(u64, Vec<u8>)> {
        if self.links >= LINKS {
            *self = Self::default();
        }
        let words = || of_texts(self.texts.iter().rev().map(|text| &**text), room(length));
        (!self.texts.is_empty()).then(|| (self.at, words()))
    }

    /// A text was written there: with the others in mind, or by itself, so that those after it need no others.
    pub(crate) fn add(&mut self, text: &Arc<str>, at: u64, is_linked: bool) {
        if !is_linked {
            *self = Self::default();
        }
        self.at = at;
        self.links += 1;
        self.bytes += text.len();
        self.texts.push_back(Arc::clone(text));
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
