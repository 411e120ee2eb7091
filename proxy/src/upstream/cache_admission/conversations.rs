//! The tokens that the calls of a trial left in the KV cache.

use rolltap_rollout::token::TokenId;
use rolltap_rollout::token_list::TokenList;

/// The number of conversations that count. A trial with more of them has sub-agents, whose conversations end soon.
const MOST: usize = 3;

/// The latest conversations of a trial: the prompt and the answer of the last call of each. The lists share their chunks with
/// those of the trial's memory.
#[derive(Debug, Default)]
pub(in crate::upstream) struct Conversations {
    /// The least recently used one comes first.
    latest: Vec<TokenList>,
}

impl Conversations {
    /// Adds a call. Returns the number of tokens with which its prompt and an earlier conversation begin.
    pub(in crate::upstream) fn add(&mut self, prompt: &TokenList, answer: &[TokenId]) -> usize {
        let shared = |(at, earlier): (usize, &TokenList)| (prompt.common_prefix(earlier), at);
        let (known, at) = self.latest.iter().enumerate().map(shared).max().unwrap_or_default();
        // A call that has most of an earlier conversation continues it, even if the agent or the template has changed its end.
        let continues = self.latest.get(at).is_some_and(|earlier| known > earlier.len() / 2);
        if continues {
            self.latest.remove(at);
        } else if self.latest.len() >= MOST {
            self.latest.remove(0);
        }
        let mut whole = prompt.clone();
        whole.extend_from_slice(answer);
        self.latest.push(whole);
        known
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tokens(ids: impl IntoIterator<Item = u32>) -> Vec<TokenId> {
        ids.into_iter().map(|id| TokenId::try_from(id).unwrap()).collect()
    }

    fn list(ids: impl IntoIterator<Item = u32>) -> TokenList {
        let mut list = TokenList::new();
        list.extend_from_slice(&tokens(ids));
        list
    }

    #[test]
    fn a_prompt_has_the_tokens_of_the_call_before_it() {
        let mut conversations = Conversations::default();
        assert_eq!(conversations.add(&list(0..100), &tokens(100..110)), 0);
        assert_eq!(conversations.add(&list(0..150), &tokens(150..160)), 110);
        // The template has rewritten the answer.
        assert_eq!(conversations.add(&list((0..150).chain(500..540)), &tokens([1])), 150);
        assert_eq!(conversations.latest.len(), 1);
    }

    #[test]
    fn conversations_that_alternate_are_all_known() {
        let mut conversations = Conversations::default();
        for start in [1000, 2000, 3000] {
            conversations.add(&list(start..start + 50), &tokens([7]));
        }
        assert_eq!(conversations.add(&list(1000..1070), &tokens([7])), 50);
        assert_eq!(conversations.add(&list(2000..2070), &tokens([7])), 50);
        // A fourth one displaces the least recently used one.
        conversations.add(&list(4000..4050), &tokens([7]));
        assert_eq!(conversations.add(&list(3000..3070), &tokens([7])), 0);
    }

    proptest! {
        #[test]
        fn no_more_is_known_than_the_prompt_has(
            calls in prop::collection::vec((prop::collection::vec(0_u32..3, 0..9), prop::collection::vec(0_u32..3, 0..4)), 0..20),
        ) {
            let mut conversations = Conversations::default();
            for (prompt, answer) in calls {
                let known = conversations.add(&list(prompt.iter().copied()), &tokens(answer));
                prop_assert!(known <= prompt.len() && conversations.latest.len() <= MOST);
            }
        }
    }
}
