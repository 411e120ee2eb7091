//! A long list of token ids that shares its beginning with other lists.
//!
//! Each turn of an agent repeats the conversation so far. The ids are in chunks that lists share, so the prompts of a
//! trial need memory for their new tokens only, and not for turns × context.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::mem::size_of;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::token::TokenId;

/// Ids in a shared chunk (4 KiB). The unshared rest of a list stays small compared with a prompt.
const CHUNK: usize = 1024;

/// A list of token ids. It is cheap to clone, and cheap to build on the beginning of another list
/// ([`TokenList::prefix`]).
#[derive(Clone, Default)]
pub struct TokenList {
    /// Chunks of exactly [`CHUNK`] ids.
    full: Vec<Arc<[TokenId]>>,
    /// The last ids, fewer than [`CHUNK`]. Clones share them until one is extended.
    rest: Arc<Vec<TokenId>>,
}

impl TokenList {
    /// Returns an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of ids.
    pub fn len(&self) -> usize {
        self.full.len() * CHUNK + self.rest.len()
    }

    /// Whether the list has no ids.
    pub fn is_empty(&self) -> bool {
        self.full.is_empty() && self.rest.is_empty()
    }

    /// Returns the id at `index`.
    pub fn get(&self, index: usize) -> Option<&TokenId> {
        match self.full.get(index / CHUNK) {
            Some(chunk) => chunk.get(index % CHUNK),
            None => self.rest.get(index.checked_sub(self.full.len() * CHUNK)?),
        }
    }

    /// Iterates over the ids in order.
    pub fn iter(&self) -> impl Iterator<Item = &TokenId> {
        self.slices().flatten()
    }

    /// Iterates over the ids from `start` to the end.
    pub fn iter_from(&self, start: usize) -> impl Iterator<Item = &TokenId> {
        let begun = self.full.get(start / CHUNK).map_or(self.rest.as_slice(), Arc::as_ref);
        let first = (start / CHUNK).min(self.full.len());
        let begun = begun.get(start - first * CHUNK..).unwrap_or_default();
        begun.iter().chain(self.slices().skip(first + 1).flatten())
    }

    /// Iterates over the ids in order, in slices of any length.
    pub fn slices(&self) -> impl Iterator<Item = &[TokenId]> {
        self.full.iter().map(Arc::as_ref).chain([self.rest.as_slice()])
    }

    /// Returns the first `length` ids, or all if there are fewer. The result shares memory with this list.
    #[must_use]
    pub fn prefix(&self, length: usize) -> Self {
        if length >= self.len() {
            return self.clone();
        }
        let whole = length / CHUNK;
        let begun = self.full.get(whole).map_or(self.rest.as_slice(), Arc::as_ref);
        Self {
            full: self.full.get(..whole).unwrap_or_default().to_vec(),
            rest: Arc::new(begun.get(..length % CHUNK).unwrap_or_default().to_vec()),
        }
    }

    /// Returns the number of leading ids that are equal in both lists.
    pub fn common_prefix(&self, other: &Self) -> usize {
        // Two prompts of one trial mostly share chunks. Equal pointers save the comparison of their ids.
        let alike =
            self.full.iter().zip(&other.full).take_while(|(a, b)| Arc::ptr_eq(a, b) || a == b).count();
        let (rest, other_rest) = (self.slices().nth(alike), other.slices().nth(alike));
        alike * CHUNK + common_prefix(rest.unwrap_or_default(), other_rest.unwrap_or_default())
    }

    /// Whether the list begins with all ids of `beginning`.
    pub fn starts_with(&self, beginning: &Self) -> bool {
        self.common_prefix(beginning) == beginning.len()
    }

    /// Appends ids.
    pub fn extend_from_slice(&mut self, ids: &[TokenId]) {
        // `rest` always has fewer than `CHUNK` ids, so there is room for at least one.
        let Some((fits, more)) = ids.split_at_checked(CHUNK - self.rest.len()) else {
            let rest = Arc::make_mut(&mut self.rest);
            // Exactly, because most lists are extended once, and then live as long as their trial.
            rest.reserve_exact(ids.len());
            rest.extend_from_slice(ids);
            return;
        };
        let (chunks, rest) = more.as_chunks::<CHUNK>();
        self.full.reserve_exact(1 + chunks.len());
        self.full.push(self.rest.iter().chain(fits).copied().collect());
        self.full.extend(chunks.iter().map(|chunk| Arc::from(chunk.as_slice())));
        self.rest = Arc::new(rest.to_vec());
    }
}

/// The memory that several lists use together. A chunk or a rest in several lists counts once.
#[derive(Debug, Default)]
pub struct Footprint {
    /// The addresses of the counted chunks and rests.
    counted: HashSet<usize>,
    bytes: usize,
}

impl Footprint {
    /// Counts one more list. Each counted list must outlive this value. Otherwise a new chunk may get the address of a
    /// freed one and not be counted.
    pub fn add(&mut self, list: &TokenList) {
        for chunk in &list.full {
            self.bytes += size_of::<Arc<[TokenId]>>();
            if self.counted.insert(chunk.as_ptr().addr()) {
                self.bytes += size_of::<[TokenId; CHUNK]>();
            }
        }
        if self.counted.insert(Arc::as_ptr(&list.rest).addr()) {
            self.bytes += size_of_val(list.rest.as_slice());
        }
    }

    /// The sum in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Returns the number of leading ids that are equal in both slices.
pub fn common_prefix(a: &[TokenId], b: &[TokenId]) -> usize {
    // Equal prompts share their memory.
    if std::ptr::eq(a, b) {
        return a.len();
    }
    // All ids of a block are compared, because the compiler then compares several at once.
    const BLOCK: usize = 16;
    let is_equal = |(a, b): &(&[TokenId; BLOCK], &[TokenId; BLOCK])| {
        a.iter().zip(b.iter()).fold(true, |so_far, (a, b)| so_far & (a == b))
    };
    let blocks = a.as_chunks().0.iter().zip(b.as_chunks().0).take_while(is_equal).count() * BLOCK;
    let rest = a.iter().skip(blocks).zip(b.iter().skip(blocks));
    blocks + rest.take_while(|(a, b)| a == b).count()
}

impl From<Vec<TokenId>> for TokenList {
    fn from(mut ids: Vec<TokenId>) -> Self {
        // A short list has no chunk, so its vector is used without a copy.
        if ids.len() < CHUNK {
            ids.shrink_to_fit();
            return Self { full: Vec::new(), rest: Arc::new(ids) };
        }
        let mut list = Self::default();
        list.extend_from_slice(&ids);
        list
    }
}

impl FromIterator<TokenId> for TokenList {
    fn from_iter<I: IntoIterator<Item = TokenId>>(ids: I) -> Self {
        ids.into_iter().collect::<Vec<_>>().into()
    }
}

impl PartialEq for TokenList {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.common_prefix(other) == self.len()
    }
}

impl PartialEq<Vec<TokenId>> for TokenList {
    fn eq(&self, other: &Vec<TokenId>) -> bool {
        self.len() == other.len() && self.iter().eq(other)
    }
}

impl fmt::Debug for TokenList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl JsonSchema for TokenList {
    // A list of ids in each place rather than one definition: no reader needs to know how the list is held in memory.
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Vec::<TokenId>::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Vec::<TokenId>::json_schema(generator)
    }
}

impl Serialize for TokenList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeSeq;
        let mut list = serializer.serialize_seq(Some(self.len()))?;
        for id in self.iter() {
            list.serialize_element(id)?;
        }
        list.end()
    }
}

impl<'de> Deserialize<'de> for TokenList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Ids;
        impl<'de> Visitor<'de> for Ids {
            type Value = TokenList;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of token ids")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<TokenList, A::Error> {
                // The size hint comes from the input, so it must not decide an allocation without a bound.
                let mut ids = Vec::with_capacity(items.size_hint().unwrap_or(0).min(CHUNK));
                while let Some(id) = items.next_element()? {
                    ids.push(id);
                }
                Ok(ids.into())
            }
        }
        deserializer.deserialize_seq(Ids)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ids(seed: u32, length: usize) -> Vec<TokenId> {
        (0..length as u32).map(|i| TokenId::try_from(i.wrapping_mul(seed) % 1000).unwrap()).collect()
    }

    #[test]
    fn a_prefix_shares_its_whole_chunks() {
        let list = TokenList::from(ids(7, 5000));
        let prefix = list.prefix(3000);
        assert!(Arc::ptr_eq(&list.full[1], &prefix.full[1]));
        assert_eq!((prefix.full.len(), prefix.len()), (2, 3000));
    }

    #[test]
    fn a_clone_shares_its_memory_until_it_is_extended() {
        let list = TokenList::from(ids(7, 1500));
        let mut longer = list.prefix(1500);
        assert!(Arc::ptr_eq(&list.rest, &longer.rest));
        longer.extend_from_slice(&ids(3, 10));
        assert_eq!((list.len(), longer.len(), longer.rest.capacity()), (1500, 1510, 486));
        assert!(longer.starts_with(&list));
    }

    #[test]
    fn chunks_in_common_are_counted_once() {
        let list = TokenList::from(ids(7, 5000));
        let (mut longer, other) = (list.prefix(4096), TokenList::from(ids(7, 5000)));
        longer.extend_from_slice(&ids(3, 1024));
        let sum_of = |lists: &[&TokenList]| {
            let mut footprint = Footprint::default();
            lists.iter().for_each(|list| footprint.add(list));
            footprint.bytes()
        };
        let (chunk, pointer) = (CHUNK * size_of::<TokenId>(), size_of::<Arc<[TokenId]>>());
        let alone = 4 * (chunk + pointer) + 904 * size_of::<TokenId>();
        assert_eq!(sum_of(&[&list]), alone);
        assert_eq!(sum_of(&[&list, &list.clone()]), alone + 4 * pointer);
        assert_eq!(sum_of(&[&list, &longer]), alone + chunk + 5 * pointer);
        assert_eq!(sum_of(&[&list, &other]), 2 * alone, "equal ids in memory of their own");
    }

    proptest! {
        #[test]
        fn a_list_is_its_ids(parts in prop::collection::vec(0..2500_usize, 0..5), cut in 0..6000_usize) {
            let whole = ids(7, parts.iter().sum());
            let mut list = TokenList::new();
            let mut from = 0;
            for part in parts {
                list.extend_from_slice(&whole[from..from + part]);
                from += part;
            }
            prop_assert_eq!(&list, &whole);
            prop_assert_eq!(&list, &TokenList::from(whole.clone()));
            prop_assert_eq!(list.get(cut), whole.get(cut));
            prop_assert!(list.iter_from(cut).eq(whole.iter().skip(cut)));
            let prefix = list.prefix(cut);
            prop_assert_eq!(&prefix, &whole[..cut.min(whole.len())].to_vec());
            prop_assert_eq!(prefix.common_prefix(&list), prefix.len());
            let json = serde_json::to_string(&list).unwrap();
            prop_assert_eq!(&json, &serde_json::to_string(&whole).unwrap());
            prop_assert_eq!(serde_json::from_str::<TokenList>(&json).unwrap(), list);
        }

        #[test]
        fn the_first_difference_is_found(length in 1..4000_usize, at in any::<prop::sample::Index>(), longer in 0..1200_usize) {
            let one = ids(7, length);
            let mut other = ids(7, length + longer);
            let at = at.index(length);
            other[at] = TokenId::try_from(5000).unwrap();
            prop_assert_eq!(TokenList::from(one).common_prefix(&other.into()), at);
        }
    }
}
