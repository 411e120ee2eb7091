//! Blocking access to [`UpstreamRenderer`]: splices run on threads that may block, and contain no asynchronous code.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rolltap_rollout::ids::TrialId;
use rolltap_rollout::token::TokenId;
use serde_json::Value as Json;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use super::upstream::UpstreamRenderer;
use super::{RenderError, RequestInputs};
use crate::upstream::Pool;

/// The time limit of all questions of one call together. A rendering that takes longer saves nothing.
const PATIENCE: Duration = Duration::from_secs(30);

/// Asks the server and blocks until the answer. Not for threads of the runtime: `block_on` panics there.
pub(crate) struct AskedRenderer {
    pool: Arc<Pool>,
    trial: TrialId,
    model: String,
    learnt: Arc<Learnt>,
    runtime: Handle,
    deadline: Instant,
}

/// The tokens of one model that are known to be never split. All calls of the model share them, because they never
/// change.
#[derive(Debug, Default)]
pub(crate) struct Learnt(Mutex<HashMap<String, TokenId>>);

impl Learnt {
    /// Returns the longest known token that the text begins with.
    fn at_start(&self, text: &str) -> Option<TokenId> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let longest = known.iter().filter(|(token, _)| text.starts_with(token.as_str()));
        longest.max_by_key(|(token, _)| token.len()).map(|(_, id)| *id)
    }

    fn learn(&self, token: String, id: TokenId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(token, id);
    }
}

impl AskedRenderer {
    /// Creates the renderer of one call. `model` is the server's name of the model, and the trial's replica answers.
    /// `runtime` runs the requests.
    pub(crate) fn new(
        pool: Arc<Pool>,
        trial: TrialId,
        model: String,
        learnt: Arc<Learnt>,
        runtime: Handle,
    ) -> Self {
        Self { pool, trial, model, learnt, runtime, deadline: Instant::now() + PATIENCE }
    }

    /// Returns the ids of a conversation.
    pub(super) fn render(
        &self,
        messages: &[Json],
        inputs: &RequestInputs,
        add_generation_prompt: bool,
    ) -> Result<Vec<TokenId>, RenderError> {
        self.wait(self.asked().render(messages, inputs, add_generation_prompt))
    }

    /// Returns the ids of a text. Adds none, and recognises special tokens in the text.
    pub(crate) fn encode(&self, text: &str) -> Result<Vec<TokenId>, RenderError> {
        self.wait(self.asked().encode(text))
    }

    /// Returns the text of ids.
    pub(crate) fn decode(&self, ids: &[TokenId]) -> Result<String, RenderError> {
        self.wait(self.asked().decode(ids))
    }

    /// Returns the token that a text begins with, if that token is never split.
    pub(super) fn token_at_start(&self, text: &str) -> Result<Option<TokenId>, RenderError> {
        if let Some(known) = self.learnt.at_start(text) {
            return Ok(Some(known));
        }
        let Some(&id) = self.encode(text)?.first() else { return Ok(None) };
        let token = self.decode(&[id])?;
        // Markup has more than one letter. Many single letters merge only with rare neighbours, which the test below
        // would miss.
        if token.chars().nth(1).is_none() || !text.starts_with(&token) {
            return Ok(None);
        }
        let Neighbours { text, times } = Neighbours::of(&token);
        let is_whole = self.encode(&text)?.iter().filter(|other| **other == id).count() == times;
        if is_whole {
            self.learnt.learn(token, id);
        }
        Ok(is_whole.then_some(id))
    }

    /// Returns the token that a text begins with, among the tokens that are known to be never split. Asks no server.
    pub(super) fn known_at_start(&self, text: &str) -> Option<TokenId> {
        self.learnt.at_start(text)
    }

    fn asked(&self) -> UpstreamRenderer<'_> {
        UpstreamRenderer { pool: &self.pool, trial: &self.trial, model: &self.model }
    }

    fn wait<T>(&self, answer: impl Future<Output = Result<T, RenderError>>) -> Result<T, RenderError> {
        let answer = async { timeout_at(self.deadline, answer).await };
        self.runtime.block_on(answer).unwrap_or(Err(RenderError::Late(PATIENCE)))
    }
}

/// A token among neighbours that ordinary tokens merge with: letters, itself, punctuation, white space.
struct Neighbours {
    text: String,
    /// The number of times that the token occurs in `text`.
    times: usize,
}

impl Neighbours {
    fn of(token: &str) -> Self {
        let text = format!("a{token}{token}b{token}.{token}\n{token}\n\n{token} {token}");
        Self { text, times: 7 }
    }
}
