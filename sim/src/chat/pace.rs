//! The speed of an answer, and its wait for blocks of the KV cache.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::Chat;
use crate::generation::Generation;
use crate::kv::Sequence;
use crate::script::Fault;
use crate::server::Server;
use crate::server::admission::HeldBlocks;

/// The speed of an answer, and its fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// The delay before the first token.
    pub(crate) delay: Duration,
    /// The delay before every token.
    pub(crate) token_delay: Duration,
    /// The fault. Its number of tokens counts all answers together.
    pub(crate) fault: Option<Fault>,
}

impl Pace {
    /// Waits as long as the first `rounds` tokens of each answer take. Appends these tokens to the held blocks meanwhile.
    pub(crate) async fn wait(&self, rounds: u32, answers: &[Generation], held: Option<&mut HeldBlocks>) {
        let Some(held) = held else { return pause(self.delay + self.token_delay * rounds).await };
        pause(self.delay).await;
        // A pause per block is enough, because only full blocks matter to other requests.
        let block = held.block_size() as usize;
        for first in (0..rounds as usize).step_by(block) {
            let last = (first + block).min(rounds as usize);
            pause(self.token_delay * (last - first) as u32).await;
            for (index, answer) in answers.iter().enumerate() {
                let ids = answer.token_ids();
                held.append(index, ids.get(first..last.min(ids.len())).unwrap_or_default());
            }
        }
    }
}

impl Chat {
    /// Returns the wait for the blocks of the prompt, or `None` if the number of blocks is not limited.
    pub(crate) fn admission(&self, server: &Server) -> Option<BoxFuture<'static, HeldBlocks>> {
        let admission = Arc::clone(server.admission.as_ref()?);
        let block_size = admission.cache().block_size();
        let prompt = Sequence::new(block_size, self.prompt.iter().copied());
        Some(admission.admit(prompt, self.choices.len()).boxed())
    }

    /// Records the cached tokens, and adds the time of the prefill to the delay before the first token.
    pub(crate) fn admitted(&mut self, held: Option<&HeldBlocks>, prefill_delay: Duration) {
        let prompt = self.prompt.len();
        self.cached_tokens = held.map_or(0, HeldBlocks::cached_tokens);
        let uncached = held.map_or(prompt, |held| held.uncached_tokens(prompt));
        self.pace.delay += prefill_delay.saturating_mul(uncached as u32) / 1000;
    }
}

async fn pause(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}
