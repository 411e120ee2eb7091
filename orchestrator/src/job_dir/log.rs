//! Log files with one line per event.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;

use crate::common::plain::plain;

/// The log file of a job or trial. A line that cannot be written is dropped, because a full disk is reported elsewhere.
#[derive(Debug)]
pub(crate) struct Log {
    file: Mutex<File>,
}

impl Log {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        Ok(Self { file: Mutex::new(OpenOptions::new().create(true).append(true).open(path)?) })
    }

    /// Writes a line without terminal escape sequences.
    pub(crate) fn line(&self, text: impl AsRef<str>) {
        let text = plain(text.as_ref());
        let line = format!("{:.3} {text}\n", Timestamp::now());
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.write_all(line.as_bytes()) {
            tracing::warn!(%error, line = text, "cannot write to a log file");
        }
    }
}
