//! The progress of an export, always on standard error: a bar on a terminal, lines elsewhere.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// The minimum time between two lines.
const EVERY: Duration = Duration::from_secs(10);

/// The progress of an export.
#[derive(Debug)]
pub enum ExportProgress {
    /// A bar that is redrawn.
    Bar(ProgressBar),
    /// A line from time to time. Holds the time of the last line and its subject.
    Lines(Mutex<(Instant, String)>),
    /// Nothing.
    Quiet,
}

impl ExportProgress {
    /// Chooses the form that suits standard error.
    pub fn for_stderr(quiet: bool) -> Self {
        if quiet {
            Self::Quiet
        } else if std::io::stderr().is_terminal() {
            Self::Bar(ProgressBar::no_length())
        } else {
            Self::Lines(Mutex::new((Instant::now(), String::new())))
        }
    }

    /// Shows the start of the first pass.
    pub(super) fn surveys(&self, input: &Path) {
        self.begin(&format!("reading {}", input.display()), "{spinner} {msg}  {pos} trials  {elapsed}", None);
    }

    /// Shows the start of the second pass.
    pub(super) fn writes(&self, trials: usize) {
        self.begin(
            &format!("writing {trials} trials"),
            "{bar:32} {pos}/{len} trials  {elapsed}",
            Some(trials),
        );
    }

    fn begin(&self, what: &str, template: &str, length: Option<usize>) {
        match self {
            Self::Bar(bar) => {
                let style = ProgressStyle::with_template(template);
                bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
                bar.set_message(what.to_owned());
                bar.set_position(0);
                if let Some(length) = length {
                    bar.set_length(length as u64);
                }
                bar.enable_steady_tick(Duration::from_millis(200));
            }
            Self::Lines(last) => {
                drop(writeln!(std::io::stderr(), "{what}"));
                *last.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
                    (Instant::now(), what.to_owned());
            }
            Self::Quiet => {}
        }
    }

    /// Shows the number of trials that this pass has processed.
    pub(super) fn trials(&self, trials: usize) {
        match self {
            Self::Bar(bar) => bar.set_position(trials as u64),
            Self::Lines(last) => {
                let mut last = last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                if last.0.elapsed() >= EVERY {
                    last.0 = Instant::now();
                    drop(writeln!(std::io::stderr(), "{}: {trials}", last.1));
                }
            }
            Self::Quiet => {}
        }
    }

    pub(super) fn ends(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

impl Drop for ExportProgress {
    /// Clears the bar, so that an error gets a line of its own.
    fn drop(&mut self) {
        self.ends();
    }
}
