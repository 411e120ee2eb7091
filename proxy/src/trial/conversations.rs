//! Reads the conversations of a trial's calls from the store. They are not in memory.

use rolltap_rollout::conversation::Conversations;

use super::Trial;
use crate::api::CapturedAnswer;
use crate::store::{CallEntry, Store};

impl Trial {
    /// Returns the recorded answers of the finished calls so far as messages, in order of time. Omits answers whose
    /// messages were not recorded.
    pub(crate) async fn answers(&self, store: &Store) -> Vec<CapturedAnswer> {
        let mut stored = store.calls(&self.opened.facts.trial_id).await;
        stored.sort_by(|a, b| a.call.call_id.cmp(&b.call.call_id));
        let of_call = |CallEntry { call, told }: CallEntry| {
            let answers = told.map(|told| told.answers.clone()).unwrap_or_default();
            answers.into_iter().filter_map(move |(choice_index, text)| {
                let message = serde_json::from_str(&text).ok()?;
                Some(CapturedAnswer { call_id: call.call_id.clone(), choice_index, message })
            })
        };
        stored.into_iter().flat_map(of_call).collect()
    }

    /// Returns the recorded conversations of the finished calls so far.
    pub(crate) async fn conversations(&self, store: &Store) -> Conversations {
        let stored = store.calls(&self.opened.facts.trial_id).await;
        let of_call =
            |CallEntry { call, told }: CallEntry| Some((call.call_id.clone(), told?.to_conversation()));
        stored.into_iter().filter_map(of_call).collect()
    }
}
