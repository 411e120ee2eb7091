//! The connection of the command line to its user: output, errors, logs and signals.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, LazyLock, OnceLock};
use std::thread;

use anyhow::Context;
use rolltap_orchestrator::common::cancellation::Cancellation;
use rolltap_orchestrator::environment::EnvironmentKind;
use rolltap_orchestrator::job::JobError;
use rolltap_proxy::Redaction;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

/// Starts the log on standard error. Servers log at level info with times, other commands at level warn. Each
/// `--verbose` adds a level.
pub(crate) fn start_logging(verbose: u8, is_server: bool) {
    let level = match verbose + u8::from(is_server) {
        0 => "warn",
        1 => "rolltap=info,rolltap_proxy=info,rolltap_orchestrator=info,rolltap_agent=info,warn",
        2 => "rolltap=debug,rolltap_proxy=debug,rolltap_orchestrator=debug,rolltap_agent=debug,info",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_env("ROLLTAP_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Lines(std::io::stderr()))
        // Without this setting, a failed write is reported with `eprintln!`, which panics in the thread that logs.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal());
    if is_server || verbose > 0 { logs.init() } else { logs.without_time().with_target(false).init() }
}

/// Secrets to remove before a configuration is read, and in commands without a configuration.
static ALWAYS_SECRET: LazyLock<Arc<Redaction>> = LazyLock::new(Arc::default);

/// Secrets to remove from each line, once the configuration is read.
static REDACTION: OnceLock<Arc<Redaction>> = OnceLock::new();

/// Removes these secrets from all later lines of the log. Only the first call has an effect.
pub(crate) fn hide_from_logs(secrets: Arc<Redaction>) {
    // A process has one configuration, so a second value would be the same.
    let _ = REDACTION.set(secrets);
}

/// A log writer that makes each event one line without secrets. Events may contain foreign text with newlines.
struct Lines<W>(W);

impl<W: Write> Write for Lines<W> {
    /// Writes one whole event. The subscriber passes each event in one call.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = text.trim_end_matches('\n').replace('\r', "\\r").replace('\n', "\\n");
        let redacted = REDACTION.get().unwrap_or(&ALWAYS_SECRET).redacted(&line);
        self.0.write_all(redacted.as_bytes())?;
        self.0.write_all(b"\n")?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Prints to standard output. A failed write is ignored: the reader has closed the pipe, as with `| head`.
pub(crate) fn say(text: impl Display) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Prints to standard error. A failed write is ignored, as on a full disk.
pub(crate) fn note(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Prints an error with its causes, and with a hint if there is one.
pub(crate) fn report(error: &anyhow::Error) {
    let mut said = error.to_string();
    note(format_args!("error: {said}"));
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        // Some errors repeat their source in their own message.
        if !said.contains(&cause) {
            note(format_args!("  caused by: {cause}"));
            said = cause;
        }
    }
    if let Some(hint) = hint(error) {
        note(format_args!("hint: {hint}"));
    }
}

fn hint(error: &anyhow::Error) -> Option<&'static str> {
    match error.downcast_ref::<JobError>()? {
        JobError::Host { kind: EnvironmentKind::Docker, .. } => {
            Some("start Docker (`docker info` must work), or try things out without it: -e local")
        }
        _ => None,
    }
}

/// Ctrl-C and SIGTERM. The signals are caught from the creation of this value on.
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    /// Is cancelled at the end of standard input, if `watch_input` was called.
    input_ended: CancellationToken,
}

impl StopSignals {
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen to signals");
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            input_ended: CancellationToken::new(),
        })
    }

    /// Makes the end of standard input count as a signal. An error while reading is an end.
    ///
    /// # Errors
    /// The system starts no further thread.
    pub(crate) fn watch_input(&self) -> anyhow::Result<()> {
        let ended = self.input_ended.clone();
        // Not a blocking task of the runtime: the runtime would wait for its end, which may never come.
        let watch = move || {
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
            ended.cancel();
        };
        let thread = thread::Builder::new().name("stdin".to_owned()).spawn(watch);
        thread.map(drop).context("cannot start the thread that reads standard input")
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            () = self.input_ended.cancelled() => {}
        }
    }
}

/// Cancels a job at Ctrl-C or SIGTERM. The first signal saves all results, and the second skips logs and rollouts.
pub(crate) fn cancelled_by_signals() -> anyhow::Result<Cancellation> {
    let mut signals = StopSignals::listen()?;
    let cancellation = Cancellation::default();
    let escalating = cancellation.clone();
    tokio::spawn(async move {
        signals.next().await;
        note("stopping: running trials are cancelled and cleaned up; once more to hurry");
        escalating.escalate();
        signals.next().await;
        note("hurrying: logs and rollouts are not collected any more, environments are still removed");
        escalating.escalate();
    });
    Ok(cancellation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_without_secrets() {
        let mut log = Lines(Vec::new());
        let event = format!("INFO said=\"a\nINFO forged\r\" sk-{}\n", "0".repeat(64));
        log.write_all(event.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(log.0).unwrap(), "INFO said=\"a\\nINFO forged\\r\" [redacted]\n");
    }
}
