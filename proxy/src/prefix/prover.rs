//! Background proofs: compares each prompt that a server rendered with the local rendering, before the next turn needs
//! the result.

use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};

use tokio::sync::oneshot;

use super::node::Node;
use super::{ExactPrefix, Ready};

/// The maximum number of queued proofs. A proof that does not fit is made when a call continues the conversation.
const WAITING: usize = 256;

enum Job {
    Prove {
        prefix: Arc<ExactPrefix>,
        ready: Arc<Ready>,
        node: Arc<Node>,
    },
    /// Is dropped after all earlier proofs are made, which its receiver waits for.
    Mark(oneshot::Sender<()>),
}

/// The queue of the prover's thread, or `None` if the thread did not start. Tokenising a long prompt takes longer than
/// any stream may wait, so it has its own thread.
#[derive(Debug)]
pub(super) struct Prover(Option<SyncSender<Job>>);

impl Prover {
    pub(super) fn start() -> Self {
        let (jobs, received) = mpsc::sync_channel::<Job>(WAITING);
        let run = move || {
            for job in received {
                match job {
                    Job::Prove { prefix, ready, node } => {
                        prefix.prove(&ready, &node);
                    }
                    Job::Mark(mark) => drop(mark),
                }
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

    /// Waits for the queued proofs.
    pub(super) async fn settled(&self) {
        let Some(jobs) = self.0.clone() else { return };
        let (mark, reached) = oneshot::channel();
        // A full queue blocks the sender.
        let sent = tokio::task::spawn_blocking(move || jobs.send(Job::Mark(mark))).await;
        if sent.is_ok_and(|sent| sent.is_ok()) {
            // The mark is dropped without a value.
            let _ = reached.await;
        }
    }
}

impl ExactPrefix {
    /// Queues the proof that the server's prompt for this answer is the template's.
    pub(super) fn prove_later(self: &Arc<Self>, node: Arc<Node>) {
        let (Some(Some(ready)), Some(jobs)) = (self.renderer.get(), &self.prover.0) else { return };
        let job = Job::Prove { prefix: Arc::clone(self), ready: Arc::clone(ready), node };
        // A full queue loses nothing: the proof is made when it is needed.
        let _ = jobs.try_send(job);
    }
}
