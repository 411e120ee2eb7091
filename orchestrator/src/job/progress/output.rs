//! Standard error with or without lines that are redrawn.

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::screen::Size;
use crate::common::plain::plain;
use crate::common::style::{Line, has_colours, is_stderr_redrawable};

/// The form of the progress for people.
#[derive(Debug)]
pub(super) enum Output {
    /// Lines below all others that are redrawn.
    Redrawn(ProgressBar),
    /// Lines that stay.
    Lines,
    /// Nothing.
    Quiet,
}

/// The lines that are on the screen now. A process has one standard error.
static ON_SCREEN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Writes to standard error or standard output while no progress is on the screen, so that lines do not mix.
pub fn above_progress<T>(write: impl FnOnce() -> T) -> T {
    let bar = ON_SCREEN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match bar {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

impl Output {
    pub(super) fn for_stderr(quiet: bool) -> Self {
        if quiet {
            return Self::Quiet;
        }
        if !is_stderr_redrawable() {
            return Self::Lines;
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_bar()));
        *ON_SCREEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
        Self::Redrawn(bar)
    }

    /// Writes a line that stays, without colours.
    pub(super) fn line(&self, text: &str) {
        self.write(text);
    }

    /// Writes a line that stays, in colours if standard error has them.
    pub(super) fn styled(&self, prefix: &str, line: &Line) {
        self.write(&coloured(format!("{prefix}{}", line.render(usize::MAX))));
    }

    fn write(&self, text: &str) {
        match self {
            Self::Quiet => {}
            // An error of standard error, as on a full disk, must not stop the job.
            Self::Lines | Self::Redrawn(_) => {
                above_progress(|| drop(writeln!(io::stderr(), "{text}")));
            }
        }
    }

    /// Replaces the lines that are redrawn.
    pub(super) fn redraw(&self, lines: &[String]) {
        if let Self::Redrawn(bar) = self {
            bar.set_message(coloured(lines.join("\n")));
        }
    }

    /// Removes the lines that are redrawn.
    pub(super) fn clear(&self) {
        if let Self::Redrawn(bar) = self {
            *ON_SCREEN.lock().unwrap_or_else(PoisonError::into_inner) = None;
            bar.finish_and_clear();
        }
    }
}

/// Removes the escape sequences of a text if standard error has no colours.
fn coloured(text: String) -> String {
    if has_colours(&io::stderr()) { text } else { plain(&text) }
}

/// Returns the size of the terminal of standard error.
pub(super) fn size() -> Size {
    crate::common::terminal_size::of(&io::stderr())
        .map_or(Size { width: 80, height: 24 }, |(width, height)| Size { width, height })
}
