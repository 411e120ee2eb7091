//! Reads calls from a data directory, one trial at a time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rolltap_rollout::call::Call;
use rolltap_rollout::ids::CallId;

use super::index::At;
use crate::store::format::call_record::{self, Apart};
use crate::store::format::content::{Content, Kind};
use crate::store::format::conversation::{self, Referred, StoredConversation};
use crate::store::format::dictionary;
use crate::store::format::event::{CallEntry, ReadCall};
use crate::store::format::logprobs::Planes;
use crate::store::format::record::{HEADER, read_header};
use crate::store::format::segment::{self, Format, SegmentId};
use crate::store::format::varint::Numbers;

/// The maximum length of a record. Answers are limited to 1 GiB of JSON, so no record is longer.
const LONGEST: usize = 2 << 30;

/// Reads calls, and caches the calls and texts that others build on.
pub(crate) struct Reader {
    dir: PathBuf,
    files: HashMap<SegmentId, (File, Format)>,
    calls: HashMap<At, Result<ReadCall, String>>,
    texts: HashMap<At, Text>,
}

/// A long text that was read.
#[derive(Clone)]
struct Text {
    text: Arc<str>,
    /// The position of the text before it in the trial, if its dictionary contains that text.
    before: Option<At>,
}

impl Reader {
    pub(crate) fn of(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), files: HashMap::new(), calls: HashMap::new(), texts: HashMap::new() }
    }

    /// Reads the call at that position. The error describes why the call is unreadable.
    pub(crate) fn call(&mut self, at: At) -> Result<ReadCall, String> {
        if let Some(known) = self.calls.get(&at) {
            return known.clone();
        }
        let read = self.read_call(at);
        // Errors are cached too, because many calls may build on one damaged record.
        self.calls.insert(at, read.clone());
        read
    }

    fn read_call(&mut self, at: At) -> Result<ReadCall, String> {
        let (content, format) = self.content(at).map_err(|error| error.to_string())?;
        if format == Format::V1 {
            // In the first format, a record of kind 2 is a call.
            let bytes = content.strip_prefix(&[2]).ok_or("it is no call")?;
            let call = self.of_body(at, Apart::V1, &mut Numbers::of(bytes))?;
            return Ok(ReadCall {
                at,
                kept: CallEntry { call: Arc::new(call), told: None },
                small: Arc::default(),
            });
        }
        let content = Content::read(&content)?;
        if content.kind != Kind::Call {
            return Err("it is no call".to_owned());
        }
        let (mark, mut content) = content.split_plain::<16>()?;
        let mut planes = Planes::default();
        if format == Format::V3 {
            (planes, content) = content.split_planes()?;
        }
        let body = content.body_with(|distance, length| self.words_of_call(at, distance, length))?;
        let small: Arc<[u8]> = call_record::small(&mut Numbers::of(&body)).unwrap_or_default().into();
        // The mark is the id, unless the JSON contains another id.
        let name = (!call_record::is_named(&small)).then(|| CallId::of_bytes(mark));
        let apart = if format == Format::V3 { Apart::V3(name, planes.taking()) } else { Apart::V2 };
        let mut numbers = Numbers::of(&body);
        let call = Arc::new(self.of_body(at, apart, &mut numbers)?);
        // A call without a conversation ends here.
        if numbers.is_empty() {
            return Ok(ReadCall { at, kept: CallEntry { call, told: None }, small });
        }
        let told = conversation::read(&mut numbers, &mut Near { reader: self, at });
        let told = told.filter(|_| numbers.is_empty()).ok_or("its conversation cannot be read")?;
        Ok(ReadCall { at, kept: CallEntry { call, told: Some(Arc::new(told)) }, small })
    }

    fn of_body(&mut self, at: At, apart: Apart<'_>, numbers: &mut Numbers<'_>) -> Result<Call, String> {
        let earlier = |distance| Some(self.call(at.before(distance)?).ok()?.kept.call);
        call_record::read(numbers, apart, earlier)
    }

    fn words_of_call(&mut self, at: At, distance: u64, length: usize) -> Result<Vec<u8>, String> {
        let earlier = at.before(distance).ok_or("it takes a record outside of the file")?;
        let ReadCall { kept, small, .. } = self.call(earlier).map_err(|reason| {
            format!("it takes the record {distance} bytes before it, which cannot be read: {reason}")
        })?;
        Ok(dictionary::of_call(&small, &kept.call, dictionary::room(length)))
    }

    fn text(&mut self, at: At) -> Option<Text> {
        if let Some(known) = self.texts.get(&at) {
            return Some(known.clone());
        }
        let (content, _) = self.content(at).ok()?;
        let content = Content::read(&content).ok().filter(|content| content.kind == Kind::Text)?;
        let mut before = None;
        let body = content.body_with(|distance, length| {
            before = at.before(distance);
            let texts = before.and_then(|before| self.texts_up_to(before, dictionary::room(length)));
            let texts = texts.ok_or("it takes texts that cannot be read")?;
            Ok(dictionary::of_texts(texts.iter().map(|text| &**text), dictionary::room(length)))
        });
        let text = Text { text: std::str::from_utf8(&body.ok()?).ok()?.into(), before };
        self.texts.insert(at, text.clone());
        Some(text)
    }

    /// Returns that text and the texts before it, newest first, until they fill `room` bytes.
    fn texts_up_to(&mut self, newest: At, room: usize) -> Option<Vec<Arc<str>>> {
        let (mut texts, mut bytes, mut next) = (Vec::new(), 0, Some(newest));
        while let Some(at) = next.filter(|_| bytes < room) {
            let Text { text, before } = self.text(at)?;
            bytes += text.len();
            texts.push(text);
            next = before;
        }
        Some(texts)
    }

    /// Returns the content of the record at that position, after verifying its checksums.
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

/// Resolves the references of the record at `at`.
struct Near<'a> {
    reader: &'a mut Reader,
    at: At,
}

impl Referred for Near<'_> {
    fn conversation(&mut self, distance: u64) -> Option<Arc<StoredConversation>> {
        self.reader.call(self.at.before(distance)?).ok()?.kept.told
    }

    fn text(&mut self, distance: u64) -> Option<Arc<str>> {
        self.reader.text(self.at.before(distance)?).map(|text| text.text)
    }
}
