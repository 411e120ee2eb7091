//! Shares the token ids of prompts with a common beginning within a trial.
//!
//! vLLM sends all prompt ids of the conversation in each turn. If the text of the list begins like an earlier list, the
//! parsed ids of the common part are shared, and only the rest is parsed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use memchr::memchr_iter;
use rolltap_rollout::token_list::TokenList;

use super::lists::{NotAList, read_ids};

/// The maximum number of parallel conversations per trial. The least recently used one is evicted.
const CONVERSATIONS: usize = 3;

/// The memory budget for the texts of all trials, in bytes. Without budget a trial's prompts are parsed whole, which
/// costs time only.
const ROOM: usize = 64 << 20;

/// The bytes of texts that the trials of this process hold.
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// The prompts with which a trial's next prompts probably begin.
#[derive(Debug, Default)]
pub(crate) struct Prompts(Mutex<Vec<Known>>);

#[derive(Debug)]
struct Known {
    /// The list as vLLM wrote it, without the closing bracket.
    text: Vec<u8>,
    ids: TokenList,
}

impl Prompts {
    /// Parses the ids of a JSON array.
    pub(crate) fn read(&self, text: &str) -> Result<TokenList, NotAList> {
        let Some(open) = text.strip_suffix(']').map(str::as_bytes) else { return read_all(text) };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((shared, at)) = most_alike(&known, open) else {
            let ids = read_all(text)?;
            remember(&mut known, Known::new(open, ids.clone()));
            return Ok(ids);
        };
        let mut like = known.remove(at);
        let read = like.continued(open, shared);
        match read {
            Some(new) if shared == like.text.len() => {
                like.extend(open.get(shared..).unwrap_or_default(), new.clone());
                remember(&mut known, like);
                Ok(new)
            }
            Some(new) => {
                // A prompt that is a prefix of a known prompt shares all its ids, so it is not stored.
                let is_new = shared < open.len();
                remember(&mut known, like);
                if is_new {
                    remember(&mut known, Known::new(open, new.clone()));
                }
                Ok(new)
            }
            None => {
                remember(&mut known, like);
                read_all(text)
            }
        }
    }

    /// Drops all prompts. The trial is sealed and gets no further prompt.
    pub(crate) fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Vec::new();
    }
}

/// Finds the prompt with the longest common beginning, and its length in bytes. Newer prompts are tried first.
fn most_alike(known: &[Known], open: &[u8]) -> Option<(usize, usize)> {
    let mut best = None;
    for (at, known) in known.iter().enumerate().rev() {
        let shared = common_prefix(&known.text, open);
        if shared > best.map_or(1, |(most, _)| most) {
            best = Some((shared, at));
        }
        if shared == known.text.len() || shared == open.len() {
            break;
        }
    }
    best
}

impl Known {
    fn new(text: &[u8], ids: TokenList) -> Self {
        KEPT.fetch_add(text.len(), Ordering::Relaxed);
        Self { text: text.to_owned(), ids }
    }

    fn extend(&mut self, text: &[u8], ids: TokenList) {
        KEPT.fetch_add(text.len(), Ordering::Relaxed);
        // The capacity is trimmed, because the list lives as long as its trial is open.
        self.text.reserve_exact(text.len());
        self.text.extend_from_slice(text);
        self.ids = ids;
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        KEPT.fetch_sub(self.text.len(), Ordering::Relaxed);
    }
}

fn remember(known: &mut Vec<Known>, newest: Known) {
    if KEPT.load(Ordering::Relaxed) > ROOM {
        return;
    }
    if known.len() == CONVERSATIONS {
        known.remove(0);
    }
    known.push(newest);
}

fn read_all(text: &str) -> Result<TokenList, NotAList> {
    let mut ids = Vec::new();
    read_ids(text, &mut ids).map(|()| ids.into())
}

impl Known {
    /// Parses a text whose first `shared` bytes equal this one's. `None` if the text is not a plain list of ids.
    fn continued(&self, open: &[u8], shared: usize) -> Option<TokenList> {
        // An id is shared only if a comma follows it within the common part, or both texts end there.
        let ends_here = |text: &[u8]| text.get(shared).is_none_or(|&byte| byte == b',');
        let (end, rest) = if ends_here(&self.text) && ends_here(open) {
            (shared, open.get(shared..)?)
        } else {
            let end = memchr::memrchr(b',', open.get(..shared)?)?;
            (end, open.get(end..)?)
        };
        let beyond = memchr_iter(b',', self.text.get(end..)?).count();
        let mut ids = self.ids.prefix(self.ids.len().checked_sub(beyond)?);
        let Some(rest) = rest.strip_prefix(b",") else { return rest.is_empty().then_some(ids) };
        let mut new = Vec::new();
        read_ids(&format!("[{}]", std::str::from_utf8(rest).ok()?), &mut new).ok()?;
        if new.is_empty() {
            return None;
        }
        ids.extend_from_slice(&new);
        Some(ids)
    }
}

/// Returns the length of the common beginning in bytes.
fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    const STEP: usize = 512;
    let alike = a.chunks_exact(STEP).zip(b.chunks_exact(STEP)).take_while(|(a, b)| a == b).count() * STEP;
    let rest = a.iter().skip(alike).zip(b.iter().skip(alike)).take_while(|(a, b)| a == b);
    alike + rest.count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rolltap_rollout::token::TokenId;

    use super::*;

    fn by_serde(text: &str) -> Option<Vec<TokenId>> {
        serde_json::from_str(text).ok()
    }

    proptest! {
        #[test]
        fn prompts_that_share_their_beginning_are_read_as_if_alone(
            prompts in prop::collection::vec(r"\[(1{1,3},){0,3}(12?,){0,3}[0-9]{0,4}\]", 1..12),
        ) {
            let known = Prompts::default();
            for text in &prompts {
                let read = known.read(text).ok();
                prop_assert_eq!(read.map(|ids| ids.iter().copied().collect::<Vec<_>>()), by_serde(text), "{}", text);
            }
        }

        #[test]
        fn conversations_that_grow_side_by_side_are_read_as_if_alone(
            turns in prop::collection::vec((0..5_usize, prop::collection::vec(0..200_000_u32, 0..600)), 1..20),
        ) {
            let known = Prompts::default();
            let mut conversations = vec![vec![1_u32, 2, 3]; 5];
            for (which, more) in turns {
                conversations[which].extend(more);
                let text = serde_json::to_string(&conversations[which]).unwrap();
                prop_assert_eq!(known.read(&text).unwrap(), by_serde(&text).unwrap());
            }
        }

        #[test]
        fn arbitrary_text_never_panics(texts in prop::collection::vec(r"[\[\]0-9, a-c]{0,12}", 1..8)) {
            let known = Prompts::default();
            for text in &texts {
                prop_assert_eq!(known.read(text).ok().map(|ids| ids.len()), by_serde(text).map(|ids| ids.len()));
            }
        }
    }

    #[test]
    fn fuzz_prompts() {
        rolltap_testing::fuzz!("prompts", |texts| {
            let Ok(texts) = std::str::from_utf8(texts) else { return };
            let known = Prompts::default();
            for text in texts.lines() {
                let read = known.read(text).ok();
                assert_eq!(read.map(|ids| ids.iter().copied().collect::<Vec<_>>()), by_serde(text), "{text}");
            }
        });
    }
}
