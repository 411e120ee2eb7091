//! The speed of an answer.

use std::time::Duration;

use super::admission::HeldBlocks;
use super::generation::Generation;
use super::script::Fault;

/// The speed of an answer, and its fault.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// The delay before the first token.
    pub(super) delay: Duration,
    /// The delay before every token.
    pub(super) token_delay: Duration,
    /// The fault. Its number of tokens counts all answers together.
    pub(super) fault: Option<Fault>,
}

impl Pace {
    /// Waits as long as the first `rounds` tokens of each answer take. Appends these tokens to the held blocks meanwhile.
    pub(super) async fn wait(&self, rounds: u32, answers: &[Generation], held: Option<&mut HeldBlocks>) {
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

async fn pause(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}
