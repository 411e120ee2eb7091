//! The thread that writes: takes what has gathered, writes it at once, then says so.

use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Write};
use std::path::Path;
use std::sync::Arc;

use rolltap_rollout::call::Call;
use rolltap_rollout::ids::TrialId;
use tokio::sync::mpsc;

use super::call_record::{self, Shared};
use super::gather::Batch;
use super::record::{self, MAGIC, Next, Records};
use super::{CALL, EVENT, Event, StoreError};

/// Earlier calls of a trial that a prompt is compared with: as many conversations can go on side by side.
const COMPARED: usize = 4;

pub(super) struct Writer {
    file: File,
    path: String,
    /// Where the next record begins.
    end: u64,
    /// The latest calls of each live trial, and where their records begin.
    recent: HashMap<TrialId, VecDeque<(u64, Arc<Call>)>>,
    /// What is to be written with one system call.
    buffer: Vec<u8>,
}

impl Writer {
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        let named = path.display().to_string();
        let open = || {
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)?;
            }
            let mut file = OpenOptions::new().create(true).read(true).append(true).open(path)?;
            let end = sound_end(&mut file, &named)?;
            Ok::<_, io::Error>((file, end))
        };
        match open() {
            Ok((file, end)) => {
                Ok(Self { file, path: named, end, recent: HashMap::new(), buffer: Vec::new() })
            }
            Err(error) => Err(StoreError::Write { path: named, reason: error.to_string() }),
        }
    }

    /// Runs until no batch can come any more, then makes the file durable.
    pub(super) fn run(mut self, mut batches: mpsc::Receiver<Batch>) -> Result<(), StoreError> {
        while let Some(Batch { events, written }) = batches.blocking_recv() {
            // Told even if nobody waits for it any more.
            drop(written.send(self.write(&events)));
        }
        self.file.sync_data().map_err(|error| self.refused(&error))
    }

    fn write(&mut self, events: &[Event]) -> Result<(), StoreError> {
        self.buffer.clear();
        let written = self.encode(events).and_then(|()| self.file.write_all(&self.buffer));
        if let Err(error) = written {
            // What is half written goes again, and no later record may build on it.
            self.recent.clear();
            if let Err(error) = self.file.set_len(self.end) {
                tracing::error!(path = %self.path, %error, "cannot take back what was half written");
            }
            return Err(self.refused(&error));
        }
        self.end += self.buffer.len() as u64;
        Ok(())
    }

    fn encode(&mut self, events: &[Event]) -> io::Result<()> {
        for event in events {
            match event {
                Event::Call(call) => self.encode_call(call)?,
                Event::Batch(calls) => calls.iter().try_for_each(|call| self.encode_call(call))?,
                _ => {
                    if let Event::Sealed { trial_id, .. } = event {
                        self.recent.remove(trial_id);
                    }
                    record::frame(&mut self.buffer, |out| {
                        out.push(EVENT);
                        serde_json::to_writer(out, event)
                    })?;
                }
            }
        }
        Ok(())
    }

    fn encode_call(&mut self, call: &Arc<Call>) -> io::Result<()> {
        let at = self.end + self.buffer.len() as u64;
        if !self.recent.contains_key(&call.trial_id) {
            self.recent.insert(call.trial_id.clone(), VecDeque::new());
        }
        let Some(recent) = self.recent.get_mut(&call.trial_id) else { return Ok(()) };
        let shares = recent.iter().map(|(begin, earlier)| (Shared::between(call, earlier), at - begin));
        let most = shares.max_by_key(|(shared, _)| shared.length()).filter(|(shared, _)| shared.length() > 0);
        record::frame(&mut self.buffer, |out| {
            out.push(CALL);
            call_record::write(call, most.map(|(shared, distance)| (distance, shared)), out)
        })?;
        if recent.len() == COMPARED {
            recent.pop_front();
        }
        recent.push_back((at, Arc::clone(call)));
        Ok(())
    }

    fn refused(&self, error: &dyn std::error::Error) -> StoreError {
        tracing::error!(path = %self.path, %error, "the capture store cannot write");
        StoreError::Write { path: self.path.clone(), reason: error.to_string() }
    }
}

/// Where the last whole record ends. A process that died while it wrote left a part of one: nobody was told that it is
/// kept, so it is cut.
fn sound_end(file: &mut File, path: &str) -> io::Result<u64> {
    let length = file.metadata()?.len();
    if length < MAGIC.len() as u64 {
        file.set_len(0)?;
        file.write_all(&MAGIC)?;
        return Ok(MAGIC.len() as u64);
    }
    let mut reader = BufReader::new(&*file);
    super::read::check_magic(&mut reader)?;
    let mut records = Records::new(reader, MAGIC.len() as u64);
    let mut content = Vec::new();
    loop {
        match records.next(&mut content)? {
            // Damage stays where it is, for whoever looks into it.
            Next::Record | Next::Damage(_) => {}
            Next::End => return Ok(records.position().max(length)),
            Next::TornEnd => break,
        }
    }
    let end = records.position();
    tracing::warn!(path, bytes = length - end, "cut a record that a dying process had half written");
    file.set_len(end)?;
    Ok(end)
}
