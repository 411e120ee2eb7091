//! An answer that a conversation can continue, and the template's rendering of the prompt before it.

use std::sync::{Arc, OnceLock};

use rolltap_rollout::call::{Call, Choice};
use rolltap_rollout::continuation::AnswerRef;
use rolltap_rollout::token::TokenId;

use super::conversation::Link;
use super::fingerprint::Fingerprint;
use super::memory::Maker;

use super::request::PromptInputs;

/// One answer of a call, with the inputs of its prompt.
#[derive(Debug)]
pub(super) struct Node {
    call: Arc<Call>,
    /// The index in the call's list of choices.
    choice: usize,
    /// The messages that the prompt was rendered from, followed by the answer.
    pub(super) said: Arc<Link>,
    pub(super) inputs: Arc<PromptInputs>,
    /// Whether the server rendered the prompt from exactly these messages. Such a prompt is the template's.
    pub(super) is_of_server: bool,
    /// Whether the proxy spliced the prompt. Such a prompt is correct, whatever its ids.
    pub(super) is_trusted: bool,
    /// The template's rendering of the messages before the answer. Inner `None` if that rendering is not the server's
    /// prompt.
    pub(super) standing: OnceLock<Option<RenderedPrompt>>,
}

/// The template's rendering of a prompt that is known to be correct.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RenderedPrompt {
    /// The messages, without the generation prompt.
    pub(super) history: TextMark,
    /// The text that the generation prompt adds.
    pub(super) generation_prompt: Box<str>,
}

/// Recognises texts that begin with a certain text, without storing that text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextMark {
    /// The length of the text in bytes.
    pub(super) length: usize,
    fingerprint: Fingerprint,
}

impl Node {
    /// Creates the node of the answer at index `choice` in the call's choices.
    pub(super) fn new(
        call: Arc<Call>,
        choice: usize,
        said: Arc<Link>,
        inputs: Arc<PromptInputs>,
        maker: &Maker,
    ) -> Self {
        let standing = match maker {
            Maker::Server | Maker::HereBefore => OnceLock::new(),
            // The proxy cannot render such a prompt, so it is never proven.
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

    /// Returns the sampled ids.
    pub(super) fn sampled(&self) -> &[TokenId] {
        self.choice().map(|choice| choice.token_ids.as_slice()).unwrap_or_default()
    }

    pub(super) fn name(&self) -> AnswerRef {
        let index = self.choice().map(|choice| choice.index).unwrap_or_default();
        AnswerRef { call_id: self.call.call_id.clone(), choice: index }
    }

    /// Returns whether both answers are the same tokens after the same prompt.
    pub(super) fn has_tokens_of(&self, other: &Self) -> bool {
        self.sampled() == other.sampled() && self.call.prompt_token_ids == other.call.prompt_token_ids
    }
}

impl RenderedPrompt {
    /// Creates the rendering from a prompt's text without and with the generation prompt. `None` if the second text
    /// does not begin with the first.
    pub(super) fn of(history: &str, with_generation_prompt: &str) -> Option<Self> {
        let generation_prompt = with_generation_prompt.strip_prefix(history)?.into();
        Some(Self { history: TextMark::of(history), generation_prompt })
    }

    /// Derives the rendering of a later prompt that ends with the same generation prompt, which saves a rendering
    /// without it. The position of the cut does not matter, as long as both parts together are the prompt. `None` if
    /// the prompt has another end.
    pub(super) fn again(&self, with_generation_prompt: &str) -> Option<Self> {
        // Every text ends with an empty generation prompt, so an empty one shows nothing.
        let generation_prompt = Some(&self.generation_prompt).filter(|prompt| !prompt.is_empty())?;
        let history = with_generation_prompt.strip_suffix(&**generation_prompt)?;
        Some(Self { history: TextMark::of(history), generation_prompt: generation_prompt.clone() })
    }
}

impl TextMark {
    fn of(text: &str) -> Self {
        Self { length: text.len(), fingerprint: Fingerprint::of(text) }
    }

    /// Returns the text after the marked text, or `None` if `text` does not begin with the marked text.
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
