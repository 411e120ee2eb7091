//! The pages over HTTP. The server of `rolltap view` answers programs of this machine only. [`pages_below`] returns the
//! same pages for another server, which guards them.

mod guard;
mod pages;
mod records;
mod screens;

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn;
use axum::routing::get;
use tokenizers::Tokenizer;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::collection::Collection;
use crate::tokenizer::{LazyTokenizer, read_tokenizer};

/// Why the pages cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The port is in use, or not permitted.
    #[error("cannot listen on {address}: choose another --port, or 0 for a free one")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// Serving ended with an error.
    #[error("cannot serve the pages")]
    Serve(#[source] std::io::Error),
}

/// The sources of every page.
#[derive(Debug)]
pub(crate) struct Viewer {
    pub(crate) collection: Collection,
    /// Makes texts of token ids.
    pub(crate) tokenizer: LazyTokenizer,
    /// The path of the first page, without a slash at its end.
    pub(crate) base: &'static str,
    /// Bounds the pages that are made at once, because a proxy serves them beside its agents.
    pub(crate) readers: Arc<Semaphore>,
}

/// The number of pages that are made at once.
const READERS: usize = 2;

impl Viewer {
    fn new(collection: Collection, tokenizer: LazyTokenizer, base: &'static str) -> Arc<Self> {
        Arc::new(Self { collection, tokenizer, base, readers: Arc::new(Semaphore::new(READERS)) })
    }
}

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    viewer: Arc<Viewer>,
}

impl Server {
    /// Listens on a port of loopback. Port 0 takes a free port.
    ///
    /// # Errors
    /// The port cannot be used.
    pub async fn bind(
        collection: Collection,
        tokenizer: Option<Tokenizer>,
        port: u16,
    ) -> Result<Self, ServerError> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let failed = |source| ServerError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let tokenizer = LazyTokenizer::new(Box::new(|| tokenizer));
        Ok(Self { listener, address, viewer: Viewer::new(collection, tokenizer, "") })
    }

    /// Returns the address of the first page.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Serves the pages until `stopped`.
    ///
    /// # Errors
    /// The listener fails.
    pub async fn serve(self, stopped: impl Future<Output = ()> + Send) -> Result<(), ServerError> {
        // Streams of changes never end by themselves, so the server does not wait for its connections.
        tokio::select! {
            served = axum::serve(self.listener, router(self.viewer).layer(from_fn(guard::guard))) => served.map_err(ServerError::Serve),
            () = stopped => Ok(()),
        }
    }
}

/// Returns the pages for a server that nests them below the path `base`. That server decides who may see them. The
/// tokenizer is read when the first page needs it; if that fails, the pages show ids.
pub fn pages_below(base: &'static str, collection: Collection, tokenizer: Option<PathBuf>) -> Router {
    let tokenizer = LazyTokenizer::new(Box::new(move || read_tokenizer(&tokenizer?).ok()));
    router(Viewer::new(collection, tokenizer, base))
}

/// Returns the router of all pages.
fn router(viewer: Arc<Viewer>) -> Router {
    Router::new()
        .route("/", get(pages::jobs))
        .route("/jobs/{job}", get(pages::job))
        .route("/jobs/{job}/changes", get(pages::changes))
        .route("/jobs/{job}/groups/{group}", get(pages::group))
        .route("/jobs/{job}/trials/{trial}", get(pages::trial))
        .route("/jobs/{job}/trials/{trial}/files/{name}", get(pages::file))
        .route("/jobs/{job}/trials/{trial}/branches/{branch}", get(pages::branch))
        .route("/jobs/{job}/trials/{trial}/branches/{branch}/tokens", get(pages::tokens))
        .route("/jobs/{job}/trials/{trial}/records/{format}", get(records::record))
        .route("/jobs/{job}/trials/{trial}/records/{format}/tokens", get(records::record_tokens))
        .route("/jobs/{job}/trials/{trial}/screens", get(screens::page))
        .route("/jobs/{job}/trials/{trial}/screens/window", get(screens::window))
        .route("/assets/{hash}/{name}", get(pages::asset))
        .fallback(pages::no_such_page)
        .layer(from_fn(guard::with_security_headers))
        .with_state(viewer)
}

#[cfg(test)]
mod tests;
