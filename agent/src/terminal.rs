//! A terminal: keystrokes in, observations out.
//!
//! It is either over a stream of bytes, with a screen emulator of our own, which needs nothing inside; or a session of
//! tmux inside, which a human can share.

mod streams;
mod tmux;

use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};

use self::streams::StreamTerminal;
use self::tmux::TmuxTerminal;
pub use self::tmux::{CommandOutput, Ran, RunCommand, TmuxError, TmuxSession};
pub use crate::screen::{Observation, TerminalSize};

/// Why keystrokes could not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SendError {
    /// The terminal has ended, in either direction.
    #[error("the terminal is closed")]
    Closed,
    /// Earlier input is still waiting: nothing of this one was sent.
    #[error("the program in the terminal is not reading its input")]
    NotReading,
}

/// A live terminal. See the [module documentation](self).
pub struct Terminal(Kind);

enum Kind {
    Streams(StreamTerminal),
    Tmux(TmuxTerminal),
}

impl Terminal {
    /// A terminal whose program writes to `reader` and reads from `writer`. Must be called inside a tokio runtime.
    pub fn new(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
        size: TerminalSize,
    ) -> Self {
        Self(Kind::Streams(StreamTerminal::new(reader, writer, size)))
    }

    /// A shell in a new session of tmux, which has to be there.
    ///
    /// # Errors
    /// The session does not start.
    pub async fn tmux(runner: impl RunCommand + 'static, session: TmuxSession) -> Result<Self, TmuxError> {
        Ok(Self(Kind::Tmux(TmuxTerminal::start(Box::new(runner), session).await?)))
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
        match &self.0 {
            Kind::Streams(streams) => streams.send_keys(keystrokes).await,
            Kind::Tmux(tmux) => tmux.send_keys(keystrokes).await,
        }
    }

    /// Output since the last observation (lines that scrolled off the screen included), else the current screen. Of
    /// more than 10 000 bytes it holds the first and the last 5 000. Works on a closed terminal too.
    pub async fn observe(&self) -> Observation {
        match &self.0 {
            Kind::Streams(streams) => streams.observe(),
            Kind::Tmux(tmux) => tmux.observe().await,
        }
    }

    /// The current screen as plain text, without trailing blank lines. Does not count as an observation.
    pub async fn screen(&self) -> String {
        match &self.0 {
            Kind::Streams(streams) => streams.screen(),
            Kind::Tmux(tmux) => tmux.screen().await,
        }
    }

    /// Returns when some output has come and then none for `quiet`; at the latest after `at_most`, or when the
    /// terminal closes.
    pub async fn settled(&self, quiet: Duration, at_most: Duration) {
        let settling = async {
            match &self.0 {
                Kind::Streams(streams) => streams.settled(quiet).await,
                Kind::Tmux(tmux) => tmux.settled(quiet).await,
            }
        };
        // Running out of time is one of the two good ends.
        let _in_time = tokio::time::timeout(at_most, settling).await;
    }

    /// Whether it has ended. Of tmux this is what the last look told.
    pub fn is_closed(&self) -> bool {
        match &self.0 {
            Kind::Streams(streams) => streams.is_closed(),
            Kind::Tmux(tmux) => tmux.is_closed(),
        }
    }

    /// Returns when it has ended; all of a stream's output is on the screen by then.
    pub async fn closed(&self) {
        match &self.0 {
            Kind::Streams(streams) => streams.closed().await,
            Kind::Tmux(tmux) => tmux.closed().await,
        }
    }
}
