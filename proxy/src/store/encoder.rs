//! Events as the bytes of records. What a segment has already is referred to, never into another segment.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;

use rolltap_rollout::call::Call;
use rolltap_rollout::ids::{CallId, TrialId};
use sha2::{Digest, Sha256};

use super::call_record::{self, Shared};
use super::content::{Kind, Packer, TrialNumber};
use super::event::{Event, KeptCall};
use super::index::{At, Index};
use super::record;
use super::segment::SegmentId;
use super::told::{self, SharedTalk, Told};

/// Earlier calls of a trial that a call is compared with: as many conversations can go on side by side.
const COMPARED: usize = 4;
/// First calls of other trials that a trial's first call is compared with: agents begin alike.
const BEGINNINGS: usize = 8;
/// What has less in common with another trial's call is written whole.
const WORTH_SHARING: usize = 256;
/// Texts of at least so many bytes are kept once in a segment.
const LONG_TEXT: usize = 512;

/// A call that others can be written as the difference from.
#[derive(Debug)]
struct Written {
    at: u64,
    call: Arc<Call>,
    told: Option<Arc<Told>>,
    inputs_at: Option<u64>,
}

/// Writes records of one segment after the other.
pub(super) struct Encoder {
    segment: SegmentId,
    packer: Packer,
    /// The latest calls of each live trial.
    recent: HashMap<TrialId, VecDeque<Written>>,
    /// The latest calls that are written whole.
    beginnings: VecDeque<Written>,
    /// Where long texts lie, by their hash.
    texts: HashMap<[u8; 16], u64>,
    body: Vec<u8>,
}

/// Where calls were put.
pub(super) type Placed = Vec<(TrialNumber, At)>;

impl Encoder {
    pub(super) fn new(segment: SegmentId) -> io::Result<Self> {
        Ok(Self {
            segment,
            packer: Packer::new()?,
            recent: HashMap::new(),
            beginnings: VecDeque::new(),
            texts: HashMap::new(),
            body: Vec::new(),
        })
    }

    /// Another segment begins.
    pub(super) fn begin(&mut self, segment: SegmentId) {
        self.segment = segment;
        self.forget();
    }

    /// Refers to nothing that is written so far.
    pub(super) fn forget(&mut self) {
        self.recent.clear();
        self.beginnings.clear();
        self.texts.clear();
    }

    /// Appends the records of an event to what will lie at `end` of the segment.
    pub(super) fn encode(
        &mut self,
        event: &Event,
        end: u64,
        index: &mut Index,
        out: &mut Vec<u8>,
        placed: &mut Placed,
    ) -> io::Result<()> {
        match event {
            Event::Call(kept) => self.encode_call(kept, end, index, out, placed)?,
            Event::Batch(calls) => {
                for kept in calls {
                    self.encode_call(kept, end, index, out, placed)?;
                }
            }
            Event::Intent { trial_id, call_id, at } => {
                let number = index.number(trial_id);
                index.is_in(self.segment, number);
                let mut body = at.as_microsecond().to_le_bytes().to_vec();
                body.extend_from_slice(call_id.as_str().as_bytes());
                let packer = &mut self.packer;
                record::frame(out, |out| packer.pack(Kind::Intent, number, &mark(call_id), &body, out))?;
            }
            Event::Flush => {}
            other => {
                let number = other.trial_id().map(|trial| index.number(trial)).unwrap_or_default();
                index.is_in(self.segment, number);
                if let Event::Sealed { trial_id, at } = other {
                    self.recent.remove(trial_id);
                    index.is_sealed(number, *at);
                }
                let json = serde_json::to_vec(other)?;
                let packer = &mut self.packer;
                record::frame(out, |out| packer.pack(Kind::Event, number, &[], &json, out))?;
            }
        }
        Ok(())
    }

    fn encode_call(
        &mut self,
        kept: &KeptCall,
        end: u64,
        index: &mut Index,
        out: &mut Vec<u8>,
        placed: &mut Placed,
    ) -> io::Result<()> {
        let KeptCall { call, told } = kept;
        let number = index.number(&call.trial_id);
        index.is_in(self.segment, number);
        let talk =
            told.as_deref().map(|told| self.place_texts(told, &call.trial_id, end, out)).transpose()?;
        let at = end + out.len() as u64;
        let shared = self.shared_with(call);
        self.body.clear();
        call_record::write(call, shared.map(|(written, shared)| (at - written, shared)), &mut self.body)?;
        if let (Some(told), Some(talk)) = (told, &talk) {
            let earlier = talk.shared.map(|(written, shared)| (at - written, shared));
            let mut places = talk.places.iter().map(|place| Some(at - (*place)?));
            told::write(told, earlier, &mut places, &mut self.body);
        }
        let (packer, body) = (&mut self.packer, &self.body);
        record::frame(out, |out| packer.pack(Kind::Call, number, &mark(&call.call_id), body, out))?;
        placed.push((number, At { segment: self.segment, offset: at }));
        let inputs_at = talk.and_then(|talk| talk.places.first().copied().flatten());
        let written = |told| Written { at, call: Arc::clone(call), told, inputs_at };
        if shared.is_none() {
            push(&mut self.beginnings, BEGINNINGS, written(None));
        }
        push(self.recent.entry(call.trial_id.clone()).or_default(), COMPARED, written(told.clone()));
        Ok(())
    }

    /// The call that most of this one's prompt is shared with: where its record lies, and what is shared.
    fn shared_with(&self, call: &Call) -> Option<(u64, Shared)> {
        let nearest = |written: &VecDeque<Written>| {
            let shares = written.iter().map(|written| (written.at, Shared::between(call, &written.call)));
            shares.max_by_key(|(_, shared)| shared.length())
        };
        let of_trial = self.recent.get(&call.trial_id).and_then(nearest);
        of_trial
            .filter(|(_, shared)| shared.length() > 0)
            .or_else(|| nearest(&self.beginnings).filter(|(_, shared)| shared.length() >= WORTH_SHARING))
    }

    /// Finds what of a conversation is written already, and writes the long texts that are not.
    fn place_texts(&mut self, told: &Told, trial: &TrialId, end: u64, out: &mut Vec<u8>) -> io::Result<Talk> {
        let recent = self.recent.get(trial).into_iter().flatten();
        let known_inputs = |written: &Written| {
            Arc::ptr_eq(&written.told.as_ref()?.inputs, &told.inputs).then_some(written.inputs_at?)
        };
        let inputs_at = recent.clone().find_map(known_inputs);
        let shares = recent
            .filter_map(|written| Some((written.at, SharedTalk::between(told, written.told.as_deref()?))));
        let shared =
            shares.max_by_key(|(_, shared)| shared.length()).filter(|(_, shared)| shared.length() > 0);
        let mut places = Vec::new();
        places.push(match inputs_at {
            Some(known) => Some(known),
            None => self.place_text(&told.inputs, end, out)?,
        });
        for text in told.new_texts(shared.map(|(_, shared)| shared)) {
            places.push(self.place_text(text, end, out)?);
        }
        Ok(Talk { shared, places })
    }

    /// Where a long text lies, written now if the segment does not have it yet. None for a short one.
    fn place_text(&mut self, text: &Arc<str>, end: u64, out: &mut Vec<u8>) -> io::Result<Option<u64>> {
        if text.len() < LONG_TEXT {
            return Ok(None);
        }
        let at = end + out.len() as u64;
        match self.texts.entry(hash(text)) {
            Entry::Occupied(known) => return Ok(Some(*known.get())),
            Entry::Vacant(place) => place.insert(at),
        };
        let packer = &mut self.packer;
        let none = TrialNumber::default();
        record::frame(out, |out| packer.pack(Kind::Text, none, &[], text.as_bytes(), out))?;
        Ok(Some(at))
    }
}

/// What of a conversation need not be written.
struct Talk {
    /// Where the record of the call lies that messages are shared with.
    shared: Option<(u64, SharedTalk)>,
    /// Where texts lie: the inputs, new messages, answers. None for those that stand in the record.
    places: Vec<Option<u64>>,
}

fn push(written: &mut VecDeque<Written>, most: usize, new: Written) {
    if written.len() == most {
        written.pop_front();
    }
    written.push_back(new);
}

/// Tells which call's intent was followed by its record.
pub(super) type Mark = [u8; 16];

fn mark(call: &CallId) -> Mark {
    hash(call.as_str())
}

fn hash(text: &str) -> [u8; 16] {
    let digest: [u8; 32] = Sha256::digest(text.as_bytes()).into();
    *digest.first_chunk().unwrap_or(&[0; 16])
}
