//! A terminal that is a tmux session, controlled by tmux commands.

mod script;

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::Mutex;

pub use self::script::TmuxSession;
use self::script::{HISTORY_LIMIT, Look};
use super::{Observation, SendError};
use crate::screen::new_since;
use crate::truncate::Clipped;

/// Runs shell commands where the session is: in a container, or on this host.
pub trait RunCommand: Send + Sync {
    /// Runs `command` with a POSIX shell until it ends. The command may have 100 kB.
    fn run(&self, command: String) -> Ran<'_>;
}

/// A running command. It fails only if the command could not be started.
pub type Ran<'a> = Pin<Box<dyn Future<Output = io::Result<CommandOutput>> + Send + 'a>>;

/// The result of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandOutput {
    /// Whether the command ended with exit code 0.
    pub success: bool,
    /// The standard output. A limit of a few megabytes is sufficient.
    pub stdout: Vec<u8>,
    /// The standard error.
    pub stderr: Vec<u8>,
}

/// Why there is no session.
#[derive(Debug, Error)]
pub enum TmuxError {
    /// tmux's commands cannot be run.
    #[error("tmux could not be run")]
    Run(#[from] io::Error),
    /// tmux is not installed, or failed to start.
    #[error("tmux did not start a session: {0}")]
    Start(String),
}

pub(super) struct TmuxTerminal {
    runner: Box<dyn RunCommand>,
    session: TmuxSession,
    seen: Mutex<Seen>,
    closed: AtomicBool,
}

/// The state at the last observation.
#[derive(Default)]
struct Seen {
    /// The screen, or `None` before the first observation.
    screen: Option<String>,
    /// The number of lines that had scrolled off.
    scrolled: u64,
    /// The screen to show if a later command fails.
    last: String,
}

/// The interval between checks of whether the session still exists.
const PULSE: Duration = Duration::from_secs(2);
/// The shortest interval between two looks, because each look runs a command.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

impl TmuxTerminal {
    pub(super) async fn start(runner: Box<dyn RunCommand>, session: TmuxSession) -> Result<Self, TmuxError> {
        let output = runner.run(session.start()).await?;
        if !output.success {
            return Err(TmuxError::Start(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        Ok(Self { runner, session, seen: Mutex::default(), closed: AtomicBool::new(false) })
    }

    pub(super) async fn send_keys(&self, keystrokes: &str) -> Result<(), SendError> {
        for command in self.session.send_keys(keystrokes) {
            self.run(command).await.ok_or(SendError::Closed)?;
        }
        Ok(())
    }

    pub(super) async fn observe(&self) -> Observation {
        let mut seen = self.seen.lock().await;
        let output = self.run(self.session.look(seen.scrolled)).await;
        let Some(look) = output.as_deref().and_then(Look::read) else {
            return Observation::Screen(Clipped::whole(&seen.last).to_string());
        };
        let new = seen.screen.as_deref().and_then(|screen| new_since(screen, &look.since));
        let observation = match new.filter(|_| !look.alternate) {
            Some(new) => Observation::NewOutput(Clipped::whole(new).to_string()),
            None => Observation::Screen(Clipped::whole(&look.screen).to_string()),
        };
        seen.last.clone_from(&look.screen);
        // Full-screen programs have no history. The position in the main screen remains until they end.
        if !look.alternate {
            seen.screen = Some(look.screen);
            seen.scrolled = look.scrolled;
            // Clear the history at half its limit, because tmux discards its oldest lines at the limit and the count
            // would no longer match.
            if look.scrolled > HISTORY_LIMIT / 2 && self.run(self.session.forget()).await.is_some() {
                seen.scrolled = 0;
            }
        }
        observation
    }

    pub(super) async fn screen(&self) -> String {
        let output = self.run(self.session.screen()).await;
        output.map(|text| script::plain(&text)).unwrap_or_default()
    }

    // tmux reports no new output, so two equal screens show that the program is quiet.
    pub(super) async fn settled(&self, quiet: Duration) {
        let mut before = self.screen().await;
        while !self.is_closed() {
            tokio::time::sleep(quiet.max(SHORTEST_PAUSE)).await;
            let now = self.screen().await;
            if now == before && !now.is_empty() {
                return;
            }
            before = now;
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    pub(super) async fn closed(&self) {
        while !self.is_closed() {
            tokio::time::sleep(PULSE).await;
            self.run(self.session.is_alive()).await;
        }
    }

    /// Returns the command's output. A command that fails means that the session has ended.
    async fn run(&self, command: String) -> Option<String> {
        if self.is_closed() {
            return None;
        }
        let failure = match self.runner.run(command).await {
            Ok(output) if output.success => {
                return Some(String::from_utf8_lossy(&output.stdout).into_owned());
            }
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => error.to_string(),
        };
        tracing::debug!(failure, "the session of tmux is gone");
        self.closed.store(true, Ordering::Relaxed);
        None
    }
}
