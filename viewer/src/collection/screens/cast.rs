//! Recordings of asciinema (asciicast, versions 2 and 3), played in the terminal agent's own emulator.

use rolltap_agent::Screen;
use rolltap_agent::terminal::TerminalSize;
use serde::Deserialize;

use crate::collection::problems::FirstProblems;

/// The shortest time between two screens in seconds.
const SHORTEST: f64 = 0.1;
/// The maximum number of rows and columns, because each screen is stored as text.
const ROWS: u16 = 100;
const COLS: u16 = 300;
/// The maximum number of changes of the size, because the emulator begins anew at each.
const RESIZES: usize = 1_000;
/// The beginning of a marker with which rolltap states where its recording ends.
const MARKER: &str = "rolltap: ";
/// The maximum number of unreadable lines that are listed.
const LISTED: usize = 3;

/// A played recording.
#[derive(Debug, Default)]
pub(super) struct Cast {
    /// Whether the recording has the date at which it began.
    pub(super) is_dated: bool,
    /// The times in seconds since 1970, or from 0 without a date, with the screens.
    pub(super) screens: Vec<(f64, String)>,
    pub(super) problems: Vec<String>,
}

/// The first line of a recording.
#[derive(Debug, Deserialize)]
struct Header {
    version: u32,
    /// The columns and rows in version 2.
    width: Option<u16>,
    height: Option<u16>,
    /// The columns and rows in version 3.
    term: Option<Term>,
    /// When the recording began, in seconds since 1970.
    timestamp: Option<f64>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Term {
    cols: u16,
    rows: u16,
}

/// An event that changes the screen: its time in seconds since the beginning, its kind and its data.
type Event = (f64, Kind, String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The program wrote bytes.
    Output,
    /// The terminal changed its size.
    Resize,
}

/// Plays a recording. Returns at most `most` screens with at most `most_bytes`: more output has a screen less often.
pub(super) fn read(bytes: &[u8], most: usize, most_bytes: usize) -> Cast {
    let mut cast = Cast::default();
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let header = match serde_json::from_slice::<Header>(lines.next().unwrap_or_default()) {
        Ok(header) if matches!(header.version, 2 | 3) => header,
        Ok(header) => {
            cast.problems.push(format!("version {} of asciicast is unknown", header.version));
            return cast;
        }
        Err(error) => {
            cast.problems.push(format!("the first line is no header of an asciicast: {error}"));
            return cast;
        }
    };
    let events = events(lines, header.version, &mut cast.problems);
    let whole = events.last().map_or(0.0, |(at, ..)| *at);
    let every = (whole / most.saturating_sub(1).max(1) as f64).max(SHORTEST);
    cast.is_dated = header.timestamp.is_some_and(|begin| begin.is_finite() && begin > 0.0);
    let begin = header.timestamp.filter(|_| cast.is_dated).unwrap_or_default();
    let mut emulator = Emulator::of(header.size());
    let mut bytes = 0;
    // The time of the first output that no screen has.
    let mut waiting = None;
    let mut events = events.into_iter().peekable();
    while let Some((at, kind, data)) = events.next() {
        match kind {
            Kind::Output => drop(emulator.screen().feed(data.as_bytes())),
            Kind::Resize => emulator.resize(&data),
        }
        let since = *waiting.get_or_insert(at);
        if events.peek().is_some_and(|(next, ..)| next - since < every) {
            continue;
        }
        waiting = None;
        let text = emulator.screen().text();
        if cast.screens.last().is_some_and(|(_, last)| *last == text) {
            continue;
        }
        bytes += text.len();
        if bytes > most_bytes || cast.screens.len() == most {
            cast.problems
                .push(format!("the screens after {at:.0} s are left out, because they are too many"));
            break;
        }
        cast.screens.push((begin + at, text));
    }
    if emulator.is_cut {
        cast.problems.push(format!(
            "the terminal is larger than {COLS} columns and {ROWS} rows, so the emulator wraps its lines differently"
        ));
    }
    cast
}

/// An emulator of the size of the recorded terminal.
struct Emulator {
    /// The present size.
    size: TerminalSize,
    /// Whether the terminal was larger than the maximum.
    is_cut: bool,
    /// The screen, with the size for which it was made.
    made: Option<(TerminalSize, Screen)>,
}

impl Emulator {
    fn of(size: TerminalSize) -> Self {
        let mut emulator = Self { size, is_cut: false, made: None };
        emulator.set_size(size);
        emulator
    }

    fn set_size(&mut self, TerminalSize { rows, cols }: TerminalSize) {
        self.is_cut |= rows > ROWS || cols > COLS;
        self.size = TerminalSize { rows: rows.min(ROWS), cols: cols.min(COLS) };
    }

    /// Takes the size in the data of a change: columns, `x`, rows.
    fn resize(&mut self, data: &str) {
        let Some((cols, rows)) = data.split_once('x') else { return };
        if let (Ok(cols), Ok(rows)) = (cols.parse(), rows.parse()) {
            self.set_size(TerminalSize { rows, cols });
        }
    }

    /// Returns the screen. It is empty after a change of the size, because programs draw again.
    fn screen(&mut self) -> &mut Screen {
        let size = self.size;
        let made = self.made.take().filter(|(made, _)| *made == size);
        &mut self.made.insert(made.unwrap_or_else(|| (size, Screen::new(size)))).1
    }
}

impl Header {
    fn size(&self) -> TerminalSize {
        let default = TerminalSize::default();
        let (cols, rows) =
            self.term.map_or((self.width, self.height), |term| (Some(term.cols), Some(term.rows)));
        TerminalSize { rows: rows.unwrap_or(default.rows), cols: cols.unwrap_or(default.cols) }
    }
}

/// Returns the readable events that change the screen. Their times never decrease.
fn events<'b>(lines: impl Iterator<Item = &'b [u8]>, version: u32, problems: &mut Vec<String>) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    let (mut now, mut resizes) = (0.0_f64, 0);
    let mut unreadable = FirstProblems::at_most(LISTED);
    for (line, number) in lines.zip(2..) {
        // Version 3 has lines of comments.
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        match serde_json::from_slice::<(f64, String, String)>(line) {
            Ok((time, kind, data)) => {
                // In version 3, times count from the event before.
                let at = if version == 3 { now + time } else { time };
                now = if at.is_finite() { at.max(now) } else { now };
                match kind.as_str() {
                    "o" => events.push((now, Kind::Output, data)),
                    "r" => {
                        resizes += 1;
                        if resizes <= RESIZES {
                            events.push((now, Kind::Resize, data));
                        }
                    }
                    "m" if data.starts_with(MARKER) && problems.len() < LISTED => problems.push(data),
                    // Keystrokes and other markers do not change the screen.
                    _ => {}
                }
            }
            Err(error) => unreadable.add(|| format!("line {number} cannot be read: {error}")),
        }
    }
    problems.extend(unreadable.into_lines(|further| format!("{further} further lines cannot be read")));
    if resizes > RESIZES {
        problems.push(format!(
            "the size changes {resizes} times, and only the first {RESIZES} changes are played"
        ));
    }
    events
}
