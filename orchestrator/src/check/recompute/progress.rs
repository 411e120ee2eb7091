//! The progress of a recomputation on standard error, once it takes more than two seconds: a bar on a terminal, lines
//! elsewhere.

use std::cell::Cell;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The time without progress.
const QUIET: Duration = Duration::from_secs(2);
/// The minimum time between two lines.
const EVERY: Duration = Duration::from_secs(10);

pub(super) struct Progress {
    bar: ProgressBar,
    is_terminal: bool,
    start: Instant,
    last_line: Cell<Option<Instant>>,
}

impl Progress {
    pub(super) fn new(rows: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(rows), ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template("{bar:32} {pos}/{len} rows recomputed  {elapsed}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let is_terminal = std::io::stderr().is_terminal();
        Self { bar, is_terminal, start: Instant::now(), last_line: Cell::new(None) }
    }

    pub(super) fn row_is_done(&self) {
        self.bar.inc(1);
        if self.start.elapsed() < QUIET {
            return;
        }
        if self.is_terminal {
            if self.bar.is_hidden() {
                self.bar.set_draw_target(ProgressDrawTarget::stderr());
            }
        } else if self.last_line.get().is_none_or(|last| last.elapsed() >= EVERY) {
            self.last_line.set(Some(Instant::now()));
            let (done, rows) = (self.bar.position(), self.bar.length().unwrap_or_default());
            // A failed write is ignored, as on a full disk.
            drop(writeln!(std::io::stderr(), "recomputed {done} of {rows} rows"));
        }
    }

    /// Runs `print` while the bar is not on the screen.
    pub(super) fn suspended(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }
}

impl Drop for Progress {
    /// Clears the bar, so that an error gets a line of its own.
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
