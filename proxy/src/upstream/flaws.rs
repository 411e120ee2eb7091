//! Counts the flaws of a replica's complete answers, and logs each flaw once with its remedy.

use std::sync::PoisonError;

use rolltap_rollout::call::Flaw;

use super::ServedBy;

impl ServedBy {
    /// Counts the flaws of a complete answer. Each flaw is logged once per replica.
    pub(crate) fn lacks(&self, flaws: &[Flaw]) {
        for &flaw in flaws {
            self.replica.flaws.count(flaw);
            let Some(remedy) = remedy(flaw) else { continue };
            // The set is per replica, because each has its own configuration.
            let is_new = self.replica.lacks.lock().unwrap_or_else(PoisonError::into_inner).insert(flaw);
            if is_new {
                let (upstream, flaw) = (self.replica.address(), flaw.as_str());
                tracing::warn!(%upstream, flaw, "nothing of such a call can be trained: {remedy}");
            }
        }
    }
}

/// Returns the remedy for a flaw, for the upstream's operator. `None` if no remedy is known.
fn remedy(flaw: Flaw) -> Option<&'static str> {
    match flaw {
        Flaw::MissingPromptIds => Some(
            "the answer has no prompt_token_ids; vLLM sends them for return_token_ids since 0.10.2, unless a router in \
             between takes them out or does not pass return_token_ids on",
        ),
        Flaw::MissingTokenIds => Some(
            "a choice has no token_ids; vLLM sends them for return_token_ids since 0.10.2, unless a router in between takes \
             them out or does not pass return_token_ids on",
        ),
        Flaw::MissingLogprobs => Some(
            "a choice has no logprobs; vLLM sends them where the request has logprobs, unless a router in between takes \
             them out",
        ),
        Flaw::InvalidLogprob => Some(
            "a logprob is not that of a token; start vLLM with --logprobs-mode raw_logprobs or processed_logprobs",
        ),
        Flaw::LengthMismatch | Flaw::MissingChoice | Flaw::Unreadable => None,
    }
}
