//! Exact prefix: sends a call that continues an earlier call as token ids. The prompt consists of the ids of the
//! earlier prompt, the sampled ids, and the ids that the chat template puts after them. Text that an agent sends back
//! rarely tokenises to the same ids.
//!
//! [`ExactPrefix::plan`] finds the answer that a request continues ([`memory`]) and the template's text after that
//! answer ([`tail`]). It then checks whether the template shows the sampled answer (`classify`) and composes the prompt
//! ([`splice`]). The model's own files render, or the server if no tokenizer is available (`remote_renderer`).
//!
//! Only proven prompts are sent: the ids of the server's own prompt of an earlier call must equal the local rendering
//! of its messages. A kind of request (`request_kind`) with too many differences is not spliced until enough equal
//! prompts follow ([`trust`]).

mod audit;
mod classify;
mod conversation;
mod fingerprint;
mod memory;
mod message;
mod message_eq;
mod node;
mod plan;
pub(crate) mod prompt_ids;
mod prover;
mod refutation;
mod remote_renderer;
mod request;
mod request_kind;
mod splice;
mod tail;
#[cfg(test)]
mod tests;
mod trust;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rolltap_rollout::ids::TrialId;
use rolltap_rollout::token::TokenId;
use tokio::sync::OnceCell;

pub(crate) use memory::Memory;
pub(crate) use plan::Plan;
pub use refutation::RefutedKind;

use self::audit::Audits;
use self::node::Node;
use self::prover::Prover;
use self::refutation::Refutation;
use self::remote_renderer::Asking;
use self::request_kind::RequestKind;
use self::splice::Splicer;
use self::trust::{Change, Trust};
use crate::common::history::History;
use crate::common::metrics::Metrics;
use crate::render::renderer::Renderer;
use crate::render::{LoadError, LocalRenderer, RenderSettings};
use crate::store::Store;
use crate::upstream::{ModelCard, Pool};

/// The state of the exact prefix that all trials share.
#[derive(Debug)]
pub(crate) struct ExactPrefix {
    settings: RenderSettings,
    /// Empty until the model's directory is known. Holds `None` if no tokenizer can be loaded: then the server renders.
    renderer: OnceCell<Option<Arc<Ready>>>,
    /// The kinds of requests that are spliced.
    trust: Trust,
    prover: Prover,
    audits: Audits,
    asking: Asking,
    upstream: Arc<Pool>,
    /// Gets the verdicts of audits.
    store: Store,
    metrics: Arc<Metrics>,
}

/// A renderer, and the tokens that end a turn of its template.
struct Ready {
    renderer: Renderer,
    ends: Vec<TokenId>,
}

impl ExactPrefix {
    /// Loads the tokenizer that the settings name, and fails if that is impossible. If the settings name no tokenizer,
    /// the model directory that the server reports is loaded later.
    pub(crate) fn start(
        settings: RenderSettings,
        upstream: Arc<Pool>,
        store: Store,
        metrics: Arc<Metrics>,
    ) -> Result<Arc<Self>, LoadError> {
        let renderer = match &settings.tokenizer {
            Some(dir) => OnceCell::new_with(Some(Some(Arc::new(Ready::load(dir, &settings)?)))),
            None => OnceCell::new(),
        };
        let (trust, prover, audits) = (Trust::default(), Prover::start(), Audits::new());
        let asking = Asking::default();
        Ok(Arc::new(Self { settings, renderer, trust, prover, audits, asking, upstream, store, metrics }))
    }

    /// Returns the hash of the served model's tokenizer, or `None` if no tokenizer is available.
    pub(crate) async fn tokenizer_hash(&self, model: &ModelCard) -> Option<String> {
        Some(self.ready(model.dir.clone()).await?.renderer.hash()?.to_owned())
    }

    /// Returns the renderer. Loads it from the directory `model` if the settings name no tokenizer.
    async fn ready(&self, model: Option<PathBuf>) -> Option<Arc<Ready>> {
        if let Some(ready) = self.renderer.get() {
            return ready.clone();
        }
        let dir = model?;
        let settings = self.settings.clone();
        let load = || async {
            // Loading parses large files, so it runs on a thread that may block.
            let loaded = tokio::task::spawn_blocking(move || {
                Ready::load(&dir, &settings).map_err(|error| tracing::warn!(
                    %error,
                    "the served model's tokenizer cannot be used, so the server is asked to tokenise, which takes longer; \
                     name one with --tokenizer"
                ))
            });
            loaded.await.ok().and_then(Result::ok).map(Arc::new)
        };
        // The result is stored even if it is `None`: a tokenizer that cannot be loaded is not read again for each call.
        self.renderer.get_or_init(load).await.clone()
    }

    /// Counts a prompt of this trial's server that differs from the local rendering. Warns if this turns the kind off.
    fn refuted(&self, shape: RequestKind, trial: &TrialId, refutation: Refutation) {
        let RefutedKind { requests, reason, remedy } = RefutedKind::of(&shape, &refutation);
        tracing::debug!(%trial, requests, reason, "a prompt is not rendered here as the server renders it");
        let summary = refutation.summary();
        if self.trust.refuted(shape, trial, refutation) == Change::TurnedOff {
            tracing::warn!(
                requests,
                reason,
                "{summary}, so prompts of such requests are not continued token for token; {remedy}"
            );
            self.metrics.shape_off();
        }
    }

    /// Returns the kinds of requests that the server rendered otherwise, sorted. Waits for the proofs and the audit that
    /// have begun.
    pub(crate) async fn refuted_kinds(&self) -> Vec<RefutedKind> {
        self.prover.settled().await;
        self.audits.settled().await;
        self.trust.refuted_kinds()
    }

    /// Counts a prompt of the server that equals the local rendering.
    fn proven(&self, shape: RequestKind) {
        let requests = shape.to_string();
        if self.trust.proven(shape) == Change::TurnedOn {
            tracing::info!(
                requests,
                "such requests are continued token for token again: enough prompts prove it"
            );
            self.metrics.shape_on();
        }
    }

    /// Returns whether the prompt that the server made for this answer is the template's own. The first check of a node
    /// counts for or against its kind of request.
    fn prove(&self, ready: &Ready, node: &Node) -> bool {
        let is_first = node.standing.get().is_none();
        let refutation = match ready.workshop(History::Faithful).standing(node) {
            Ok(Some(_)) => None,
            Ok(None) => Some(Refutation::OtherIds),
            // The server did not answer. That proves nothing, so the score of the kind is unchanged.
            Err(_) if ready.renderer.asks() => return false,
            Err(error) => Some(Refutation::Unrendered(error.to_string())),
        };
        let is_proven = refutation.is_none();
        if is_first && node.is_of_server {
            let shape = RequestKind::of(&node.said.messages(), &node.inputs);
            match refutation {
                None => self.proven(shape),
                Some(refutation) => self.refuted(shape, &node.call().trial_id, refutation),
            }
        }
        is_proven
    }
}

impl Ready {
    fn load(dir: &Path, settings: &RenderSettings) -> Result<Self, LoadError> {
        Ok(Self::of(Renderer::Local(Box::new(LocalRenderer::load(dir, settings)?))))
    }

    fn of(renderer: Renderer) -> Self {
        let mut ends = renderer.end_ids().to_vec();
        // Some tokenizers do not name the token that the template puts after an answer.
        ends.extend(tail::usual_end(&renderer).ok().flatten());
        Self { renderer, ends }
    }

    fn workshop(&self, history: History) -> Splicer<'_> {
        Splicer { renderer: &self.renderer, ends: &self.ends, history }
    }
}

impl std::fmt::Debug for Ready {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ready").field("ends", &self.ends).finish_non_exhaustive()
    }
}
