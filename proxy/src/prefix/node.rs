//! An answer that a conversation can go on from, and how the template stands to what came before it.

use std::sync::{Arc, OnceLock};

use rolltap_rollout::call::{Call, Choice};
use rolltap_rollout::continuation::AnswerRef;
use rolltap_rollout::token::TokenId;

use super::conversation::Link;
use super::fingerprint::Fingerprint;
use super::memory::Maker;

use super::request::PromptInputs;

/// One answer of a call, with what its prompt was made of.
#[derive(Debug)]
pub(super) struct Node {
    call: Arc<Call>,
    /// Its place in the call's list of choices.
    choice: usize,
    /// The messages that the prompt was rendered from, and the answer behind them.
    pub(super) said: Arc<Link>,
    pub(super) inputs: Arc<PromptInputs>,
    /// The server made the prompt of the messages, so it is what the template makes of them.
    pub(super) is_of_server: bool,
    /// The prompt is known to be right, whatever its ids: it was put together here.
    pub(super) is_trusted: bool,
    /// How the template renders the messages before the answer; none inside where that is not what the server did.
    pub(super) standing: OnceLock<Option<RenderedPrompt>>,
}

/// How the template renders a prompt that is known to be right.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RenderedPrompt {
    /// The messages, without generation prompt.
    pub(super) history: TextMark,
    /// What the generation prompt adds.
    pub(super) generation_prompt: Box<str>,
}

/// Recognises a text that another one begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextMark {
    /// In bytes.
    pub(super) length: usize,
    fingerprint: Fingerprint,
}

impl Node {
    /// The answer at that place in the call's choices.
    pub(super) fn new(
        call: Arc<Call>,
        choice: usize,
        said: Arc<Link>,
        inputs: Arc<PromptInputs>,
        maker: &Maker,
    ) -> Self {
        let standing = match maker {
            Maker::Server | Maker::HereBefore => OnceLock::new(),
            Maker::ServerOtherwise => OnceLock::from(None),
            Maker::Here(standing) => OnceLock::from(standing.clone()),
        };
        let is_of_server = matches!(maker, Maker::Server);
        let is_trusted = matches!(maker, Maker::Here(_) | Maker::HereBefore);
        Self { call, choice, said, inputs, is_of_server, is_trusted, standing }
    }

    pub(super) fn call(&self) -> &Call {
        &self.call
    }

    pub(super) fn choice(&self) -> Option<&Choice> {
        self.call.choices.get(self.choice)
    }

    /// What was sampled.
    pub(super) fn sampled(&self) -> &[TokenId] {
        self.choice().map(|choice| choice.token_ids.as_slice()).unwrap_or_default()
    }

    pub(super) fn name(&self) -> AnswerRef {
        let index = self.choice().map(|choice| choice.index).unwrap_or_default();
        AnswerRef { call_id: self.call.call_id.clone(), choice: index }
    }

    /// Whether both answers are the same tokens behind the same prompt.
    pub(super) fn has_tokens_of(&self, other: &Self) -> bool {
        self.sampled() == other.sampled() && self.call.prompt_token_ids == other.call.prompt_token_ids
    }
}

impl RenderedPrompt {
    /// Of a prompt's rendering without and with generation prompt. None where the one does not begin with the other.
    pub(super) fn of(history: &str, with_generation_prompt: &str) -> Option<Self> {
        let generation_prompt = with_generation_prompt.strip_prefix(history)?.into();
        Some(Self { history: TextMark::of(history), generation_prompt })
    }

    /// Of a later prompt that ends with the same generation prompt, which saves a rendering without it. Where both are cut
    /// apart does not matter, as long as they are the prompt together.
    pub(super) fn again(&self, with_generation_prompt: &str) -> Option<Self> {
        let generation_prompt = Some(&self.generation_prompt).filter(|prompt| !prompt.is_empty())?;
        let history = with_generation_prompt.strip_suffix(&**generation_prompt)?;
        Some(Self { history: TextMark::of(history), generation_prompt: generation_prompt.clone() })
    }
}

impl TextMark {
    fn of(text: &str) -> Self {
        Self { length: text.len(), fingerprint: Fingerprint::of(text) }
    }

    /// What stands behind the marked text; none where the text does not begin with it.
    pub(super) fn behind<'a>(&self, text: &'a str) -> Option<&'a str> {
        let (start, rest) = text.split_at_checked(self.length)?;
        (Fingerprint::of(start) == self.fingerprint).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_knows_its_text_and_no_other() {
        let standing = RenderedPrompt::of("history", "history<prompt>").unwrap();
        assert_eq!(&*standing.generation_prompt, "<prompt>");
        assert_eq!(standing.history.behind("history and more"), Some(" and more"));
        assert_eq!(standing.history.behind("History and more"), None);
        assert_eq!(standing.history.behind("hist"), None);
        assert_eq!(standing.history.behind("histor\u{e9}"), None);
        assert_eq!(RenderedPrompt::of("other", "history<prompt>"), None);
        let later = standing.again("history and more<prompt>").unwrap();
        assert_eq!(later.history.behind("history and more and more"), Some(" and more"));
        assert_eq!((standing.again("history and more"), later.again("history<prompt>x")), (None, None));
    }
}
