//! The exact prefix: a call that goes on from an earlier one is sent as the tokens of that one's prompt and answer, and
//! what the chat template puts behind them. Text sent back and tokenised anew would rarely be the same tokens.
//!
//! [`ExactPrefix::plan`] says what a request goes on from ([`memory`]), where the template goes on after the answer
//! ([`tail`]), whether the template would have shown what was sampled ([`spelling`]) and what the prompt so is ([`splice`]).
//! What renders is the model's own files, or the server where they are not at hand ([`asking`]).
//!
//! Nothing is sent that is not proven: the server's own prompt of an earlier call must be what is rendered here of its
//! messages. A kind of request ([`shape`]) for which it is not goes without until enough others prove it ([`trust`]).

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

use self::audit::Audits;
use self::node::Node;
use self::prover::Prover;
use self::remote_renderer::Asking;
use self::request_kind::RequestKind;
use self::splice::Splicer;
use self::trust::{Change, Trust};
use crate::common::history::History;
use crate::common::metrics::Metrics;
use crate::render::renderer::Renderer;
use crate::render::{LoadError, LocalRenderer, RenderSettings};
use crate::upstream::{ModelCard, Pool};

/// What all trials share of it.
#[derive(Debug)]
pub(crate) struct ExactPrefix {
    settings: RenderSettings,
    /// None inside where no tokenizer was found: then the server is asked.
    renderer: OnceCell<Option<Arc<Ready>>>,
    /// Which kinds of requests are spliced.
    trust: Trust,
    prover: Prover,
    audits: Audits,
    asking: Asking,
    upstream: Arc<Pool>,
    metrics: Arc<Metrics>,
}

/// A renderer, and what was learnt of its template.
struct Ready {
    renderer: Renderer,
    ends: Vec<TokenId>,
}

impl ExactPrefix {
    /// With the tokenizer of the settings, if they name one; else that of the model directory that the server names, once
    /// one does.
    pub(crate) fn start(
        settings: RenderSettings,
        upstream: Arc<Pool>,
        metrics: Arc<Metrics>,
    ) -> Result<Arc<Self>, LoadError> {
        let renderer = match &settings.tokenizer {
            Some(dir) => OnceCell::new_with(Some(Some(Arc::new(Ready::load(dir, &settings)?)))),
            None => OnceCell::new(),
        };
        let (trust, prover, audits) = (Trust::default(), Prover::start(), Audits::new());
        let asking = Asking::default();
        Ok(Arc::new(Self { settings, renderer, trust, prover, audits, asking, upstream, metrics }))
    }

    /// Says which tokenizer the served model has, if it is at hand.
    pub(crate) async fn tokenizer_hash(&self, model: &ModelCard) -> Option<String> {
        Some(self.ready(model.dir.clone()).await?.renderer.hash()?.to_owned())
    }

    /// The renderer; read now where the model's directory is known only now.
    async fn ready(&self, model: Option<PathBuf>) -> Option<Arc<Ready>> {
        if let Some(ready) = self.renderer.get() {
            return ready.clone();
        }
        let dir = model?;
        let settings = self.settings.clone();
        let load = || async {
            let loaded = tokio::task::spawn_blocking(move || {
                Ready::load(&dir, &settings).map_err(|error| tracing::warn!(
                    %error,
                    "the served model's tokenizer cannot be used, so the server is asked to tokenise, which takes longer; \
                     name one with --tokenizer"
                ))
            });
            loaded.await.ok().and_then(Result::ok).map(Arc::new)
        };
        self.renderer.get_or_init(load).await.clone()
    }

    /// A prompt of this trial's server is not what is rendered here.
    fn refuted(&self, shape: RequestKind, trial: &TrialId, reason: &str) {
        let requests = shape.to_string();
        tracing::debug!(%trial, requests, reason, "a prompt is not rendered here as the server renders it");
        if self.trust.refuted(shape, trial) == Change::TurnedOff {
            tracing::warn!(
                requests,
                reason,
                "the chat template is not rendered here as the server renders it, so prompts of such requests are not \
                 continued token for token; is the server started with --chat-template or default template arguments?"
            );
            self.metrics.shape_off();
        }
    }

    /// A prompt of the server is what is rendered here.
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

    /// Whether the prompt that the server made for this answer is the template's own. The first time that it is asked
    /// counts for or against requests of the kind.
    fn prove(&self, ready: &Ready, node: &Node) -> bool {
        let is_first = node.standing.get().is_none();
        let Ok(standing) = ready.workshop(History::Faithful).standing(node) else { return false };
        let is_proven = standing.is_some();
        if is_first && node.is_of_server {
            let shape = RequestKind::of(&node.said.messages(), &node.inputs);
            if is_proven {
                self.proven(shape);
            } else {
                let reason = "its ids are not those of the text that the template makes of the messages";
                self.refuted(shape, &node.call().trial_id, reason);
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
