//! `rolltap sim`: a vLLM-shaped server for experiments without a GPU, and for tests with faults.
//!
//! The simulator answers `POST /v1/chat/completions` (JSON and events), `/tokenize`, `/detokenize`, `GET /v1/models`,
//! `/health`, `/ping`, `/version` and `/metrics`. `/weight_info` exists once a version is set. Answers have the fields of
//! vLLM 0.32 in vLLM's order. The simulator has its own tokenizer ([`encode`], [`decode`]). It behaves like a server that
//! was started with a tool-call parser and a reasoning parser. `kv_transfer_params.prompt_token_ids` is used as the prompt.
//!
//! With [`Settings::kv_blocks`], requests share a KV cache of limited size ([`kv`]): they wait for blocks, hit the cached
//! blocks of earlier requests, and `/metrics` has vLLM's metrics of the cache.
//!
//! Answers come from a [`Script`], or are random. Random answers are equal for the same [`Settings::seed`] and order of
//! requests, or for the same `seed` and prompt of a request.
//!
//! # The script
//!
//! The script is a TOML file. The first conversation that matches a request answers it. The number of assistant messages
//! in the request selects the turn, and the last turn repeats. If no conversation matches, the answer is random.
//!
//! ```toml
//! [[conversation]]
//! match = "hello"          # matches if the first user message contains this; without it, every request
//!
//! [[conversation.turn]]    # the request has no assistant message yet
//! [[conversation.turn.answer]]
//! reasoning = "A file is wanted."
//! content = "I write it."
//! tool_calls = [{ name = "bash", arguments = { command = "echo hello > hello.txt" } }]
//! delay_ms = 20            # before the first token
//! token_delay_ms = 5       # before every token; default: the server's
//!
//! [[conversation.turn]]    # the request has one; weights choose among several answers
//! [[conversation.turn.answer]]
//! content = "Done."
//! weight = 3               # default 1
//! finish_reason = "length" # default: vLLM's own reason
//! [[conversation.turn.answer]]
//! error = { status = 503, message = "overloaded" }
//!
//! [[conversation.turn]]
//! [[conversation.turn.answer]]
//! content = "This breaks off."
//! break_after = 2          # the connection is cut after this many tokens
//! [[conversation.turn.answer]]
//! content = "This hangs."
//! stall_after = 0          # nothing follows after this many tokens, and the connection stays open
//! ```
//!
//! `arguments` is a table, or a string that is sent literally (it need not be JSON). If `n` is above 1, the delays and the
//! fault of the first answer hold for the whole request.

mod answer;
mod chat;
mod errors;
mod fields;
mod generation;
pub mod kv;
mod metrics;
mod random;
mod request;
mod routes;
mod script;
mod server;
mod stream;
mod switches;
mod template;
#[cfg(test)]
mod tests;
mod tokens;
mod vocabulary;
mod wire;

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::{CancellationToken, DropGuard};

pub use self::script::{Script, ScriptError};
use self::server::Server;
pub use self::server::Stats;
pub use self::tokens::{END_OF_TURN, VOCABULARY_SIZE, decode, encode};

/// The number of tokens per block of the KV cache if the settings do not set another: vLLM's on GPUs.
pub const DEFAULT_BLOCK_SIZE: NonZeroU32 = match NonZeroU32::new(16) {
    Some(size) => size,
    None => NonZeroU32::MIN,
};

/// The settings of a simulator.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The address to listen on. Port 0 chooses a free port.
    pub listen: SocketAddr,
    /// The model that it serves.
    pub model: String,
    /// The answers. If `None`, answers are random words.
    pub script: Option<Script>,
    /// The seed of all random choices.
    pub seed: u64,
    /// The maximum number of tokens of prompt and answer together.
    pub max_model_len: u32,
    /// The delay before every token, unless the script sets another.
    pub token_delay: Duration,
    /// The number of blocks of the KV cache, at least 2. One of them, the null block, is not usable. `None` if it is not
    /// limited: then no request waits, and no token counts as cached.
    pub kv_blocks: Option<u32>,
    /// The number of tokens per block of the KV cache.
    pub kv_block_size: NonZeroU32,
    /// The delay before the first token for every 1,000 tokens of the prompt that are not cached.
    pub prefill_delay: Duration,
}

impl Default for Settings {
    /// Returns settings with a free port of the loopback interface, model `sim`, random words without delay, a context
    /// of 32,768 tokens, and a KV cache without limit.
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            model: "sim".to_owned(),
            script: None,
            seed: 0,
            max_model_len: 32_768,
            token_delay: Duration::ZERO,
            kv_blocks: None,
            kv_block_size: DEFAULT_BLOCK_SIZE,
            prefill_delay: Duration::ZERO,
        }
    }
}

/// The reason why a simulator did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is taken, or does not belong to this machine.
    #[error("cannot listen on {address}: {source}; choose another address")]
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// The KV cache has no usable block.
    #[error(
        "a KV cache of {blocks} blocks has none for requests, because one is the null block; set at least 2 blocks"
    )]
    KvBlocks {
        /// The requested number of blocks.
        blocks: u32,
    },
}

/// A running simulator. Dropping it stops it as well, without waiting.
#[derive(Debug)]
pub struct RunningSim {
    addr: SocketAddr,
    server: Arc<Server>,
    accepting: JoinHandle<()>,
    stop: DropGuard,
}

/// The time that running answers get when the simulator stops.
const GRACE: Duration = Duration::from_secs(2);

/// Starts to listen.
///
/// # Errors
/// The address is not available, or the KV cache has no usable block.
pub fn start(settings: Settings) -> BoxFuture<'static, Result<RunningSim, StartError>> {
    // Boxed for the reason given at `start` of rolltap-proxy.
    Box::pin(listen(settings))
}

async fn listen(settings: Settings) -> Result<RunningSim, StartError> {
    if let Some(blocks @ 0..2) = settings.kv_blocks {
        return Err(StartError::KvBlocks { blocks });
    }
    let address = settings.listen;
    let failed = |source| StartError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let addr = listener.local_addr().map_err(failed)?;
    let stopping = CancellationToken::new();
    let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let server = Arc::new(Server::new(settings, stopping.clone(), started));
    let accepting = tokio::spawn(accept(listener, Arc::clone(&server)));
    Ok(RunningSim { addr, server, accepting, stop: stopping.drop_guard() })
}

impl RunningSim {
    /// Returns the address that the simulator listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the counts so far.
    pub fn stats(&self) -> Stats {
        self.server.stats()
    }

    /// Makes `/health` answer 503 from now on, or 200 again.
    pub fn set_ill(&self, is_ill: bool) {
        self.server.switches.set_ill(is_ill);
    }

    /// Makes chat requests fail with 503 from now on, or serves them again.
    pub fn set_refusing(&self, is_refusing: bool) {
        self.server.switches.set_refusing(is_refusing);
    }

    /// Sets the version in `/weight_info`, like vLLM with `VLLM_SERVER_DEV_MODE=1`. Without a version the path does not
    /// exist.
    pub fn set_weights(&self, version: Option<&str>) {
        self.server.switches.set_weights(version);
    }

    /// Stops the simulator. It accepts no new request, waits two seconds for running answers, and does not wait for
    /// stalled ones.
    pub async fn shutdown(self) {
        drop(self.stop);
        if let Err(error) = self.accepting.await {
            tracing::error!(%error, "the simulator's listener failed");
        }
    }
}

async fn accept(listener: TcpListener, server: Arc<Server>) {
    let mut connections = JoinSet::new();
    let graceful = GracefulShutdown::new();
    loop {
        let stream = tokio::select! {
            () = server.stopping.cancelled() => break,
            accepted = listener.accept() => accepted,
            // Remove finished connections, so that the set does not grow.
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
        };
        match stream {
            Ok((stream, _)) => {
                connections.spawn(serve(stream, Arc::clone(&server), graceful.watcher()));
            }
            Err(error) => {
                // The usual reason is too many open files: wait until running requests have closed some.
                tracing::warn!(%error, "the simulator cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(listener);
    if tokio::time::timeout(GRACE, graceful.shutdown()).await.is_err() {
        tracing::info!("the simulator cuts off answers that are still running");
    }
    connections.shutdown().await;
}

async fn serve(stream: TcpStream, server: Arc<Server>, watcher: hyper_util::server::graceful::Watcher) {
    // Send each event as its own packet, without waiting for more data.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "no TCP_NODELAY on a simulator connection");
    }
    let service = service_fn(move |request| routes::answer(Arc::clone(&server), request));
    let connection =
        http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%error, "a simulator connection ended early");
    }
}
