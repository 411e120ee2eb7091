//! Background proofs: compares each prompt that a server rendered with the local rendering, before the next turn needs
//! the result.

use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};

use super::node::Node;
use super::{ExactPrefix, Ready};

/// The maximum number of queued proofs. A proof that does not fit is made when a call continues the conversation.
const WAITING: usize = 256;

struct Job {
    prefix: Arc<ExactPrefix>,
    ready: Arc<Ready>,
    node: Arc<Node>,
}

/// The queue of the prover's thread, or `None` if the thread did not start. Tokenising a long prompt takes longer than
/// any stream may wait, so it has its own thread.
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
    /// Queues the proof that the server's prompt for this answer is the template's.
    pub(super) fn prove_later(self: &Arc<Self>, node: Arc<Node>) {
        let (Some(Some(ready)), Some(jobs)) = (self.renderer.get(), &self.prover.0) else { return };
        let job = Job { prefix: Arc::clone(self), ready: Arc::clone(ready), node };
        // A full queue loses nothing: the proof is made when it is needed.
        let _ = jobs.try_send(job);
    }
}
