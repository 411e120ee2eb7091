//! How the tests of formats write trials and read what was written.

use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;

use serde_json::Value;

use crate::export::exporter::{ExportError, Exporter, Omission, Trial};

/// An output that can still be read when its exporter is gone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Output(Rc<RefCell<Vec<u8>>>);

impl Output {
    /// All that was written.
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

/// Has these trials written; what is left out.
pub(crate) fn run<E: Exporter>(
    exporter: E,
    trials: impl IntoIterator<Item = Trial>,
) -> Result<Vec<Omission>, ExportError> {
    let mut exporter = Box::new(exporter);
    trials.into_iter().try_for_each(|trial| exporter.write(trial))?;
    exporter.finish()
}

/// The lines of a file with these trials, and what it leaves out.
pub(crate) fn written<E: Exporter>(
    new: impl FnOnce(Output) -> E,
    trials: impl IntoIterator<Item = Trial>,
) -> Result<(Vec<String>, Vec<Omission>), ExportError> {
    let output = Output::default();
    let omissions = run(new(output.clone()), trials)?;
    let text = String::from_utf8(output.bytes()).unwrap();
    Ok((text.lines().map(str::to_owned).collect(), omissions))
}

/// The same, read.
pub(crate) fn objects<E: Exporter>(
    new: impl FnOnce(Output) -> E,
    trials: impl IntoIterator<Item = Trial>,
) -> Vec<Value> {
    let (lines, _) = written(new, trials).unwrap();
    lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A list of whole numbers.
pub(crate) fn ints(list: &Value) -> Vec<i32> {
    list.as_array().unwrap().iter().map(|id| i32::try_from(id.as_i64().unwrap()).unwrap()).collect()
}

/// A list of 32-bit floats, as their bits: 0.0 and -0.0 are two things.
pub(crate) fn float_bits(list: &Value) -> Vec<u32> {
    list.as_array().unwrap().iter().map(|value| (value.as_f64().unwrap() as f32).to_bits()).collect()
}

/// What [`float_bits`] gives for these.
pub(crate) fn bits(floats: &[f32]) -> Vec<u32> {
    floats.iter().map(|value| value.to_bits()).collect()
}

/// What is left out, as it is told.
pub(crate) fn told(omissions: &[Omission]) -> Vec<String> {
    omissions.iter().map(|Omission { what, count }| format!("{count} {what}")).collect()
}
