//! The replica that answers a call, as the call's recorder sees it.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::Replica;
use crate::common::clock;

/// The replica that answers a call, and its version when the call was sent.
#[derive(Clone, Debug)]
pub(crate) struct ServedBy {
    pub(super) replica: Arc<Replica>,
    version_sent: i32,
    sent_at: Timestamp,
}

impl ServedBy {
    pub(super) fn new(replica: Arc<Replica>) -> Self {
        let version_sent = replica.version();
        Self { replica, version_sent, sent_at: clock::now() }
    }

    /// Returns the time at which the call was sent, after any pause.
    pub(crate) fn sent_at(&self) -> Timestamp {
        self.sent_at
    }

    /// The replica's URL.
    pub(crate) fn upstream(&self) -> String {
        self.replica.address().to_string()
    }

    /// Notes that the replica accepted an id prompt.
    pub(crate) fn took_ids(&self) {
        self.replica.ids_accepted();
    }

    /// Notes that the replica rendered the messages instead of an id prompt.
    pub(crate) fn ignored_ids(&self) {
        if self.replica.ids_ignored() {
            tracing::warn!(
                upstream = %self.replica.address(),
                "the upstream does not take prompts as token ids, so it renders every prompt anew; vLLM does since 0.31"
            );
        }
    }

    /// Returns the replica's version at the time when the call was sent.
    pub(crate) fn version_sent(&self) -> i32 {
        self.version_sent
    }

    /// Returns the replica's version now.
    pub(crate) fn version_now(&self) -> i32 {
        self.replica.version()
    }

    /// Returns the labels of those versions that have a label.
    pub(crate) fn labels_of(&self, versions: impl IntoIterator<Item = i32>) -> BTreeMap<i32, String> {
        self.replica.policy().labels_of(versions)
    }
}
