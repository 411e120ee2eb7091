//! Asks the server if no tokenizer is available: for renderings, and for the data that a tokenizer's files would
//! contain.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

use rolltap_rollout::branch_cause::BranchCause;
use rolltap_rollout::ids::TrialId;
use rolltap_rollout::token::TokenId;
use serde_json::Value;
use tokio::runtime::Handle;

use super::request::PromptInputs;
use super::splice::Unspliced;
use super::{ExactPrefix, Ready, tail};
use crate::render::renderer::Renderer;
use crate::render::{AskedRenderer, Learnt, RenderError};

/// The results of asking servers, by model name.
#[derive(Debug, Default)]
pub(super) struct Asking(Mutex<HashMap<String, ServerAnswers>>);

/// The result of asking the server of one model.
#[derive(Clone, Debug)]
enum ServerAnswers {
    /// The server refuses to tokenise.
    Nothing,
    Tokens {
        learnt: Arc<Learnt>,
        /// The token that ends a turn, if there is one.
        end: Option<TokenId>,
    },
}

impl ExactPrefix {
    /// Returns whether the request names a model whose server has not refused to tokenise.
    pub(super) fn may_ask(&self, inputs: &PromptInputs) -> bool {
        let model = inputs.model.as_ref().and_then(Value::as_str);
        model.is_some_and(|model| !matches!(self.asking.of(model), Some(ServerAnswers::Nothing)))
    }

    /// Creates a renderer for one call that asks the server. Use it only on threads that may block.
    pub(super) fn ask(&self, trial: TrialId, inputs: &PromptInputs) -> Result<Ready, Unspliced> {
        let model = inputs.model.as_ref().and_then(Value::as_str);
        let model =
            model.ok_or_else(|| unproven("no tokenizer is at hand, and the request names no model"))?;
        let told = self.asking.of(model);
        let learnt = match &told {
            Some(ServerAnswers::Tokens { learnt, .. }) => Arc::clone(learnt),
            Some(ServerAnswers::Nothing) => {
                return Err(unproven("no tokenizer is at hand, and the server is none"));
            }
            None => Arc::default(),
        };
        let pool = Arc::clone(&self.upstream);
        let asked = AskedRenderer::new(pool, trial, model.to_owned(), Arc::clone(&learnt), Handle::current());
        let renderer = Renderer::Asked(asked);
        let end = match told {
            Some(ServerAnswers::Tokens { end, .. }) => end,
            _ => self.asking.first(model, learnt, tail::usual_end(&renderer))?,
        };
        Ok(Ready { ends: end.into_iter().collect(), renderer })
    }
}

impl Asking {
    fn of(&self, model: &str) -> Option<ServerAnswers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(model).cloned()
    }

    /// Stores the result of the first questions, unless the error is transient.
    fn first(
        &self,
        model: &str,
        learnt: Arc<Learnt>,
        end: Result<Option<TokenId>, RenderError>,
    ) -> Result<Option<TokenId>, Unspliced> {
        let told = match &end {
            Ok(end) => ServerAnswers::Tokens { learnt, end: *end },
            Err(RenderError::Refused { .. }) => ServerAnswers::Nothing,
            // Do not store a transient error: the next call asks again.
            Err(error) => return Err(unproven(error)),
        };
        // Concurrent calls may all be the first to ask. Only one result is stored, and only one warning is logged.
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Vacant(place) = all.entry(model.to_owned()) {
            if let Err(error) = &end {
                tracing::warn!(
                    model, %error,
                    "no tokenizer is at hand and the server does not tokenise for us, so prompts are not continued token for \
                     token; name one with --tokenizer"
                );
            }
            place.insert(told);
        }
        end.map_err(unproven)
    }
}

fn unproven(reason: impl ToString) -> Unspliced {
    Unspliced { cause: BranchCause::Unproven, class: None, reason: reason.to_string() }
}
