//! The numbers of policy versions, which are the same for all shards of a cluster.

use std::time::Duration;

use async_nats::jetstream::kv::{Operation, Store};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use crate::cluster::entry::{self, Written};
use crate::cluster::{Cluster, ClusterError, json};

/// The key of the labels.
const KEY: &str = "policy";
/// The time in which NATS must answer a read or a write.
const PATIENCE: Duration = Duration::from_secs(2);
/// The number of attempts to add a label while other shards add labels too.
const ATTEMPTS: u32 = 16;
/// The pause before the next attempt.
const AGAIN: Duration = Duration::from_millis(50);
/// The action of errors.
const NUMBER: &str = "number the policy version";

/// The numbers of the labels of weights. All shards have the same ones.
#[derive(Clone, Debug)]
pub struct VersionNumbers {
    cluster: Cluster,
}

/// Who named the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedBy {
    /// The trainer, which loads new weights.
    Trainer,
    /// A replica. The first label of a replica names the weights at the start.
    Replica,
}

/// The labels of all versions. Version 0 is that of the start, and may have no label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Labels {
    labels: Vec<Option<String>>,
}

impl Default for Labels {
    fn default() -> Self {
        Self { labels: vec![None] }
    }
}

impl Labels {
    /// Returns the number of a label. `None` if no version has it.
    fn find(&self, label: &str) -> Option<usize> {
        self.labels.iter().position(|known| known.as_deref() == Some(label))
    }

    /// Adds a label, and returns its number.
    fn add(&mut self, label: &str, by: NamedBy) -> usize {
        if by == NamedBy::Replica && matches!(self.labels.as_slice(), [None]) {
            self.labels = vec![Some(label.to_owned())];
            return 0;
        }
        self.labels.push(Some(label.to_owned()));
        self.labels.len() - 1
    }
}

impl VersionNumbers {
    /// Numbers the versions of this cluster.
    pub fn new(cluster: Cluster) -> Self {
        Self { cluster }
    }

    /// Returns the number of a label. A label that is new to the cluster gets the next number.
    ///
    /// # Errors
    /// NATS does not answer, or has a record of another format.
    pub async fn number(&self, label: &str, by: NamedBy) -> Result<usize, ClusterError> {
        for _ in 0..ATTEMPTS {
            let (mut labels, revision) = self.read().await?;
            if let Some(number) = labels.find(label) {
                return Ok(number);
            }
            let number = labels.add(label, by);
            let written = entry::write(self.bucket(), KEY, json(&labels), revision, PATIENCE).await;
            match written.map_err(|reason| self.cluster.refused(NUMBER, &reason, ""))? {
                Written::Done(_) => return Ok(number),
                Written::Conflict => {}
            }
            // A NATS server that is behind may have answered the read.
            tokio::time::sleep(AGAIN).await;
        }
        Err(self.cluster.refused(NUMBER, &"other nodes change the versions all the time", ""))
    }

    /// Reads the labels and their revision, 0 if there are none.
    async fn read(&self) -> Result<(Labels, u64), ClusterError> {
        let read = timeout(PATIENCE, self.bucket().entry(KEY)).await;
        let silent = |_| self.cluster.refused(NUMBER, &format!("no answer in {PATIENCE:?}"), "");
        let entry = read.map_err(silent)?;
        let entry = entry.map_err(|error| self.cluster.refused(NUMBER, &error, ""))?;
        let Some(entry) = entry else { return Ok((Labels::default(), 0)) };
        if entry.operation != Operation::Put {
            return Ok((Labels::default(), entry.revision));
        }
        let labels = serde_json::from_slice(&entry.value).map_err(|error| ClusterError::Foreign {
            bucket: self.bucket().name.clone(),
            reason: format!("its key {KEY:?} has no labels of policy versions: {error}"),
        })?;
        Ok((labels, entry.revision))
    }

    fn bucket(&self) -> &Store {
        self.cluster.bucket()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_label_of_a_replica_names_the_weights_at_the_start() {
        let mut labels = Labels::default();
        assert_eq!(labels.add("default", NamedBy::Replica), 0);
        assert_eq!((labels.add("step-1", NamedBy::Replica), labels.find("default")), (1, Some(0)));
        let mut labels = Labels::default();
        assert_eq!(labels.add("step-1", NamedBy::Trainer), 1);
        assert_eq!(labels.add("default", NamedBy::Replica), 2, "the trainer has named later weights");
    }
}
