//! Where a template goes on after an answer: the text that stands between the end of that turn and the end of the
//! generation prompt.
//!
//! It is found with words that no template knows in the place of the answer: what follows them in the whole conversation,
//! and what follows other such words where the answer is the last message. What both have in common closes the answer's
//! turn; the tail is what comes behind it. Text of the new messages cannot be taken for part of the turn that way, also
//! not by templates that close some turns without an end token (DeepSeek V3, a single tool call). Of an answer that calls
//! tools, the words stand in the arguments of the last call: nothing that the policy wrote comes behind them, and templates
//! that show no content beside calls (Llama 3.1, Mistral) show them too.

use rolltap_rollout::token::TokenId;

use crate::render::RenderError;
use crate::render::renderer::{RenderInputs, RenderMessage, Renderer};

/// In the place of an answer.
const SENTINELS: [&str; 2] = ["rolltap-8d1f-sentinel-one", "rolltap-b3c6-sentinel-two"];

/// A conversation that goes on after an answer, as the template reads it.
pub(super) struct FollowingTurn<'a> {
    /// All messages: those before the answer, the answer, those after it.
    pub(super) messages: &'a [RenderMessage],
    /// Which of them is the answer.
    pub(super) answer: usize,
    pub(super) inputs: &'a RenderInputs,
}

/// What comes after an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tail {
    /// The token that ends the answer's turn; none where the template shows none.
    pub(super) end: Option<TokenId>,
    /// Its text and what follows it, to the end of the generation prompt.
    pub(super) closing: String,
}

/// Why no tail was found.
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
    /// The tail of a turn. `ends` says which tokens end one.
    pub(super) fn find(
        renderer: &Renderer,
        turn: &FollowingTurn<'_>,
        ends: &[TokenId],
    ) -> Result<Self, NoTail> {
        match Self::behind(renderer, turn, ends, RenderMessage::with_argument) {
            // No calls, or none that the template shows.
            None | Some(Err(NoTail::Shown(0))) => {
                let content = |answer: &RenderMessage, words: &str| Some(answer.with_content(words));
                Self::behind(renderer, turn, ends, content).unwrap_or(Err(NoTail::Shown(0)))
            }
            Some(found) => found,
        }
    }

    /// What comes behind words that `put` puts into the answer; none where it has no place for them.
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

    /// Of what follows the answer in the whole conversation, and what follows it where it is the last message.
    fn between(renderer: &Renderer, whole: &str, alone: &str, ends: &[TokenId]) -> Result<Self, NoTail> {
        let shared = common_prefix(whole, alone);
        match last_end(renderer, shared, ends) {
            Some((at, end)) => {
                let closing = whole.get(at..).unwrap_or_default().to_owned();
                Ok(Self { end: Some(end), closing })
            }
            // Nothing ends the turn; then the next must begin with a token that cannot grow together with the answer.
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
    /// The first `length` messages, with another answer.
    fn with(&self, answer: RenderMessage, length: usize) -> Vec<RenderMessage> {
        let mut messages = self.messages.get(..length).unwrap_or(self.messages).to_vec();
        if let Some(place) = messages.get_mut(self.answer) {
            *place = answer;
        }
        messages
    }
}

/// The token that the template puts behind a plain answer, for templates whose tokenizer does not say which one it is.
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

/// What stands behind the only occurrence of `words`.
fn behind<'a>(text: &'a str, words: &str) -> Result<&'a str, NoTail> {
    let shown = text.matches(words).count();
    match text.split_once(words) {
        Some((_, behind)) if shown == 1 => Ok(behind),
        _ => Err(NoTail::Shown(shown)),
    }
}

/// The last end token in a text: where it begins, and which one.
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
