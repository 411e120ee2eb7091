//! Composes a prompt from token ids: the ids of an earlier prompt, the sampled ids, and the tail that the template puts
//! after them.

use std::sync::Arc;

use rolltap_rollout::branch_cause::BranchCause;
use rolltap_rollout::continuation::Class;
use rolltap_rollout::token::TokenId;
use rolltap_rollout::token_list::TokenList;

use super::classify::class_of;
use super::message::StoredMessage;
use super::node::{Node, RenderedPrompt};
use super::request::PromptInputs;
use super::tail::{FollowingTurn, NoTail, Tail};
use crate::common::history::History;
use crate::render::RenderError;
use crate::render::renderer::{self, Renderer, Rendering};

/// A prompt that begins with the tokens that the policy saw and sampled.
#[derive(Debug)]
pub(super) struct Spliced {
    pub(super) ids: TokenList,
    pub(super) class: Class,
    /// The template's rendering of the conversation, for the next turn.
    pub(super) standing: Option<RenderedPrompt>,
}

/// The reason why a prompt was not spliced.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unspliced {
    pub(super) cause: BranchCause,
    pub(super) class: Option<Class>,
    /// The text for the log.
    pub(super) reason: String,
}

/// The renderer and the settings of a splice.
pub(super) struct Splicer<'a> {
    pub(super) renderer: &'a Renderer,
    /// The tokens that end a turn.
    pub(super) ends: &'a [TokenId],
    pub(super) history: History,
}

impl Splicer<'_> {
    /// Composes the prompt that continues `node` with the messages `new`.
    pub(super) fn splice(&self, node: &Node, new: &[Arc<StoredMessage>]) -> Result<Spliced, Unspliced> {
        let standing =
            self.standing(node).map_err(unrendered)?.as_ref().ok_or_else(|| {
                unproven("the prompt before it is not what the template makes of its messages")
            })?;
        let inputs = node.inputs.rendered(self.renderer).map_err(unrendered)?;
        let mut messages = self.rendered(&node.said.messages())?;
        let answer = messages.len().saturating_sub(1);
        messages.extend(self.rendered(new)?);
        let turn = FollowingTurn { messages: &messages, answer, inputs: &inputs };
        let tail = Tail::find(self.renderer, &turn, self.ends).map_err(no_tail)?;
        let whole = self.renderer.render(&messages, &inputs, true).map_err(unrendered)?;
        let class = self.class(node, standing, &tail, whole.text())?;
        if self.history == History::Faithful && class == Class::Rewritten {
            return Err(rewritten(node));
        }
        let ids = self.ids(node, &tail, &whole)?;
        // The prompt usually ends with the same generation prompt, which saves another rendering.
        let standing = match standing.again(whole.text()) {
            Some(standing) => Some(standing),
            None => {
                let history = self.renderer.render(&messages, &inputs, false).map_err(unrendered)?;
                RenderedPrompt::of(history.text(), whole.text())
            }
        };
        Ok(Spliced { ids, class, standing })
    }

    /// Returns the template's rendering of the messages before an answer, proven by the ids of the server's prompt. The
    /// error of a local rendering is returned once: afterwards the prompt is known as unproven.
    pub(super) fn standing<'n>(&self, node: &'n Node) -> Result<&'n Option<RenderedPrompt>, RenderError> {
        if !self.renderer.asks() {
            let mut failure = None;
            // A local rendering gives the same result each time, so a failure is stored as unproven.
            let unproven = |error| {
                failure = Some(error);
                None
            };
            let standing = node.standing.get_or_init(|| self.prove(node).unwrap_or_else(unproven));
            return failure.map_or(Ok(standing), Err);
        }
        if let Some(known) = node.standing.get() {
            return Ok(known);
        }
        // Do not store an error: the server may answer the next time.
        let proven = self.prove(node)?;
        Ok(node.standing.get_or_init(|| proven))
    }

    fn prove(&self, node: &Node) -> Result<Option<RenderedPrompt>, RenderError> {
        let inputs = node.inputs.rendered(self.renderer)?;
        let mut messages = node.said.messages();
        messages.pop();
        let unreadable = |_| RenderError::Unreadable { what: "a message", why: "it cannot be read" };
        let messages = self.rendered(&messages).map_err(unreadable)?;
        let prompt = self.renderer.render(&messages, &inputs, true)?;
        // A spliced prompt holds the sampled spelling, so its ids may differ from the template's rendering.
        if !node.is_trusted && !node.call().prompt_token_ids.iter().eq(self.renderer.ids(&prompt)?.iter()) {
            return Ok(None);
        }
        let history = self.renderer.render(&messages, &inputs, false)?;
        Ok(RenderedPrompt::of(history.text(), prompt.text()))
    }

    /// Returns the ids of the prompt that the template makes of these messages.
    pub(super) fn rendering(
        &self,
        messages: &[Arc<StoredMessage>],
        inputs: &PromptInputs,
    ) -> Result<Vec<TokenId>, Unspliced> {
        let inputs = inputs.rendered(self.renderer).map_err(unrendered)?;
        let prompt = self.renderer.render(&self.rendered(messages)?, &inputs, true).map_err(unrendered)?;
        Ok(self.renderer.ids(&prompt).map_err(unrendered)?.into_owned())
    }

    fn rendered(&self, messages: &[Arc<StoredMessage>]) -> Result<Vec<renderer::RenderMessage>, Unspliced> {
        let one = |message: &Arc<StoredMessage>| message.rendered(self.renderer);
        messages.iter().map(one).collect::<Option<_>>().ok_or_else(|| unproven("a message is not readable"))
    }

    /// Compares the answer as the template shows it with the sampled answer.
    fn class(
        &self,
        node: &Node,
        standing: &RenderedPrompt,
        tail: &Tail,
        whole: &str,
    ) -> Result<Class, Unspliced> {
        let shown = standing.history.behind(whole).and_then(|rest| rest.strip_suffix(tail.closing.as_str()));
        let Some(shown) = shown else {
            tracing::trace!("what stands before the answer is shown otherwise");
            return Ok(Class::Rewritten);
        };
        let sampled = without_end(node, self.ends, tail).0;
        let sampled = self.renderer.decode(sampled).map_err(unrendered)?;
        let class = class_of(&standing.generation_prompt, &sampled, shown);
        tracing::trace!(?class, sampled, shown, "an answer and the template");
        Ok(class)
    }

    fn ids(&self, node: &Node, tail: &Tail, whole: &Rendering) -> Result<TokenList, Unspliced> {
        let (_, has_end) = without_end(node, self.ends, tail);
        let mut ids = node.call().prompt_token_ids.clone();
        ids.extend_from_slice(node.sampled());
        // Text after a token that is never split is tokenised as if alone, but not as the beginning of a prompt. The
        // closing text begins with such a token, so its ids do not depend on the answer.
        let closing = self.renderer.encode(&tail.closing).map_err(unrendered)?;
        if !whole.may_end_with(&closing) {
            return Err(unproven(
                "the tail's tokens are not those that the server makes of the conversation",
            ));
        }
        // The first token of the next turn may be the token that ends a turn (GLM). Then the policy has sampled it
        // already.
        let is_repeated = closing.first() == node.sampled().last();
        let skipped = usize::from(has_end && (tail.end.is_some() || is_repeated));
        ids.extend_from_slice(closing.get(skipped..).unwrap_or_default());
        Ok(ids)
    }
}

/// Returns the sampled ids before the token that ended the answer, and whether there is such a token.
fn without_end<'n>(node: &'n Node, ends: &[TokenId], tail: &Tail) -> (&'n [TokenId], bool) {
    let sampled = node.sampled();
    let stopped_at = node.choice().and_then(|choice| choice.stop_reason.as_ref()?.as_u64());
    let is_end = |token: TokenId| {
        tail.end == Some(token) || ends.contains(&token) || stopped_at == Some(u64::from(u32::from(token)))
    };
    match sampled.split_last() {
        Some((&last, rest)) if is_end(last) => (rest, true),
        _ => (sampled, false),
    }
}

fn rewritten(node: &Node) -> Unspliced {
    let stop_string = node
        .choice()
        .is_some_and(|choice| choice.stop_reason.as_ref().is_some_and(serde_json::Value::is_string));
    let cause =
        if stop_string { BranchCause::StopStringRemoved } else { BranchCause::TemplateRewroteHistory };
    let reason = "the template does not show what was sampled".to_owned();
    Unspliced { cause, class: Some(Class::Rewritten), reason }
}

fn unproven(reason: impl Into<String>) -> Unspliced {
    Unspliced { cause: BranchCause::Unproven, class: None, reason: reason.into() }
}

fn unrendered(error: RenderError) -> Unspliced {
    unproven(error.to_string())
}

fn no_tail(error: NoTail) -> Unspliced {
    unproven(error.to_string())
}
