//! `rollout/1` as JSON Lines: one row a line, keys as in [`RolloutRow`].
//!
//! Numbers are written with as many digits as bring back the same bits. JSON has no NaN and no infinities, so a row
//! that holds one is refused rather than written as `null`, which a reader would take for "no reward".

use std::io::{self, BufRead, Write};
use std::marker::PhantomData;

use crate::export::pipeline::projection::RowPart;
use crate::export::shared::json;
use crate::row::RolloutRow;

/// Why a row was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// JSON has no form for NaN and the infinities.
    #[error(
        "trial {trial_id}, branch {branch_index}: {field} is {value}, which JSON cannot hold; correct it before export"
    )]
    NotFinite {
        /// The row's trial.
        trial_id: String,
        /// The row's branch.
        branch_index: i32,
        /// The field, with its index or key where it has several values.
        field: String,
        /// What stands there.
        value: f64,
    },
    /// The row has no JSON form.
    #[error("cannot turn a row into JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The output did not take the bytes.
    #[error("cannot write rows: {0}")]
    Io(#[from] io::Error),
}

/// Why a line is no row.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The line is no JSON, or not the JSON of a row.
    #[error("line {line}: {problem}")]
    Line {
        /// Counted from 1, blank lines included.
        line: u64,
        /// Which field was wrong and how.
        problem: String,
    },
    /// The input broke off.
    #[error("line {line}: cannot read on: {source}")]
    Io {
        /// The line that was being read.
        line: u64,
        /// What the input said.
        source: io::Error,
    },
}

/// Writes rows as they come. Each goes to `out` whole, so buffering is the caller's choice.
#[derive(Debug)]
pub struct JsonlWriter<W: Write> {
    out: W,
    line: Vec<u8>,
}

impl<W: Write> JsonlWriter<W> {
    /// A writer of rows; nothing is written yet.
    pub fn new(out: W) -> Self {
        Self { out, line: Vec::new() }
    }

    /// Writes one row and its line feed in one go. A row that is refused leaves no trace in the output.
    pub fn write(&mut self, row: &RolloutRow) -> Result<(), WriteError> {
        refuse_non_finite(row)?;
        self.line.clear();
        json::append(&mut self.line, row)?;
        self.line.push(b'\n');
        Ok(self.out.write_all(&self.line)?)
    }

    /// Flushes, and gives the output back.
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

/// Reads rows as they are asked for. Blank lines are skipped, unknown keys ignored.
///
/// A line that is no row is an error of its own, and the lines after it can still be read; after a failure of the
/// input itself the iterator is at its end.
#[derive(Debug)]
pub struct JsonlReader<R, T = RolloutRow> {
    input: R,
    line: u64,
    buffer: Vec<u8>,
    has_failed: bool,
    part: PhantomData<T>,
}

impl<R: BufRead> JsonlReader<R> {
    /// A reader at line 1.
    pub fn new(input: R) -> Self {
        Self::of_parts(input)
    }
}

impl<R: BufRead, T: RowPart> JsonlReader<R, T> {
    /// A reader at line 1 that takes of each row only what `T` holds. What else stands in the row is not looked at.
    pub fn of_parts(input: R) -> Self {
        Self { input, line: 0, buffer: Vec::new(), has_failed: false, part: PhantomData }
    }
}

impl<R: BufRead, T: RowPart> Iterator for JsonlReader<R, T> {
    type Item = Result<T, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.has_failed {
            self.line += 1;
            self.buffer.clear();
            match self.input.read_until(b'\n', &mut self.buffer) {
                Ok(0) => return None,
                Ok(_) if self.buffer.trim_ascii().is_empty() => {}
                Ok(_) => return Some(parse(&self.buffer, self.line)),
                Err(source) => {
                    self.has_failed = true;
                    return Some(Err(ReadError::Io { line: self.line, source }));
                }
            }
        }
        None
    }
}

/// To know where in a row one is takes time at each of its values, and only matters where one of them is wrong.
fn parse<T: RowPart>(text: &[u8], line: u64) -> Result<T, ReadError> {
    serde_json::from_slice(text).or_else(|_| parse_with_path(text, line))
}

fn parse_with_path<T: RowPart>(text: &[u8], line: u64) -> Result<T, ReadError> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let row = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let problem = without_line(error.inner());
        // serde names a missing field itself; "." is the row as a whole.
        ReadError::Line { line, problem: if path == "." { problem } else { format!("{path}: {problem}") } }
    })?;
    json.end().map_err(|error| ReadError::Line { line, problem: without_line(&error) })?;
    Ok(row)
}

/// serde_json counts lines within what it was given, which is always line 1 here and would contradict ours.
fn without_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&place) {
        Some(problem) => format!("{problem} (column {})", error.column()),
        None => text,
    }
}
