//! Helpers for the tests of formats that write trials and read the output.

use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;

use serde_json::Value;

use crate::export::exporter::{ExportError, Exporter, Omission, Trial};

/// An output that is readable after its exporter is dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Output(Rc<RefCell<Vec<u8>>>);

impl Output {
    /// Returns all written bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.borrow().clone()
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Exports these trials. Returns the omissions.
pub(crate) fn run<E: Exporter>(
    exporter: E,
    trials: impl IntoIterator<Item = Trial>,
) -> Result<Vec<Omission>, ExportError> {
    let mut exporter = Box::new(exporter);
    trials.into_iter().try_for_each(|trial| exporter.write(trial))?;
    exporter.finish()
}

/// Returns the lines of a file with these trials, and the omissions.
pub(crate) fn written<E: Exporter>(
    new: impl FnOnce(Output) -> E,
    trials: impl IntoIterator<Item = Trial>,
) -> Result<(Vec<String>, Vec<Omission>), ExportError> {
    let output = Output::default();
    let omissions = run(new(output.clone()), trials)?;
    let text = String::from_utf8(output.bytes()).unwrap();
    Ok((text.lines().map(str::to_owned).collect(), omissions))
}

/// Returns the parsed lines of a file with these trials.
pub(crate) fn objects<E: Exporter>(
    new: impl FnOnce(Output) -> E,
    trials: impl IntoIterator<Item = Trial>,
) -> Vec<Value> {
    let (lines, _) = written(new, trials).unwrap();
    lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns a list of integers.
pub(crate) fn ints(list: &Value) -> Vec<i32> {
    list.as_array().unwrap().iter().map(|id| i32::try_from(id.as_i64().unwrap()).unwrap()).collect()
}

/// Returns a list of 32-bit floats as bits, because 0.0 and -0.0 are equal as floats.
pub(crate) fn float_bits(list: &Value) -> Vec<u32> {
    list.as_array().unwrap().iter().map(|value| (value.as_f64().unwrap() as f32).to_bits()).collect()
}

/// Returns the same as [`float_bits`] for these floats.
pub(crate) fn bits(floats: &[f32]) -> Vec<u32> {
    floats.iter().map(|value| value.to_bits()).collect()
}

/// Returns the messages of the omissions.
pub(crate) fn told(omissions: &[Omission]) -> Vec<String> {
    omissions.iter().map(|Omission { what, count }| format!("{count} {what}")).collect()
}
