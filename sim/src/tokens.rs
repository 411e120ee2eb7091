//! The tokenizer: longest match over [`super::vocabulary`], exactly reversible for every text.
//!
//! Like real tokenizers, it is not stable at seams: the ids of a text are not the joined ids of its halves. It also
//! finds the marks of the chat template in every text.

use std::borrow::Cow;
use std::sync::LazyLock;

use super::vocabulary::{MARKS, PIECES};

/// The first id of the pieces, which follow the bytes. The marks follow the pieces.
const FIRST_PIECE: u32 = 256;
const FIRST_MARK: u32 = FIRST_PIECE + PIECES.len() as u32;

/// The number of tokens. Every id is smaller.
pub const VOCABULARY_SIZE: u32 = FIRST_MARK + MARKS.len() as u32;

/// The id of `<|im_end|>`, which ends a message and an answer.
pub const END_OF_TURN: u32 = FIRST_MARK + 2;

static BYTES: [u8; 256] = {
    let mut bytes = [0; 256];
    let mut index = 0;
    #[expect(clippy::indexing_slicing, reason = "evaluated at compile time, with the bound in sight")]
    while index < 256 {
        bytes[index] = index as u8;
        index += 1;
    }
    bytes
};

/// Returns the bytes of a token, or no bytes for an id outside the vocabulary.
pub(super) fn token_bytes(id: u32) -> &'static [u8] {
    let index = id as usize;
    if id < FIRST_PIECE {
        BYTES.get(index..=index).unwrap_or_default()
    } else if id < FIRST_MARK {
        PIECES.get(index - FIRST_PIECE as usize).map(|piece| piece.as_bytes()).unwrap_or_default()
    } else {
        MARKS.get(index - FIRST_MARK as usize).map(|(mark, _)| mark.as_bytes()).unwrap_or_default()
    }
}

/// Returns the text of a control token, which an answer's text never shows. `None` for all other tokens.
pub(super) fn control_text(id: u32) -> Option<&'static str> {
    let (mark, control) = MARKS.get(id.checked_sub(FIRST_MARK)? as usize)?;
    control.then_some(*mark)
}

/// Returns the control token that `text` contains, if any.
pub(super) fn control_in(text: &str) -> Option<&'static str> {
    MARKS.iter().find(|(mark, control)| *control && text.contains(mark)).map(|(mark, _)| *mark)
}

/// Returns the tokens of `text`. [`decode`] returns the text again.
pub fn encode(text: &str) -> Vec<u32> {
    let mut ids = Vec::with_capacity(text.len() / 3);
    let mut rest = text.as_bytes();
    while let Some((&first, _)) = rest.split_first() {
        // If no piece or mark starts here, the byte itself is the token.
        let (id, length) = TRIE.longest(rest).unwrap_or((u32::from(first), 1));
        ids.push(id);
        rest = rest.get(length..).unwrap_or_default();
    }
    ids
}

/// Returns the text of `ids`, including marks. Bytes that are not UTF-8 become U+FFFD.
pub fn decode(ids: &[u32]) -> String {
    let bytes: Vec<u8> = ids.iter().flat_map(|id| token_bytes(*id)).copied().collect();
    match String::from_utf8_lossy(&bytes) {
        Cow::Owned(text) => text,
        Cow::Borrowed(text) => text.to_owned(),
    }
}

/// Returns a token in the spelling of byte-level vocabularies (`Ġthe`): each byte is one printable character.
pub(super) fn printable(id: u32) -> String {
    token_bytes(id).iter().map(|byte| printable_byte(*byte)).collect()
}

/// Returns the character of a byte in GPT-2's table. Printable bytes represent themselves, and the others are numbered
/// from U+0100.
fn printable_byte(byte: u8) -> char {
    let prints = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if prints(byte) {
        return char::from(byte);
    }
    let rank = (0..byte).filter(|earlier| !prints(*earlier)).count() as u32;
    char::from_u32(0x100 + rank).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The pieces and marks by their bytes. Node 0 is the root. No edge leads back to the root, so 0 also means "no edge".
struct Trie {
    edges: Vec<[u16; 256]>,
    tokens: Vec<Option<u32>>,
}

static TRIE: LazyLock<Trie> = LazyLock::new(|| {
    let mut trie = Trie { edges: vec![[0; 256]], tokens: vec![None] };
    for id in FIRST_PIECE..VOCABULARY_SIZE {
        trie.insert(token_bytes(id), id);
    }
    trie
});

impl Trie {
    fn edge(&self, node: u16, byte: u8) -> u16 {
        self.edges.get(usize::from(node)).and_then(|edges| edges.get(usize::from(byte))).copied().unwrap_or(0)
    }

    fn insert(&mut self, bytes: &[u8], id: u32) {
        let mut node = 0;
        for byte in bytes {
            let mut next = self.edge(node, *byte);
            if next == 0 {
                // The trie has far fewer than 65,536 nodes.
                next = self.edges.len() as u16;
                self.edges.push([0; 256]);
                self.tokens.push(None);
                if let Some(edge) =
                    self.edges.get_mut(usize::from(node)).and_then(|edges| edges.get_mut(usize::from(*byte)))
                {
                    *edge = next;
                }
            }
            node = next;
        }
        if let Some(token) = self.tokens.get_mut(usize::from(node)) {
            *token = Some(id);
        }
    }

    /// Returns the longest piece or mark at the start of `bytes`, and its length.
    fn longest(&self, bytes: &[u8]) -> Option<(u32, usize)> {
        let mut node = 0;
        let mut found = None;
        for (index, byte) in bytes.iter().enumerate() {
            node = self.edge(node, *byte);
            if node == 0 {
                break;
            }
            if let Some(id) = self.tokens.get(usize::from(node)).copied().flatten() {
                found = Some((id, index + 1));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn vocabulary_is_sound() {
        let spellings: HashSet<&[u8]> = (0..VOCABULARY_SIZE).map(token_bytes).collect();
        assert_eq!(spellings.len(), VOCABULARY_SIZE as usize, "two tokens are spelled alike");
        assert!(spellings.iter().all(|bytes| !bytes.is_empty()));
        assert!(PIECES.iter().all(|piece| piece.len() > 1 && !piece.contains('<')));
        assert_eq!(control_text(END_OF_TURN), Some("<|im_end|>"));
        assert_eq!(token_bytes(VOCABULARY_SIZE), b"");
    }

    #[test]
    fn english_takes_clearly_fewer_tokens_than_bytes() {
        let text = "The task is to write a script that prints hello world. First look at the files in the current directory, \
                    then create the script and run the tests again before you say that the task is complete.";
        assert!(
            encode(text).len() * 5 < text.len() * 2,
            "{} tokens for {} bytes",
            encode(text).len(),
            text.len()
        );
    }

    #[test]
    fn marks_are_found_in_text_and_seams_matter() {
        assert_eq!(encode("a<|im_end|>b"), [97, END_OF_TURN, 98]);
        let (whole, halves) = (encode(" there"), [encode(" the"), encode("re")].concat());
        assert_ne!(whole, halves);
        assert_eq!(decode(&whole), decode(&halves));
    }

    #[test]
    fn printable_spelling_is_that_of_byte_level_vocabularies() {
        assert_eq!(encode(" the\n").into_iter().map(printable).collect::<Vec<_>>(), ["Ġthe", "Ċ"]);
        assert_eq!((0..=255).map(printable_byte).collect::<HashSet<_>>().len(), 256);
    }

    proptest! {
        #[test]
        fn every_text_comes_back(text in any::<String>()) {
            prop_assert_eq!(decode(&encode(&text)), text);
        }

        #[test]
        fn text_made_of_tokens_comes_back(ids in prop::collection::vec(0..VOCABULARY_SIZE, 0..64)) {
            let text = decode(&ids);
            prop_assert_eq!(decode(&encode(&text)), text);
        }
    }
}
