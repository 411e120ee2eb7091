//! Counts the flaws of a replica's complete answers, and logs each flaw once with its remedy.

use std::sync::PoisonError;

use rolltap_rollout::call::Flaw;

use super::ServedBy;

impl ServedBy {
    /// Counts the flaws of a complete answer. Each flaw is logged once per replica.
    pub(crate) fn lacks(&self, flaws: &[Flaw]) {
        for &flaw in flaws {
            self.replica.flaws.count(flaw);
            let Some(remedy) = flaw.remedy() else { continue };
            // The set is per replica, because each has its own configuration.
            let is_new = self.replica.lacks.lock().unwrap_or_else(PoisonError::into_inner).insert(flaw);
            if is_new {
                let (upstream, flaw) = (self.replica.address(), flaw.as_str());
                tracing::warn!(%upstream, flaw, "nothing of such a call can be trained: {remedy}");
            }
        }
    }
}
