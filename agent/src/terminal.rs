//! A terminal: keystrokes in, observations out.
//!
//! There are two kinds. One is a byte stream with rolltap's own screen emulator, which needs nothing inside the
//! environment. The other is a tmux session in the environment, which a human can share.

mod recording;
mod streams;
mod tmux;

use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};

pub use self::recording::Recording;
use self::streams::StreamTerminal;
use self::tmux::TmuxTerminal;
pub use self::tmux::{CommandOutput, Ran, RunCommand, TmuxError, TmuxSession};
pub use crate::screen::{Observation, TerminalSize};

/// Why keystrokes were not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SendError {
    /// The terminal has ended, in either direction.
    #[error("the terminal is closed")]
    Closed,
    /// Earlier input is still waiting, and no part of the new input was sent.
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
    /// Returns a terminal whose program writes to `reader` and reads from `writer`. Must be called inside a tokio
    /// runtime.
    pub fn new(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
        size: TerminalSize,
    ) -> Self {
        Self(Kind::Streams(StreamTerminal::new(reader, writer, size, None)))
    }

    /// Returns a terminal like [`Self::new`], whose output is recorded.
    pub fn recorded(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
        size: TerminalSize,
        recording: Recording,
    ) -> Self {
        Self(Kind::Streams(StreamTerminal::new(reader, writer, size, Some(recording))))
    }

    /// Starts a shell in a new tmux session. tmux must be installed.
    ///
    /// # Errors
    /// The session does not start.
    pub async fn tmux(runner: impl RunCommand + 'static, session: TmuxSession) -> Result<Self, TmuxError> {
        Ok(Self(Kind::Tmux(TmuxTerminal::start(Box::new(runner), session).await?)))
    }

    /// Types `keystrokes`: literal text, or one key if the whole string is a key's name in tmux's spelling (`C-c`,
    /// `Enter`, `Up`). Returns once the keystrokes are queued or sent, not when the program has read them.
    ///
    /// # Errors
    /// The terminal is closed, or the program has not read earlier input for ten seconds.
    pub async fn send_keys(&self, keystrokes: &str) -> Result<(), SendError> {
        // An empty command is only a wait.
        if keystrokes.is_empty() {
            return Ok(());
        }
        match &self.0 {
            Kind::Streams(streams) => streams.send_keys(keystrokes).await,
            Kind::Tmux(tmux) => tmux.send_keys(keystrokes).await,
        }
    }

    /// Returns the output since the last observation, including lines that scrolled off the screen, or else the current
    /// screen. A result of more than 10 000 bytes is reduced to the first and the last 5 000. A closed terminal can
    /// also be observed.
    pub async fn observe(&self) -> Observation {
        match &self.0 {
            Kind::Streams(streams) => streams.observe(),
            Kind::Tmux(tmux) => tmux.observe().await,
        }
    }

    /// Returns the current screen as plain text, without trailing blank lines. This does not count as an observation.
    pub async fn screen(&self) -> String {
        match &self.0 {
            Kind::Streams(streams) => streams.screen(),
            Kind::Tmux(tmux) => tmux.screen().await,
        }
    }

    /// Returns when there was some output and then none for `quiet`. Returns after `at_most`, or when the terminal
    /// closes, at the latest.
    pub async fn settled(&self, quiet: Duration, at_most: Duration) {
        let settling = async {
            match &self.0 {
                Kind::Streams(streams) => streams.settled(quiet).await,
                Kind::Tmux(tmux) => tmux.settled(quiet).await,
            }
        };
        // A timeout is a normal result here.
        let _in_time = tokio::time::timeout(at_most, settling).await;
    }

    /// Whether the terminal has ended. For tmux this is the state at the last command.
    pub fn is_closed(&self) -> bool {
        match &self.0 {
            Kind::Streams(streams) => streams.is_closed(),
            Kind::Tmux(tmux) => tmux.is_closed(),
        }
    }

    /// Returns when the terminal has ended. All output of a stream is on the screen then.
    pub async fn closed(&self) {
        match &self.0 {
            Kind::Streams(streams) => streams.closed().await,
            Kind::Tmux(tmux) => tmux.closed().await,
        }
    }
}
