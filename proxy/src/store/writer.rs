//! The thread that writes: takes what has gathered in the queue, writes it at once, then tells everyone who waits.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use tokio::sync::mpsc;

use super::{Entry, StoreError};

/// Events written with one system call, at most.
const BATCH: usize = 256;

pub(super) struct Writer {
    file: File,
    path: String,
}

impl Writer {
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        let named = path.display().to_string();
        let open = || {
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)?;
            }
            let mut file = OpenOptions::new().create(true).read(true).append(true).open(path)?;
            cut_torn_end(&mut file, &named)?;
            Ok::<_, io::Error>(file)
        };
        match open() {
            Ok(file) => Ok(Self { file, path: named }),
            Err(error) => Err(StoreError::Write { path: named, reason: error.to_string() }),
        }
    }

    /// Runs until it is told to finish and every place is given back, then makes the file durable.
    pub(super) fn run(mut self, mut entries: mpsc::Receiver<Entry>) -> Result<(), StoreError> {
        let mut batch = Vec::with_capacity(BATCH);
        let mut lines = Vec::new();
        while entries.blocking_recv_many(&mut batch, BATCH) > 0 {
            let written = self.write(&batch, &mut lines);
            for entry in batch.drain(..) {
                match entry {
                    // Nobody may be waiting any more: the record is kept all the same.
                    Entry::Keep { kept, .. } => drop(kept.send(written.clone())),
                    Entry::Finish => entries.close(),
                }
            }
        }
        self.file.sync_data().map_err(|error| self.refused(&error))
    }

    fn write(&mut self, batch: &[Entry], lines: &mut Vec<u8>) -> Result<(), StoreError> {
        lines.clear();
        for entry in batch {
            let Entry::Keep { event, .. } = entry else { continue };
            serde_json::to_writer(&mut *lines, event).map_err(|error| self.refused(&error))?;
            lines.push(b'\n');
        }
        self.file.write_all(lines).map_err(|error| self.refused(&error))
    }

    fn refused(&self, error: &dyn std::error::Error) -> StoreError {
        tracing::error!(path = %self.path, %error, "the capture store cannot write");
        StoreError::Write { path: self.path.clone(), reason: error.to_string() }
    }
}

/// A process that died while it wrote left half a line: nobody was told that it is kept.
fn cut_torn_end(file: &mut File, path: &str) -> io::Result<()> {
    let length = file.metadata()?.len();
    let mut end = length;
    let mut last = [0];
    while end > 0 {
        file.seek(SeekFrom::Start(end - 1))?;
        file.read_exact(&mut last)?;
        if last == [b'\n'] {
            break;
        }
        end -= 1;
    }
    if end < length {
        tracing::warn!(path, bytes = length - end, "cut a record that a dying process had half written");
        file.set_len(end)?;
    }
    Ok(())
}
