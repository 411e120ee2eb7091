//! `rollout/1` as JSON Lines: one row per line, with the keys of [`RolloutRow`].
//!
//! Numbers have enough digits to restore the same bits. JSON has no NaN and no infinities. A row with such a value is
//! rejected, because a reader would take `null` for "no reward".

use std::io::{self, BufRead, Write};
use std::marker::PhantomData;

use crate::export::pipeline::projection::RowPart;
use crate::export::shared::json;
use crate::row::RolloutRow;

/// Why a row was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// JSON cannot represent NaN and the infinities.
    #[error(
        "trial {trial_id}, branch {branch_index}: {field} is {value}, which JSON cannot hold; correct it before export"
    )]
    NotFinite {
        /// The row's trial.
        trial_id: String,
        /// The row's branch.
        branch_index: i32,
        /// The field, with its index or key if it has several values.
        field: String,
        /// The value.
        value: f64,
    },
    /// The row cannot be represented in JSON.
    #[error("cannot turn a row into JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// Writing to the output failed.
    #[error("cannot write rows: {0}")]
    Io(#[from] io::Error),
}

/// Why a line is not a row.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The line is not JSON, or not the JSON of a row.
    #[error("line {line}: {problem}")]
    Line {
        /// The number of the line from 1, counting blank lines.
        line: u64,
        /// The wrong field and its problem.
        problem: String,
    },
    /// Reading the input failed.
    #[error("line {line}: cannot read on: {source}")]
    Io {
        /// The number of the line that was being read.
        line: u64,
        /// The input's error.
        source: io::Error,
    },
}

/// Writes rows one after the other. Each row is one `write` to `out`, so buffering is up to the caller.
#[derive(Debug)]
pub struct JsonlWriter<W: Write> {
    out: W,
    line: Vec<u8>,
}

impl<W: Write> JsonlWriter<W> {
    /// Returns a writer. Nothing is written yet.
    pub fn new(out: W) -> Self {
        Self { out, line: Vec::new() }
    }

    /// Writes one row and its line feed in one call. A rejected row leaves no bytes in the output.
    pub fn write(&mut self, row: &RolloutRow) -> Result<(), WriteError> {
        // Before any output: a rejected row must leave no partial line.
        refuse_non_finite(row)?;
        self.line.clear();
        json::append(&mut self.line, row)?;
        self.line.push(b'\n');
        Ok(self.out.write_all(&self.line)?)
    }

    /// Flushes, and returns the output.
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.out.flush()?;
        Ok(self.out)
    }
}

fn refuse_non_finite(row: &RolloutRow) -> Result<(), WriteError> {
    let logprobs = row.logprobs.iter().enumerate().find(|(_, value)| !value.is_finite());
    let rewards = row.rewards.iter().find(|(_, value)| !value.is_finite());
    let found = None
        .or_else(|| row.reward.filter(not_finite).map(|value| ("reward".to_owned(), value)))
        .or_else(|| row.advantage.filter(not_finite).map(|value| ("advantage".to_owned(), value)))
        .or_else(|| rewards.map(|(name, value)| (format!("rewards[{name:?}]"), *value)))
        .or_else(|| logprobs.map(|(index, value)| (format!("logprobs[{index}]"), f64::from(*value))))
        .or_else(|| non_finite_of_a_call(row));
    match found {
        None => Ok(()),
        Some((field, value)) => Err(WriteError::NotFinite {
            trial_id: row.trial_id.clone(),
            branch_index: row.branch_index,
            field,
            value,
        }),
    }
}

fn non_finite_of_a_call(row: &RolloutRow) -> Option<(String, f64)> {
    row.calls.iter().enumerate().find_map(|(index, call)| {
        let named = |name: &str, value: f64| (format!("calls[{index}].{name}"), value);
        let temperature = call.temperature.filter(not_finite).map(|value| named("temperature", value));
        temperature.or_else(|| call.top_p.filter(not_finite).map(|value| named("top_p", value)))
    })
}

fn not_finite(value: &f64) -> bool {
    !value.is_finite()
}

/// Reads rows on demand. Blank lines are skipped, and unknown keys are ignored.
///
/// A line that is not a row is a single error, and the following lines are still readable. After an error of the input
/// the iterator ends.
#[derive(Debug)]
pub struct JsonlReader<R, T = RolloutRow> {
    input: R,
    line: u64,
    /// The bytes that are read of the input.
    offset: u64,
    buffer: Vec<u8>,
    has_failed: bool,
    part: PhantomData<T>,
}

impl<R: BufRead> JsonlReader<R> {
    /// Returns a reader at line 1.
    pub fn new(input: R) -> Self {
        Self::of_parts(input)
    }
}

impl<R: BufRead, T: RowPart> JsonlReader<R, T> {
    /// Returns a reader at line 1 that decodes only the fields of `T` from each row.
    pub fn of_parts(input: R) -> Self {
        Self { input, line: 0, offset: 0, buffer: Vec::new(), has_failed: false, part: PhantomData }
    }

    /// Returns the number of bytes before the next line. A reader of the input from there on returns the same next row.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

impl<R: BufRead, T: RowPart> Iterator for JsonlReader<R, T> {
    type Item = Result<T, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.has_failed {
            // Blank lines count, so that the number matches an editor's.
            self.line += 1;
            self.buffer.clear();
            match self.input.read_until(b'\n', &mut self.buffer) {
                Ok(0) => return None,
                Ok(length) => {
                    self.offset += length as u64;
                    if !self.buffer.trim_ascii().is_empty() {
                        return Some(parse(&self.buffer, self.line));
                    }
                }
                Err(source) => {
                    self.has_failed = true;
                    return Some(Err(ReadError::Io { line: self.line, source }));
                }
            }
        }
        None
    }
}

/// Parses a line. Tracking the path of each value is slow, so only a line with an error is parsed a second time with
/// paths.
fn parse<T: RowPart>(text: &[u8], line: u64) -> Result<T, ReadError> {
    serde_json::from_slice(text).or_else(|_| parse_with_path(text, line))
}

fn parse_with_path<T: RowPart>(text: &[u8], line: u64) -> Result<T, ReadError> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let row = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let problem = without_line(error.inner());
        // serde names a missing field itself, and "." is the whole row.
        ReadError::Line { line, problem: if path == "." { problem } else { format!("{path}: {problem}") } }
    })?;
    json.end().map_err(|error| ReadError::Line { line, problem: without_line(&error) })?;
    Ok(row)
}

/// Replaces the line number in the message. serde_json counts lines within the slice, which would always give line 1
/// here.
fn without_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&place) {
        Some(problem) => format!("{problem} (column {})", error.column()),
        None => text,
    }
}
