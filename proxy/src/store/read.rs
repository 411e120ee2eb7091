//! The way back: calls out of a data directory, a trial at a time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rolltap_rollout::call::Call;

use super::call_record;
use super::content::{Content, Kind};
use super::event::KeptCall;
use super::index::At;
use super::numbers::Numbers;
use super::record::{HEADER, read_header};
use super::segment::{self, Format, SegmentId};
use super::told::{self, Referred, Told};

/// No record is longer: answers are limited to 1 GiB of JSON.
const LONGEST: usize = 2 << 30;

/// Reads calls, and remembers those that others build on.
pub(super) struct Reader {
    dir: PathBuf,
    files: HashMap<SegmentId, (File, Format)>,
    calls: HashMap<At, Result<KeptCall, String>>,
    texts: HashMap<At, Arc<str>>,
}

impl Reader {
    pub(super) fn of(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), files: HashMap::new(), calls: HashMap::new(), texts: HashMap::new() }
    }

    /// The call whose record lies there; in words, why it cannot be read.
    pub(super) fn call(&mut self, at: At) -> Result<KeptCall, String> {
        if let Some(known) = self.calls.get(&at) {
            return known.clone();
        }
        let read = self.read_call(at);
        self.calls.insert(at, read.clone());
        read
    }

    fn read_call(&mut self, at: At) -> Result<KeptCall, String> {
        let (content, format) = self.content(at).map_err(|error| error.to_string())?;
        if format == Format::V1 {
            let bytes = content.strip_prefix(&[2]).ok_or("it is no call")?;
            let call = self.of_body(at, format, &mut Numbers::of(bytes))?;
            return Ok(KeptCall { call: Arc::new(call), told: None });
        }
        let content = Content::read(&content)?;
        if content.kind != Kind::Call {
            return Err("it is no call".to_owned());
        }
        let (_, content) = content.split_plain::<16>()?;
        let body = content.body()?;
        let mut numbers = Numbers::of(&body);
        let call = Arc::new(self.of_body(at, format, &mut numbers)?);
        if numbers.is_empty() {
            return Ok(KeptCall { call, told: None });
        }
        let told = told::read(&mut numbers, &mut Near { reader: self, at });
        let told = told.filter(|_| numbers.is_empty()).ok_or("its conversation cannot be read")?;
        Ok(KeptCall { call, told: Some(Arc::new(told)) })
    }

    fn of_body(&mut self, at: At, format: Format, numbers: &mut Numbers<'_>) -> Result<Call, String> {
        let earlier = |distance| Some(self.call(at.before(distance)?).ok()?.call);
        call_record::read(numbers, format, earlier)
    }

    fn text(&mut self, at: At) -> Option<Arc<str>> {
        if let Some(known) = self.texts.get(&at) {
            return Some(Arc::clone(known));
        }
        let (content, _) = self.content(at).ok()?;
        let content = Content::read(&content).ok().filter(|content| content.kind == Kind::Text)?;
        let text: Arc<str> = std::str::from_utf8(&content.body().ok()?).ok()?.into();
        self.texts.insert(at, Arc::clone(&text));
        Some(text)
    }

    /// The content of the record that lies there.
    fn content(&mut self, at: At) -> io::Result<(Vec<u8>, Format)> {
        let (file, format) = match self.files.entry(at.segment) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let mut file = File::open(at.segment.path(&self.dir))?;
                let format = segment::read_head(&mut file)?;
                place.insert((file, format.ok_or(io::ErrorKind::UnexpectedEof)?))
            }
        };
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "there is no sound record");
        let mut header = [0; HEADER];
        file.read_exact_at(&mut header, at.offset)?;
        let (length, checksum) =
            read_header(&header).filter(|(length, _)| *length <= LONGEST).ok_or_else(damaged)?;
        let mut content = vec![0; length];
        file.read_exact_at(&mut content, at.offset + HEADER as u64)?;
        if crc32fast::hash(&content) == checksum { Ok((content, *format)) } else { Err(damaged()) }
    }
}

/// What a record refers to.
struct Near<'a> {
    reader: &'a mut Reader,
    at: At,
}

impl Referred for Near<'_> {
    fn conversation(&mut self, distance: u64) -> Option<Arc<Told>> {
        self.reader.call(self.at.before(distance)?).ok()?.told
    }

    fn text(&mut self, distance: u64) -> Option<Arc<str>> {
        self.reader.text(self.at.before(distance)?)
    }
}
