//! A terminal over a byte stream, with a screen emulator.
//!
//! One task per terminal moves the bytes in both directions and feeds the screen emulator. The stream's own
//! back-pressure slows a program that floods its output. A program that does not read its input fills a short queue,
//! and then [`StreamTerminal::send_keys`] returns an error. The task ends with the stream, or when the terminal is
//! dropped.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::{Observation, Recording, SendError, TerminalSize};
use crate::keys;
use crate::screen::Screen;

pub(super) struct StreamTerminal {
    screen: Arc<Mutex<Screen>>,
    keys: mpsc::Sender<Bytes>,
    /// The number of bytes read so far.
    output: watch::Receiver<u64>,
    closed: CancellationToken,
    _pump: AbortOnDropHandle<()>,
}

/// The number of keystroke strings that may wait behind the current one.
const QUEUED_KEYS: usize = 16;
/// The time for which the queue may be full before sending fails.
const SEND_PATIENCE: Duration = Duration::from_secs(10);
/// The maximal number of bytes per read, and so the longest work under the lock of the screen. A pseudo-terminal also
/// gives no more at once.
const READ_CHUNK: usize = 4096;

impl StreamTerminal {
    pub(super) fn new(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
        size: TerminalSize,
        recording: Option<Recording>,
    ) -> Self {
        let screen = Arc::new(Mutex::new(Screen::new(size)));
        let (keys, keys_taken) = mpsc::channel(QUEUED_KEYS);
        let (output_read, output) = watch::channel(0);
        let closed = CancellationToken::new();
        let end = closed.clone().drop_guard();
        let pump_screen = Arc::clone(&screen);
        let pump = tokio::spawn(async move {
            // The task owns the guard, so the terminal counts as closed however the task ends.
            let _end = end;
            pump(reader, writer, keys_taken, &pump_screen, &output_read, recording).await;
        });
        Self { screen, keys, output, closed, _pump: AbortOnDropHandle::new(pump) }
    }

    pub(super) async fn send_keys(&self, keystrokes: &str) -> Result<(), SendError> {
        // The lock ends with this statement, so that the pump can feed the screen during the wait.
        let bytes = keys::encode(keystrokes, lock(&self.screen).application_cursor()).into_owned();
        match tokio::time::timeout(SEND_PATIENCE, self.keys.send(bytes.into())).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(SendError::Closed),
            Err(_) => Err(SendError::NotReading),
        }
    }

    pub(super) fn observe(&self) -> Observation {
        lock(&self.screen).observe()
    }

    pub(super) fn screen(&self) -> String {
        lock(&self.screen).text()
    }

    pub(super) async fn settled(&self, quiet: Duration) {
        // The receiver may have missed output before this call. Only the first output matters here, not its time.
        let mut output = self.output.clone();
        if *output.borrow_and_update() == 0 && output.changed().await.is_err() {
            return;
        }
        while let Ok(Ok(())) = tokio::time::timeout(quiet, output.changed()).await {}
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    pub(super) async fn closed(&self) {
        self.closed.cancelled().await;
    }
}

/// Moves bytes in both directions until the program's side ends.
async fn pump(
    mut reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWrite + Unpin,
    mut keys: mpsc::Receiver<Bytes>,
    screen: &Mutex<Screen>,
    output: &watch::Sender<u64>,
    mut recording: Option<Recording>,
) {
    let mut chunk = BytesMut::with_capacity(READ_CHUNK);
    let mut input = Input { pending: BytesMut::new(), unflushed: false, open: true };
    loop {
        tokio::select! {
            read = reader.read_buf(&mut chunk) => {
                match read {
                    Ok(0) => return,
                    Ok(_) => {}
                    // A pseudo-terminal ends with EIO when its last program has ended.
                    Err(error) => {
                        tracing::debug!(%error, "terminal stream ended");
                        return;
                    }
                }
                // The screen before the counter: a waiter that sees new output must also find it on the screen.
                let replies = lock(screen).feed(&chunk);
                input.reply(&replies);
                output.send_modify(|bytes| *bytes += chunk.len() as u64);
                if let Some(recording) = &mut recording {
                    recording.append(&chunk).await;
                }
                chunk.clear();
            }
            moved = input.write_some(&mut writer), if input.wants_writer() => match moved {
                Ok(count) => input.wrote(count),
                Err(error) => {
                    tracing::debug!(%error, "terminal takes no more input");
                    // Only the input ends. A program may close its input and still write output.
                    input.close(&mut keys);
                }
            },
            Some(bytes) = keys.recv(), if input.wants_keys() => input.pending.extend_from_slice(&bytes),
        }
        // A stream that is always ready must not block other tasks of this thread.
        tokio::task::consume_budget().await;
    }
}

/// The input on its way to the program.
struct Input {
    pending: BytesMut,
    unflushed: bool,
    open: bool,
}

impl Input {
    /// The limit of waiting bytes for terminal replies. A program that sends requests without reading gets no further
    /// replies.
    const PENDING_REPLIES: usize = 4096;

    fn wants_writer(&self) -> bool {
        self.open && (self.unflushed || !self.pending.is_empty())
    }

    /// Writes some of the pending bytes and returns their number, or flushes and returns 0. Cancellation-safe: if it is
    /// dropped early, no bytes were written.
    async fn write_some(&self, writer: &mut (impl AsyncWrite + Unpin)) -> io::Result<usize> {
        if self.pending.is_empty() {
            writer.flush().await.map(|()| 0)
        } else {
            match writer.write(&self.pending).await? {
                0 => Err(io::ErrorKind::WriteZero.into()),
                count => Ok(count),
            }
        }
    }

    fn wants_keys(&self) -> bool {
        // One keystroke string at a time, so that a full queue shows that the program does not read.
        self.open && self.pending.is_empty() && !self.unflushed
    }

    fn reply(&mut self, replies: &[u8]) {
        if self.open && self.pending.len() + replies.len() <= Self::PENDING_REPLIES {
            self.pending.extend_from_slice(replies);
        }
    }

    fn wrote(&mut self, count: usize) {
        self.pending.advance(count.min(self.pending.len()));
        self.unflushed = count > 0;
    }

    /// Stops input after the program closed its side. Its output may still arrive.
    fn close(&mut self, keys: &mut mpsc::Receiver<Bytes>) {
        self.open = false;
        self.pending.clear();
        keys.close();
    }
}

/// Locks the screen. A poisoned lock is usable, because the emulator may have panicked on some output.
fn lock(screen: &Mutex<Screen>) -> MutexGuard<'_, Screen> {
    screen.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
