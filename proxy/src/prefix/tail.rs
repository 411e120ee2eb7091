//! Finds the tail of an answer: the template's text from the end of the answer's turn to the end of the generation
//! prompt.
//!
//! Sentinels, words that no template knows, replace the answer in two conversations: the whole conversation, and the
//! part that ends with the answer. The text after the sentinel that both renderings share closes the answer's turn. The tail
//! begins at the last end token of that text, or after the text if it has no end token.
//!
//! This method never takes text of the new messages for a part of the answer's turn. This also holds for templates that
//! close some turns without an end token (DeepSeek V3, a single tool call). If the answer calls tools, the sentinel
//! replaces the arguments of the last call: no text of the policy follows it there. Templates that show no content
//! beside calls (Llama 3.1, Mistral) show arguments too.

use rolltap_rollout::token::TokenId;

use crate::render::RenderError;
use crate::render::renderer::{RenderInputs, RenderMessage, Renderer};

/// The words that replace an answer, one for each rendering.
const SENTINELS: [&str; 2] = ["rolltap-8d1f-sentinel-one", "rolltap-b3c6-sentinel-two"];

/// A conversation that continues after an answer, as the template reads it.
pub(super) struct FollowingTurn<'a> {
    /// All messages: those before the answer, the answer, and those after it.
    pub(super) messages: &'a [RenderMessage],
    /// The index of the answer.
    pub(super) answer: usize,
    pub(super) inputs: &'a RenderInputs,
}

/// The template's text after an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tail {
    /// The token that ends the answer's turn, or `None` if the template shows none.
    pub(super) end: Option<TokenId>,
    /// The text of the end token and all text after it, to the end of the generation prompt.
    pub(super) closing: String,
}

/// The reason why no tail was found.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoTail {
    #[error(transparent)]
    Render(#[from] RenderError),
    #[error("the template shows the answer {0} times")]
    Shown(usize),
    #[error("the template does not end the answer's turn with a token that is never split")]
    NoEndToken,
}

impl Tail {
    /// Finds the tail of a turn. `ends` are the tokens that end a turn.
    pub(super) fn find(
        renderer: &Renderer,
        turn: &FollowingTurn<'_>,
        ends: &[TokenId],
    ) -> Result<Self, NoTail> {
        match Self::behind(renderer, turn, ends, RenderMessage::with_argument) {
            // The answer calls no tools, or the template does not show the calls.
            None | Some(Err(NoTail::Shown(0))) => {
                let content = |answer: &RenderMessage, words: &str| Some(answer.with_content(words));
                Self::behind(renderer, turn, ends, content).unwrap_or(Err(NoTail::Shown(0)))
            }
            Some(found) => found,
        }
    }

    /// Returns the tail after the words that `put` inserts into the answer, or `None` if the answer has no place for
    /// them.
    fn behind(
        renderer: &Renderer,
        turn: &FollowingTurn<'_>,
        ends: &[TokenId],
        put: impl Fn(&RenderMessage, &str) -> Option<RenderMessage>,
    ) -> Option<Result<Self, NoTail>> {
        let answer = turn.messages.get(turn.answer)?;
        let [one, two] = SENTINELS;
        let (first, second) = (put(answer, one)?, put(answer, two)?);
        let rendered = || {
            let whole = renderer.render(&turn.with(first, turn.messages.len()), turn.inputs, true)?;
            let alone = renderer.render(&turn.with(second, turn.answer + 1), turn.inputs, false)?;
            Self::between(renderer, behind(whole.text(), one)?, behind(alone.text(), two)?, ends)
        };
        Some(rendered())
    }

    /// Finds the tail from the text after the answer, in the whole conversation and in the part that ends with
    /// the answer.
    fn between(renderer: &Renderer, whole: &str, alone: &str, ends: &[TokenId]) -> Result<Self, NoTail> {
        let shared = common_prefix(whole, alone);
        match last_end(renderer, shared, ends) {
            Some((at, end)) => {
                let closing = whole.get(at..).unwrap_or_default().to_owned();
                Ok(Self { end: Some(end), closing })
            }
            // No token ends the turn. Then the next turn must begin with a token that cannot merge with the answer.
            None if shared.len() == alone.len() => {
                let closing = whole.get(shared.len()..).unwrap_or_default();
                renderer.token_at_start(closing)?.ok_or(NoTail::NoEndToken)?;
                Ok(Self { end: None, closing: closing.to_owned() })
            }
            None => Err(NoTail::NoEndToken),
        }
    }
}

impl FollowingTurn<'_> {
    /// Returns the first `length` messages, with `answer` in place of the answer.
    fn with(&self, answer: RenderMessage, length: usize) -> Vec<RenderMessage> {
        let mut messages = self.messages.get(..length).unwrap_or(self.messages).to_vec();
        if let Some(place) = messages.get_mut(self.answer) {
            *place = answer;
        }
        messages
    }
}

/// Returns the token that the template puts after a plain answer, for templates whose tokenizer does not name it.
pub(super) fn usual_end(renderer: &Renderer) -> Result<Option<TokenId>, RenderError> {
    let message =
        |role: &str, content: &str| renderer.message(&serde_json::json!({"role": role, "content": content}));
    let [one, _] = SENTINELS;
    let inputs = renderer.inputs(&crate::render::RequestInputs::default())?;
    let conversation = [message("user", "hi")?, message("assistant", one)?];
    let rendering = renderer.render(&conversation, &inputs, false)?;
    let Ok(closing) = behind(rendering.text(), one) else { return Ok(None) };
    renderer.token_at_start(closing.trim_start())
}

/// Returns the text after the only occurrence of `words`. Fails if the words occur never or more than once.
fn behind<'a>(text: &'a str, words: &str) -> Result<&'a str, NoTail> {
    let shown = text.matches(words).count();
    match text.split_once(words) {
        Some((_, behind)) if shown == 1 => Ok(behind),
        _ => Err(NoTail::Shown(shown)),
    }
}

/// Returns the last end token in a text and its byte offset.
fn last_end(renderer: &Renderer, text: &str, ends: &[TokenId]) -> Option<(usize, TokenId)> {
    text.char_indices().rev().find_map(|(at, _)| {
        let token = renderer.known_at_start(text.get(at..)?)?;
        ends.contains(&token).then_some((at, token))
    })
}

fn common_prefix<'a>(a: &'a str, b: &str) -> &'a str {
    let shared = a.char_indices().zip(b.chars()).find(|((_, a), b)| a != b).map(|((at, _), _)| at);
    a.get(..shared.unwrap_or(a.len().min(b.len()))).unwrap_or_default()
}
