//! The calls and tokens of running trials, read from the proxy at intervals.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::task::AbortOnDropHandle;

use super::output::Output;
use super::ticker::Shared;
use crate::admin_client::AdminClient;

/// The time between two rounds if lines are redrawn. A status costs the proxy time in proportion to the trial's calls.
const REDRAWN: Duration = Duration::from_secs(3);
/// The time between two rounds without a terminal.
const LINES: Duration = Duration::from_secs(20);
/// The most trials that are read in a round.
const AT_ONCE: usize = 32;

/// Reads until it is dropped.
pub(in crate::job) type Following = AbortOnDropHandle<()>;

/// Starts to read. `None` if nothing is shown.
pub(super) fn follow(shared: &Arc<Shared>, admin: &AdminClient) -> Option<Following> {
    let pause = match shared.output {
        Output::Quiet => return None,
        Output::Redrawn(_) => REDRAWN,
        Output::Lines => LINES,
    };
    let (shared, admin) = (Arc::clone(shared), admin.clone().waiting_for(Duration::ZERO));
    Some(AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            tokio::time::sleep(pause).await;
            let trials = shared.board().to_read(AT_ONCE);
            for trial in trials {
                // Without an answer, the figures of the last round remain.
                let Ok(status) = admin.status(&trial).await else { break };
                let (calls, tokens) = (status.calls.total, status.completion_tokens);
                shared.board().read(&trial, calls, tokens, Instant::now());
            }
        }
    })))
}
