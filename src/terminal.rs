//! The connection of the command line to its user: output, errors, logs and signals.

mod log;

use std::fmt::Display;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::thread;

use anstream::adapter::strip_str;
use anyhow::Context;
use rolltap_orchestrator::common::cancellation::Cancellation;
use rolltap_orchestrator::common::terminal_size;
use rolltap_orchestrator::environment::EnvironmentKind;
use rolltap_orchestrator::job::summary::Summary;
use rolltap_orchestrator::job::{JobError, JobReport, above_progress};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

pub(crate) use self::log::{LogFormat, hide_from_logs, logs_json, start_logging};

/// Prints to standard output, in colours if it has them. A failed write is ignored: the reader has closed the pipe, as
/// with `| head`.
pub(crate) fn say(text: impl Display) {
    above_progress(|| drop(writeln!(anstream::stdout(), "{text}")));
}

/// Prints to standard error, as an event of the log if that is JSON. A failed write is ignored, as on a full disk.
pub(crate) fn note(text: impl Display) {
    if logs_json() {
        let text = text.to_string();
        log::event("INFO", &[("message", strip_str(&text).to_string().as_str())]);
    } else {
        above_progress(|| drop(writeln!(anstream::stderr(), "{text}")));
    }
}

/// Returns the summary of a job for the reader of this stream.
pub(crate) fn summary<'a>(report: &'a JobReport, stream: &impl AsFd) -> Summary<'a> {
    let width = terminal_size::of(stream).map(|(width, _)| width);
    Summary::new(report).width(width).relative_to(std::env::current_dir().ok())
}

/// Prints an error with its causes, and with a hint if there is one.
pub(crate) fn report(error: &anyhow::Error) {
    let mut texts = vec![error.to_string()];
    for cause in error.chain().skip(1).map(ToString::to_string) {
        // Some errors repeat their source in their own message.
        if texts.last().is_none_or(|said| !said.contains(&cause)) {
            texts.push(cause);
        }
    }
    let hint = hint(error);
    if logs_json() {
        let message = texts.join(": ");
        let fields = [("message", message.as_str())].into_iter().chain(hint.map(|hint| ("hint", hint)));
        return log::event("ERROR", &fields.collect::<Vec<_>>());
    }
    for (number, text) in texts.iter().enumerate() {
        note(format_args!("{}: {text}", if number == 0 { "error" } else { "  caused by" }));
    }
    if let Some(hint) = hint {
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
    Ok(cancelled_by(StopSignals::listen()?))
}

/// Drains a worker at Ctrl-C or SIGTERM. The first signal lets its trials end, and the second gives them back.
pub(crate) fn drained_by_signals() -> anyhow::Result<Cancellation> {
    const NOTES: [&str; 2] = [
        "draining: running trials end, and no further trial begins; once more to give them back",
        "giving back: running trials are cancelled, and other workers begin them anew",
    ];
    Ok(escalated_by(StopSignals::listen()?, NOTES))
}

/// Cancels a job at these signals, like [`cancelled_by_signals`].
pub(crate) fn cancelled_by(signals: StopSignals) -> Cancellation {
    const NOTES: [&str; 2] = [
        "stopping: running trials are cancelled and cleaned up; once more to hurry",
        "hurrying: logs and rollouts are not collected any more, environments are still removed",
    ];
    escalated_by(signals, NOTES)
}

/// Takes a step of the cancellation at each signal, and prints its note.
fn escalated_by(mut signals: StopSignals, notes: [&'static str; 2]) -> Cancellation {
    let cancellation = Cancellation::default();
    let escalating = cancellation.clone();
    tokio::spawn(async move {
        for text in notes {
            signals.next().await;
            note(text);
            escalating.escalate();
        }
    });
    cancellation
}
