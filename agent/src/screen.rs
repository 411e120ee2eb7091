//! What a terminal shows: the pure half of [`Terminal`](crate::terminal::Terminal).
//!
//! Bytes go in, text comes out. Rows that scroll off the top are kept from one observation to the next, so that an
//! observation holds all output since the last one, within fixed memory however much a program prints.

use std::fmt::Write as _;
use std::num::NonZeroU16;
use std::panic::{AssertUnwindSafe, catch_unwind};

use vt100::capture::{
    BasicFormattedCaptureRange, BasicFormattedCaptureState, RowContents, basic_formatted_to_plain,
};

use crate::line_drawing::LineDrawing;
use crate::truncate::{Clipped, LIMIT};

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

/// What an observation saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// Output since the last observation, from the start of the line that the cursor's prompt stood on.
    NewOutput(String),
    /// The whole screen: nothing new came, or a program redrew what was there before.
    Screen(String),
}

impl Observation {
    /// The text seen, at most about 10 000 bytes of it.
    pub fn text(&self) -> &str {
        match self {
            Self::NewOutput(text) | Self::Screen(text) => text,
        }
    }
}

/// A screen emulator and the output that scrolled off it since the last observation.
pub(crate) struct Screen {
    emulator: vt100::Parser<Effects>,
    line_drawing: LineDrawing,
    size: TerminalSize,
    /// The main screen as the last observation left it; `None` before the first one.
    seen: Option<String>,
}

/// Output given to the emulator at once; at most this much is lost with a reset.
const PIECE: usize = 1024;

fn emulator(size: TerminalSize) -> vt100::Parser<Effects> {
    let rows = NonZeroU16::new(size.rows).unwrap_or(NonZeroU16::MIN);
    let cols = NonZeroU16::new(size.cols).unwrap_or(NonZeroU16::MIN);
    // No scrollback inside the emulator: rows that leave the screen go to `Effects::on_scroll`.
    vt100::Parser::new_with_callbacks(rows, cols, 0, Effects::new(0))
}

impl Screen {
    pub(crate) fn new(size: TerminalSize) -> Self {
        Self { emulator: emulator(size), line_drawing: LineDrawing::default(), size, seen: None }
    }

    /// Takes program output; returns what the terminal has to answer to it (usually nothing).
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        for piece in self.line_drawing.drawn(bytes).chunks(PIECE) {
            // Found by the property test below: the emulator panics on rare output (a variation selector that widens
            // the character in the last column). A program in a terminal must not be able to end the trial with that.
            let fed = catch_unwind(AssertUnwindSafe(|| self.emulator.process(piece)));
            if fed.is_err() {
                self.reset();
            }
        }
        std::mem::take(&mut self.emulator.callbacks_mut().replies)
    }

    /// Starts over with an empty screen that says so.
    fn reset(&mut self) {
        tracing::warn!("the terminal emulator failed on some output and was reset");
        self.emulator = emulator(self.size);
        self.line_drawing = LineDrawing::default();
        self.seen = None;
        self.emulator.process(b"[the terminal could not show some output and was cleared]\r\n");
    }

    /// The screen as text, without trailing blank lines.
    pub(crate) fn text(&self) -> String {
        self.rows_after(&mut BasicFormattedCaptureState::new())
    }

    /// Whether the program asked for the application form of the arrow keys.
    pub(crate) fn application_cursor(&self) -> bool {
        self.emulator.screen().application_cursor()
    }

    /// Output since the last observation, else the screen.
    pub(crate) fn observe(&mut self) -> Observation {
        if self.emulator.screen().alternate_screen() {
            // Full-screen programs have no history; the main screen's mark waits until they leave.
            return Observation::Screen(Clipped::whole(&self.text()).to_string());
        }
        let new = self.new_output();
        let screen = self.text();
        let observation = match new {
            Some(text) => Observation::NewOutput(text),
            None => Observation::Screen(Clipped::whole(&screen).to_string()),
        };
        // The head of the next observation begins with this screen and still has to hold a whole report after it.
        *self.emulator.callbacks_mut() = Effects::new(screen.len() + LIMIT);
        self.seen = Some(screen);
        observation
    }

    /// The text after the last observation, if that is still where it was and something came after it.
    fn new_output(&self) -> Option<String> {
        let seen = self.seen.as_deref()?;
        let effects = self.emulator.callbacks();
        let rest = self.rows_after(&mut effects.capture.clone());
        if effects.scrolled.dropped == 0 {
            let mut all = effects.scrolled.head.clone();
            all.push_str(&effects.scrolled.tail);
            all.push_str(&rest);
            new_since(seen, &all).map(|new| Clipped::whole(new).to_string())
        } else {
            let front = effects.scrolled.head.strip_prefix(split_prompt(seen).0)?;
            let mut back = effects.scrolled.tail.clone();
            back.push_str(&rest);
            Some(Clipped { front, missing: effects.scrolled.dropped, back: &back }.to_string())
        }
    }

    /// The screen's rows as plain text that continues what `capture` has written.
    fn rows_after(&self, capture: &mut BasicFormattedCaptureState) -> String {
        let mut formatted = String::new();
        let range = BasicFormattedCaptureRange::Full(capture);
        let written = self.emulator.screen().write_contents_formatted_basic(&mut formatted, range);
        debug_assert!(written.is_ok(), "writing to a String cannot fail");
        let mut plain: String = basic_formatted_to_plain(&formatted).collect();
        plain.truncate(plain.trim_end_matches(['\n', ' ']).len());
        plain
    }
}

/// The part of `all` that was not there when a terminal showed `seen`, if that is still where it was and something came
/// after it. It begins with the line of the prompt.
pub(crate) fn new_since<'a>(seen: &str, all: &'a str) -> Option<&'a str> {
    let (above, line) = split_prompt(seen);
    let new = all.strip_prefix(above)?;
    let unchanged = new.trim_end() == line.trim_end();
    (!unchanged && !new.trim().is_empty()).then_some(new)
}

/// The lines above the last one, and that one: the line of the prompt grows while the user types, so only what is above it
/// must be unchanged.
fn split_prompt(seen: &str) -> (&str, &str) {
    let last_line = seen.rfind('\n').map_or(0, |newline| newline + 1);
    seen.split_at_checked(last_line).unwrap_or(("", seen))
}

/// What the emulator reports beside the picture.
struct Effects {
    scrolled: Scrolled,
    capture: BasicFormattedCaptureState,
    replies: Vec<u8>,
}

impl Effects {
    fn new(head_limit: usize) -> Self {
        Self {
            scrolled: Scrolled { head: String::new(), head_limit, tail: String::new(), dropped: 0 },
            capture: BasicFormattedCaptureState::new(),
            replies: Vec::new(),
        }
    }

    /// Answers are a few bytes each and taken after every chunk of output; more than this is a program gone wild.
    const REPLY_LIMIT: usize = 4096;

    fn reply(&mut self, answer: &str) {
        if self.replies.len() < Self::REPLY_LIMIT {
            self.replies.extend_from_slice(answer.as_bytes());
        }
    }
}

impl vt100::Callbacks for Effects {
    fn on_scroll(&mut self, row: RowContents<'_>, alternate_screen: bool) {
        if alternate_screen {
            return;
        }
        let mut formatted = String::new();
        if row.write_formatted_basic(&mut formatted, &mut self.capture).is_ok() {
            basic_formatted_to_plain(&formatted).for_each(|text| self.scrolled.push(text));
        }
    }

    /// Programs such as editors and line editors ask these and wait for the answer; the values are those of a VT100
    /// with advanced video, which is what tmux says too.
    fn unhandled_csi(
        &mut self,
        screen: &mut vt100::Screen,
        first: Option<u8>,
        second: Option<u8>,
        params: &[&[u16]],
        command: char,
    ) {
        let param = params.first().and_then(|values| values.first()).copied().unwrap_or(0);
        match (first, second, command, param) {
            (None, None, 'n', 5) => self.reply("\x1b[0n"),
            (None, None, 'n', 6) => {
                let (row, col) = screen.cursor_position();
                let mut answer = String::new();
                let written = write!(answer, "\x1b[{};{}R", u32::from(row) + 1, u32::from(col) + 1);
                debug_assert!(written.is_ok(), "writing to a String cannot fail");
                self.reply(&answer);
            }
            (None, None, 'c', 0) => self.reply("\x1b[?1;2c"),
            (Some(b'>'), None, 'c', 0) => self.reply("\x1b[>0;0;0c"),
            _ => {}
        }
    }
}

/// Text that scrolled off: its beginning, its end, and how many bytes between the two were let go.
struct Scrolled {
    head: String,
    head_limit: usize,
    tail: String,
    dropped: usize,
}

impl Scrolled {
    fn push(&mut self, text: &str) {
        if self.tail.is_empty() && self.head.len() < self.head_limit {
            self.head.push_str(text);
            return;
        }
        self.tail.push_str(text);
        // Cut at twice the limit, so that each byte is moved once at most.
        if self.tail.len() > 2 * LIMIT {
            let cut = self.tail.ceil_char_boundary(self.tail.len() - LIMIT);
            self.tail.drain(..cut);
            self.dropped += cut;
        }
    }
}

#[cfg(test)]
mod tests;
