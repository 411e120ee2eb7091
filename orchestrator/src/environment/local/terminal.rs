//! Opens a terminal in a local environment.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pty_process::{OwnedReadPty, Size};
use rolltap_agent::terminal::TerminalSize;
use tokio::io::{AsyncRead, ReadBuf};

use super::{LocalEnvironment, forks};
use crate::environment::{EnvironmentError, TerminalStreams};

impl LocalEnvironment {
    /// Opens a shell that reads no start-up files, because those of the host's user do not belong to the task.
    pub(in crate::environment) fn open_terminal(
        &self,
        size: TerminalSize,
        env: BTreeMap<String, String>,
        user: Option<&str>,
    ) -> Result<TerminalStreams, EnvironmentError> {
        if let Some(user) = user {
            self.warn_of_user(user);
        }
        let failed = |error: pty_process::Error| EnvironmentError::Spawn {
            program: self.shell(),
            source: match error {
                pty_process::Error::Io(error) => error,
                other => io::Error::other(other),
            },
        };
        let (terminal, inner) = pty_process::open().map_err(failed)?;
        terminal.resize(Size::new(size.rows.max(1), size.cols.max(1))).map_err(failed)?;
        let arguments: &[&str] =
            if self.shell() == "bash" { &["--noprofile", "--norc", "-i"] } else { &["-i"] };
        let command = pty_process::Command::new(self.shell())
            .args(arguments)
            .env_clear()
            .envs(self.env())
            .env("TERM", "xterm-256color")
            .env("PS1", "\\u@\\h:\\w\\$ ")
            .envs(&env)
            .current_dir(&self.paths().workdir);
        let shell = forks::allowed(|| command.spawn(inner)).map_err(failed)?;
        // The runtime reaps the process after its end, which `stop` ensures.
        drop(shell);
        let (reader, writer) = terminal.into_split();
        Ok(TerminalStreams { reader: Box::new(UntilClosed(reader)), writer: Box::new(writer) })
    }
}

/// Converts the error that Linux reports for a terminal without open processes into the end of the stream.
struct UntilClosed(OwnedReadPty);

impl AsyncRead for UntilClosed {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready!(Pin::new(&mut self.get_mut().0).poll_read(context, buffer));
        Poll::Ready(match read {
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => Ok(()),
            other => other,
        })
    }
}
