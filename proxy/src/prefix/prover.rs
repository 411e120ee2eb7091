//! Proofs that nobody waits for: each prompt that a server rendered is compared with what is rendered here, before the
//! next turn needs to know.

use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};

use super::node::Node;
use super::{ExactPrefix, Ready};

/// Proofs that wait, at most. One that finds no place is made when the conversation goes on, if it does.
const WAITING: usize = 256;

struct Job {
    prefix: Arc<ExactPrefix>,
    ready: Arc<Ready>,
    node: Arc<Node>,
}

/// A thread of its own: tokenising a long prompt takes longer than any stream may wait.
#[derive(Debug)]
pub(super) struct Prover(Option<SyncSender<Job>>);

impl Prover {
    pub(super) fn start() -> Self {
        let (jobs, received) = mpsc::sync_channel::<Job>(WAITING);
        let run = move || {
            for Job { prefix, ready, node } in received {
                prefix.prove(&ready, &node);
            }
        };
        match std::thread::Builder::new().name("prefix-prover".to_owned()).spawn(run) {
            Ok(_) => Self(Some(jobs)),
            Err(error) => {
                tracing::warn!(%error, "no thread to prove renderings from: they are proven when they are needed");
                Self(None)
            }
        }
    }
}

impl ExactPrefix {
    /// Proves later that the server's prompt for this answer is the template's.
    pub(super) fn prove_later(self: &Arc<Self>, node: Arc<Node>) {
        let (Some(Some(ready)), Some(jobs)) = (self.renderer.get(), &self.prover.0) else { return };
        let job = Job { prefix: Arc::clone(self), ready: Arc::clone(ready), node };
        // A full queue is no loss: the proof is made when it is needed.
        let _ = jobs.try_send(job);
    }
}
