//! A terminal over any byte stream: keystrokes in, observations out.
//!
//! One task per terminal moves the bytes both ways and feeds the screen emulator. A program that floods its output is
//! held back by the stream itself; a program that does not read its input fills a short queue, and then
//! [`Terminal::send_keys`] says so. The task ends when the stream does or the terminal is dropped.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::keys;
pub use crate::screen::Observation;
use crate::screen::Screen;

/// Rows and columns of a terminal; a zero counts as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// Lines on the screen.
    pub rows: u16,
    /// Characters on a line.
    pub cols: u16,
}

impl Default for TerminalSize {
    /// 40 rows of 160 columns, Terminus-2's window.
    fn default() -> Self {
        Self { rows: 40, cols: 160 }
    }
}

/// Why keystrokes could not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SendError {
    /// The stream has ended, in either direction.
    #[error("the terminal is closed")]
    Closed,
    /// Earlier input is still waiting: nothing of this one was sent.
    #[error("the program in the terminal is not reading its input")]
    NotReading,
}

/// A live terminal. See the [module documentation](self).
pub struct Terminal {
    screen: Arc<Mutex<Screen>>,
    keys: mpsc::Sender<Bytes>,
    /// Bytes read so far.
    output: watch::Receiver<u64>,
    closed: CancellationToken,
    _pump: AbortOnDropHandle<()>,
}

/// Keystroke strings that may wait behind the one being written.
const QUEUED_KEYS: usize = 16;
/// How long a full queue may stay full before sending gives up.
const SEND_PATIENCE: Duration = Duration::from_secs(10);
/// Most bytes taken from the stream at once, and so the most that the screen is locked for. A pseudo-terminal gives no
/// more either.
const READ_CHUNK: usize = 4096;

impl Terminal {
    /// A terminal whose program writes to `reader` and reads from `writer`. Must be called inside a tokio runtime.
    pub fn new(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
        size: TerminalSize,
    ) -> Self {
        let screen = Arc::new(Mutex::new(Screen::new(size)));
        let (keys, keys_taken) = mpsc::channel(QUEUED_KEYS);
        let (output_read, output) = watch::channel(0);
        let closed = CancellationToken::new();
        let end = closed.clone().drop_guard();
        let pump_screen = Arc::clone(&screen);
        let pump = tokio::spawn(async move {
            // Held here, so that the terminal counts as closed however this task ends.
            let _end = end;
            pump(reader, writer, keys_taken, &pump_screen, &output_read).await;
        });
        Self { screen, keys, output, closed, _pump: AbortOnDropHandle::new(pump) }
    }

    /// Types `keystrokes`: text as it stands, or one key if the whole string is the name of one as tmux spells it
    /// (`C-c`, `Enter`, `Up`). Returns once the keystrokes are on their way, not when the program has read them.
    ///
    /// # Errors
    /// The terminal is closed, or the program has not read earlier input for ten seconds.
    pub async fn send_keys(&self, keystrokes: &str) -> Result<(), SendError> {
        if keystrokes.is_empty() {
            return Ok(());
        }
        let bytes = keys::encode(keystrokes, lock(&self.screen).application_cursor()).into_owned();
        match tokio::time::timeout(SEND_PATIENCE, self.keys.send(bytes.into())).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(SendError::Closed),
            Err(_) => Err(SendError::NotReading),
        }
    }

    /// Output since the last observation (lines that scrolled off the screen included), else the current screen. Of
    /// more than 10 000 bytes it holds the first and the last 5 000. Works on a closed terminal too.
    pub async fn observe(&self) -> Observation {
        lock(&self.screen).observe()
    }

    /// The current screen as plain text, without trailing blank lines. Does not count as an observation.
    pub async fn screen(&self) -> String {
        lock(&self.screen).text()
    }

    /// Returns when some output has come and then none for `quiet`; at the latest after `at_most`, or when the
    /// terminal closes.
    pub async fn settled(&self, quiet: Duration, at_most: Duration) {
        let mut output = self.output.clone();
        let settling = async {
            if *output.borrow_and_update() == 0 && output.changed().await.is_err() {
                return;
            }
            while let Ok(Ok(())) = tokio::time::timeout(quiet, output.changed()).await {}
        };
        // Running out of time is one of the two good ends.
        let _in_time = tokio::time::timeout(at_most, settling).await;
    }

    /// Whether the stream has ended.
    pub fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// Returns when the stream has ended; all of its output is on the screen by then.
    pub async fn closed(&self) {
        self.closed.cancelled().await;
    }
}

/// Moves bytes both ways until the program's side ends.
async fn pump(
    mut reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWrite + Unpin,
    mut keys: mpsc::Receiver<Bytes>,
    screen: &Mutex<Screen>,
    output: &watch::Sender<u64>,
) {
    let mut chunk = BytesMut::with_capacity(READ_CHUNK);
    let mut input = Input { pending: BytesMut::new(), unflushed: false, open: true };
    loop {
        tokio::select! {
            read = reader.read_buf(&mut chunk) => {
                match read {
                    Ok(0) => return,
                    Ok(_) => {}
                    // A pseudo-terminal ends with EIO when its last program is gone.
                    Err(error) => {
                        tracing::debug!(%error, "terminal stream ended");
                        return;
                    }
                }
                let replies = lock(screen).feed(&chunk);
                input.reply(&replies);
                output.send_modify(|bytes| *bytes += chunk.len() as u64);
                chunk.clear();
            }
            moved = input.write_some(&mut writer), if input.wants_writer() => match moved {
                Ok(count) => input.wrote(count),
                Err(error) => {
                    tracing::debug!(%error, "terminal takes no more input");
                    input.close(&mut keys);
                }
            },
            Some(bytes) = keys.recv(), if input.wants_keys() => input.pending.extend_from_slice(&bytes),
        }
        // Streams that are always ready must not keep this task on its thread.
        tokio::task::consume_budget().await;
    }
}

/// What is on its way to the program.
struct Input {
    pending: BytesMut,
    unflushed: bool,
    open: bool,
}

impl Input {
    /// Answers wait behind keystrokes only up to this many bytes; a program that asks without reading gets no more.
    const PENDING_REPLIES: usize = 4096;

    fn wants_writer(&self) -> bool {
        self.open && (self.unflushed || !self.pending.is_empty())
    }

    /// Writes some of the pending bytes and returns how many, or flushes and returns 0. Dropped half-way it has done
    /// nothing.
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

    /// The program takes no more input; its output may still come.
    fn close(&mut self, keys: &mut mpsc::Receiver<Bytes>) {
        self.open = false;
        self.pending.clear();
        keys.close();
    }
}

/// The screen stays usable even if the emulator panicked on some output.
fn lock(screen: &Mutex<Screen>) -> MutexGuard<'_, Screen> {
    screen.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "terminal_tests.rs"]
mod tests;
