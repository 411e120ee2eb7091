//! The socket of the admin plane. It closes the connections of clients that do not read their answers, because unread
//! answers take memory.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::time::{Instant, Sleep};

use crate::common::metrics::Metrics;
use crate::common::tls::{AcceptedStream, ServedTls};

/// Accepts connections and limits how long each may block ([`Patient`]).
#[derive(Debug)]
pub(crate) struct PatientListener {
    pub(crate) listener: TcpListener,
    /// `None` for HTTP without TLS.
    pub(crate) tls: Option<Arc<ServedTls>>,
    pub(crate) patience: Duration,
    pub(crate) metrics: Arc<Metrics>,
}

impl Listener for PatientListener {
    type Io = Patient<AcceptedStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        // axum's own accept retries after errors, for example if file descriptors run out.
        let (stream, client) = <TcpListener as Listener>::accept(&mut self.listener).await;
        let metrics = Arc::clone(&self.metrics);
        let patience = self.patience;
        let cut_off = Box::new(move || {
            metrics.reader_cut_off();
            tracing::warn!(%client, ?patience, "cut off a reader that took nothing of its answer for so long");
        });
        let stream = AcceptedStream::new(stream, self.tls.clone());
        (Patient { stream, patience, blocked: None, cut_off }, client)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// A connection whose writes fail once the client has read nothing for `patience`.
pub(crate) struct Patient<S> {
    stream: S,
    patience: Duration,
    /// The timer of a blocked write. It starts when a write blocks and fires after `patience`. `None` if no write
    /// blocks.
    blocked: Option<Pin<Box<Sleep>>>,
    cut_off: Box<dyn Fn() + Send>,
}

impl<S: fmt::Debug> fmt::Debug for Patient<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Patient").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl<S> Patient<S> {
    fn waited(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        // Any progress restarts the timer: a slow client is allowed, a stopped one is not.
        if written.is_ready() {
            self.blocked = None;
            return written;
        }
        let until = Instant::now() + self.patience;
        let blocked = self.blocked.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        if blocked.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.blocked = None;
        (self.cut_off)();
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.waited(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.waited(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn connection(
        room: usize,
    ) -> (Patient<tokio::io::DuplexStream>, tokio::io::DuplexStream, Arc<AtomicU32>) {
        let (ours, theirs) = tokio::io::duplex(room);
        let cut_off = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&cut_off);
        let cut = Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        (Patient { stream: ours, patience: PATIENCE, blocked: None, cut_off: cut }, theirs, cut_off)
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_cut_off_when_patience_is_over() {
        let (mut ours, _theirs, cut_off) = connection(4);
        let begun = Instant::now();
        let error = ours.write_all(b"more than there is room for").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!((begun.elapsed().as_secs(), cut_off.load(Ordering::Relaxed)), (60, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_a_little_now_and_then_is_waited_for() {
        let (mut ours, mut theirs, cut_off) = connection(4);
        let reader = tokio::spawn(async move {
            let mut taken = [0; 20];
            for byte in &mut taken {
                tokio::time::sleep(PATIENCE - Duration::from_secs(1)).await;
                *byte = theirs.read_u8().await.unwrap();
            }
            taken
        });
        let sent = *b"twenty bytes in all.";
        ours.write_all(&sent).await.unwrap();
        assert_eq!((reader.await.unwrap(), cut_off.load(Ordering::Relaxed)), (sent, 0));
    }
}
