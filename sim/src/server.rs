//! The state that all requests of a simulator share: its settings, its counts, and the signal to stop.

pub(super) mod admission;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio_util::sync::CancellationToken;

use self::admission::Admission;
use super::Settings;
use super::kv::KvCache;
use super::switches::Switches;

/// A running simulator, as its requests see it.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) settings: Settings,
    /// Cancelled when the simulator stops. Stalled answers wait for that.
    pub(super) stopping: CancellationToken,
    /// The start time, in seconds since 1970.
    pub(super) started: u64,
    pub(super) switches: Switches,
    /// The KV cache, or `None` if its number of blocks is not limited.
    pub(super) admission: Option<Arc<Admission>>,
    requests: AtomicU64,
    running: AtomicU64,
    aborted: AtomicU64,
    prompt_tokens: AtomicU64,
    generation_tokens: AtomicU64,
}

/// The counts of a simulator since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Well-formed chat requests, including those that a script refuses.
    pub requests: u64,
    /// Requests that are being answered, or wait.
    pub running: u64,
    /// Those of the running requests that wait for blocks of the KV cache.
    pub waiting: u64,
    /// Requests whose caller disconnected before the end, or that the simulator's stop cut off.
    pub aborted: u64,
    /// Tokens of the prompts.
    pub prompt_tokens: u64,
    /// Tokens of the answers.
    pub generation_tokens: u64,
}

/// An error that cuts the connection without an answer.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the simulator closes this connection, as its script demands")]
pub(super) struct Cut;

impl Server {
    /// Creates the state, with all counts at 0.
    ///
    /// The maximum length of prompt and answer is limited to the size of the KV cache, so that every request fits once the
    /// others have ended. vLLM does so with `--max-model-len auto`, and does not start with a longer maximum.
    pub(super) fn new(mut settings: Settings, stopping: CancellationToken, started: u64) -> Self {
        let cache = settings.kv_blocks.map(|blocks| KvCache::new(blocks, settings.kv_block_size));
        if let Some(cache) = &cache {
            let capacity = u32::try_from(cache.capacity()).unwrap_or(u32::MAX);
            settings.max_model_len = settings.max_model_len.min(capacity);
        }
        Self {
            admission: cache.map(|cache| Arc::new(Admission::new(cache))),
            settings,
            stopping,
            started,
            switches: Switches::default(),
            requests: AtomicU64::new(0),
            running: AtomicU64::new(0),
            aborted: AtomicU64::new(0),
            prompt_tokens: AtomicU64::new(0),
            generation_tokens: AtomicU64::new(0),
        }
    }

    /// Counts a request that begins. Returns its number, counted from 0.
    pub(super) fn begin(self: &Arc<Self>, prompt_tokens: usize) -> (u64, Running) {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        self.prompt_tokens.fetch_add(prompt_tokens as u64, Ordering::Relaxed);
        self.running.fetch_add(1, Ordering::Relaxed);
        (number, Running { server: Arc::clone(self), finished: false })
    }

    /// Adds to the count of the answers' tokens.
    pub(super) fn count_tokens(&self, tokens: u64) {
        self.generation_tokens.fetch_add(tokens, Ordering::Relaxed);
    }

    /// Returns the current counts.
    pub(super) fn stats(&self) -> Stats {
        Stats {
            requests: self.requests.load(Ordering::Relaxed),
            running: self.running.load(Ordering::Relaxed),
            waiting: self.admission.as_ref().map_or(0, |admission| admission.waiting()),
            aborted: self.aborted.load(Ordering::Relaxed),
            prompt_tokens: self.prompt_tokens.load(Ordering::Relaxed),
            generation_tokens: self.generation_tokens.load(Ordering::Relaxed),
        }
    }
}

/// A request that is being answered. If it is dropped before [`Running::finish`], it counts as aborted.
#[derive(Debug)]
pub(super) struct Running {
    server: Arc<Server>,
    finished: bool,
}

impl Running {
    /// Records that the answer ended as intended.
    pub(super) fn finish(mut self) {
        self.finished = true;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.server.running.fetch_sub(1, Ordering::Relaxed);
        // A body is dropped before its end if the caller disconnects.
        if !self.finished {
            self.server.aborted.fetch_add(1, Ordering::Relaxed);
        }
    }
}
