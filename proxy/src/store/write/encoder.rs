//! Encodes events as records. A record may refer to earlier records of its own segment, and never to another segment.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;

use rolltap_rollout::call::Call;
use rolltap_rollout::ids::{CallId, TrialId};
use sha2::{Digest, Sha256};

use crate::store::format::call_record::{self, Shared};
use crate::store::format::content::{Kind, Packer, TrialNumber, Words};
use crate::store::format::conversation::{self, SharedMessages, StoredConversation};
use crate::store::format::dictionary::{self, LatestTexts};
use crate::store::format::event::{CallEntry, Event, ReadCall};
use crate::store::format::logprobs::Planes;
use crate::store::format::record;
use crate::store::format::segment::SegmentId;
use crate::store::read::index::{At, Index};

/// The number of earlier calls of a trial that a call is compared with. As many conversations can run side by side.
pub(crate) const COMPARED: usize = 4;
/// The number of first calls of other trials that a trial's first call is compared with, because agents begin alike.
const BEGINNINGS: usize = 8;
/// The minimum number of ids shared with another trial's call. Below it, a call is written in full.
const WORTH_SHARING: usize = 256;
/// The minimum length in bytes of a text that is stored once per segment.
const LONG_TEXT: usize = 512;
/// The minimum length in bytes of a call's body for a dictionary of earlier text. Shorter bodies use the base
/// dictionary, which is faster.
const WORTH_WORDS: usize = 2048;
/// The same for a text. To prepare a dictionary costs fifteen times the compression of so short a text, and saves one
/// byte in a hundred.
const TEXT_WORTH_WORDS: usize = 1024;

/// A written call, from which later calls are encoded as a difference.
#[derive(Debug)]
struct Written {
    at: u64,
    call: Arc<Call>,
    told: Option<Arc<StoredConversation>>,
    inputs_at: Option<u64>,
    /// The JSON of its record.
    small: Arc<[u8]>,
}

/// The latest records of a trial that may make more calls.
#[derive(Debug, Default)]
struct Live {
    calls: VecDeque<Written>,
    texts: LatestTexts,
}

/// Encodes records for one segment after another.
pub(crate) struct Encoder {
    segment: SegmentId,
    packer: Packer,
    /// The latest records of each live trial.
    recent: HashMap<TrialId, Live>,
    /// The latest calls that were written in full.
    beginnings: VecDeque<Written>,
    /// The offsets of long texts, by hash.
    texts: HashMap<[u8; 16], u64>,
    body: Vec<u8>,
    planes: Planes,
    /// The part of a call's record that precedes the compressed body.
    plain: Vec<u8>,
}

/// The positions of written calls.
pub(crate) type Placed = Vec<(TrialNumber, At)>;

impl Encoder {
    pub(crate) fn new(segment: SegmentId) -> io::Result<Self> {
        Ok(Self {
            segment,
            packer: Packer::new()?,
            recent: HashMap::new(),
            beginnings: VecDeque::new(),
            texts: HashMap::new(),
            body: Vec::new(),
            planes: Planes::default(),
            plain: Vec::new(),
        })
    }

    /// Continues in another segment.
    pub(crate) fn begin(&mut self, segment: SegmentId) {
        self.segment = segment;
        self.forget();
    }

    /// Forgets all records so far, so that no later record refers to them.
    pub(crate) fn forget(&mut self) {
        self.recent.clear();
        self.beginnings.clear();
        self.texts.clear();
    }

    /// Lets a trial's next calls build on these calls, as far as they are in this segment.
    fn goes_on_from(&mut self, trial: &TrialId, latest: &[ReadCall]) {
        let here = latest.iter().filter(|read| read.at.segment == self.segment);
        let written = here.map(|ReadCall { at, kept, small }| Written {
            at: at.offset,
            call: Arc::clone(&kept.call),
            told: kept.told.clone(),
            inputs_at: None,
            small: Arc::clone(small),
        });
        let live = Live { calls: written.collect(), texts: LatestTexts::default() };
        // Calls that were written meanwhile are newer, so they stay.
        self.recent.entry(trial.clone()).or_insert(live);
    }

    /// Appends the records of an event. They will be written at offset `end` plus their offset in `out`.
    pub(crate) fn encode(
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
                record::frame(out, |out| {
                    packer.pack(Kind::Intent, number, &mark(call_id), &body, None, out)
                })?;
            }
            Event::Flush => {}
            // The retention of the trial is over. A record would give the trial a new number, and retain its segment.
            Event::Noted { trial_id, .. } if index.number_of(trial_id) == TrialNumber::default() => {}
            Event::Evicted { trial_id } => drop(self.recent.remove(trial_id)),
            Event::Reloaded { trial_id, latest } => self.goes_on_from(trial_id, latest),
            other => {
                let number = other.trial_id().map(|trial| index.number(trial)).unwrap_or_default();
                index.is_in(self.segment, number);
                if let Event::Sealed { trial_id, at } = other {
                    // A sealed trial has no further call that builds on its records.
                    self.recent.remove(trial_id);
                    index.is_sealed(number, *at);
                }
                let json = serde_json::to_vec(other)?;
                let packer = &mut self.packer;
                record::frame(out, |out| packer.pack(Kind::Event, number, &[], &json, None, out))?;
                match other {
                    Event::Opened(opened) => {
                        opened.facts.group_id.iter().for_each(|group| index.is_of_group(number, group));
                    }
                    Event::GroupClosed(closed) => index.is_closed(self.segment, &closed.group_id, closed.at),
                    // The name is free for another trial, and no segment is retained for this one.
                    Event::Withdrawn { trial_id } => index.forget(std::slice::from_ref(trial_id), &[]),
                    Event::Completed { completion, .. } => index.is_complete(number, *completion),
                    Event::Undelivered { call_id, .. } => index.is_undelivered(number, call_id.clone()),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn encode_call(
        &mut self,
        kept: &CallEntry,
        end: u64,
        index: &mut Index,
        out: &mut Vec<u8>,
        placed: &mut Placed,
    ) -> io::Result<()> {
        let CallEntry { call, told } = kept;
        let number = index.number(&call.trial_id);
        index.is_in(self.segment, number);
        // Texts come first, because a record refers only to earlier records.
        let talk =
            told.as_deref().map(|told| self.place_texts(told, &call.trial_id, end, out)).transpose()?;
        let at = end + out.len() as u64;
        let of_trial = self.recent.get(&call.trial_id).and_then(|live| nearest(&live.calls, call, 1));
        let shared = of_trial.or_else(|| nearest(&self.beginnings, call, WORTH_SHARING));
        self.body.clear();
        let earlier = shared.map(|(written, shared)| (at - written.at, shared));
        self.planes.clear();
        let small = call_record::write(call, earlier, &mut self.body, &mut self.planes)?;
        let small: Arc<[u8]> = self.body.get(small).unwrap_or_default().into();
        if let (Some(told), Some(talk)) = (told, &talk) {
            let earlier = talk.shared.map(|(written, shared)| (at - written, shared));
            let mut places = talk.places.iter().map(|place| Some(at - (*place)?));
            conversation::write(told, earlier, &mut places, &mut self.body);
        }
        // Only records of the same trial are used, so that reading a trial needs no dictionary of another trial.
        let words = of_trial.filter(|_| self.body.len() >= WORTH_WORDS).map(|(written, _)| Words {
            distance: at - written.at,
            words: dictionary::of_call(&written.small, &written.call, dictionary::room(self.body.len())),
        });
        let is_whole = shared.is_none();
        self.plain.clear();
        self.plain.extend_from_slice(&mark(&call.call_id));
        self.packer.pack_planes(&self.planes, &mut self.plain)?;
        let (packer, plain, body) = (&mut self.packer, &self.plain, &self.body);
        record::frame(out, |out| packer.pack(Kind::Call, number, plain, body, words, out))?;
        placed.push((number, At { segment: self.segment, offset: at }));
        let inputs_at = talk.and_then(|talk| talk.places.first().copied().flatten());
        let written = |told, small| Written { at, call: Arc::clone(call), told, inputs_at, small };
        // Other trials may begin like a call that is written in full.
        if is_whole {
            push(&mut self.beginnings, BEGINNINGS, written(None, Arc::default()));
        }
        let live = self.recent.entry(call.trial_id.clone()).or_default();
        push(&mut live.calls, COMPARED, written(told.clone(), small));
        Ok(())
    }

    /// Finds the texts of a conversation that are already written, and writes the long texts that are not.
    fn place_texts(
        &mut self,
        told: &StoredConversation,
        trial: &TrialId,
        end: u64,
        out: &mut Vec<u8>,
    ) -> io::Result<Talk> {
        let recent = self.recent.get(trial).into_iter().flat_map(|live| &live.calls);
        // Comparing pointers is cheap. Long inputs in another allocation are still found by their hash.
        let known_inputs = |written: &Written| {
            Arc::ptr_eq(&written.told.as_ref()?.inputs, &told.inputs).then_some(written.inputs_at?)
        };
        let inputs_at = recent.clone().find_map(known_inputs);
        let shares = recent.filter_map(|written| {
            Some((written.at, SharedMessages::between(told, written.told.as_deref()?)))
        });
        let shared =
            shares.max_by_key(|(_, shared)| shared.length()).filter(|(_, shared)| shared.length() > 0);
        let mut places = Vec::new();
        places.push(match inputs_at {
            Some(known) => Some(known),
            None => self.place_text(&told.inputs, trial, end, out)?,
        });
        for text in told.new_texts(shared.map(|(_, shared)| shared)) {
            places.push(self.place_text(text, trial, end, out)?);
        }
        Ok(Talk { shared, places })
    }

    /// Returns the offset of a long text, and writes the text if the segment lacks it. Returns `None` for a short text.
    fn place_text(
        &mut self,
        text: &Arc<str>,
        trial: &TrialId,
        end: u64,
        out: &mut Vec<u8>,
    ) -> io::Result<Option<u64>> {
        if text.len() < LONG_TEXT {
            return Ok(None);
        }
        let at = end + out.len() as u64;
        match self.texts.entry(hash(text)) {
            Entry::Occupied(known) => return Ok(Some(*known.get())),
            Entry::Vacant(place) => place.insert(at),
        };
        // A short text is no link of the chain, so later texts do not need it.
        let words = if text.len() < TEXT_WORTH_WORDS { None } else { self.chained(text, trial, at) };
        let packer = &mut self.packer;
        // The text belongs to no trial, because any trial of the segment may refer to it.
        let none = TrialNumber::default();
        record::frame(out, |out| packer.pack(Kind::Text, none, &[], text.as_bytes(), words, out))?;
        Ok(Some(at))
    }

    /// Adds a text at an offset to the texts of its trial, and returns its dictionary. `None` if the text begins a chain.
    fn chained(&mut self, text: &Arc<str>, trial: &TrialId, at: u64) -> Option<Words> {
        let latest = &mut self.recent.entry(trial.clone()).or_default().texts;
        let words = latest.words(text.len()).map(|(newest, words)| Words { distance: at - newest, words });
        latest.add(text, at, words.is_some());
        words
    }
}

/// Returns the call that shares most of this call's prompt, and the shared part. `None` if no call shares `least` ids.
fn nearest<'a>(written: &'a VecDeque<Written>, call: &Call, least: usize) -> Option<(&'a Written, Shared)> {
    let mut best: Option<(&Written, Shared)> = None;
    for written in written.iter().rev() {
        let shared = Shared::between(call, &written.call);
        if best.is_none_or(|(_, most)| shared.length() > most.length()) {
            best = Some((written, shared));
        }
        // No call shares more than the whole prompt.
        if shared.length() == call.prompt_token_ids.len() {
            break;
        }
    }
    best.filter(|(_, shared)| shared.length() >= least)
}

/// The parts of a conversation that need not be written again.
struct Talk {
    /// The offset of the call's record that shares messages, and the shared part.
    shared: Option<(u64, SharedMessages)>,
    /// The offsets of the inputs, new messages and answers. `None` for a text that is part of the record.
    places: Vec<Option<u64>>,
}

fn push(written: &mut VecDeque<Written>, most: usize, new: Written) {
    if written.len() == most {
        written.pop_front();
    }
    written.push_back(new);
}

/// Connects a call's intent with its record. It is the call's id if the proxy assigned that id, otherwise a hash of the
/// id.
pub(crate) type Mark = [u8; 16];

fn mark(call: &CallId) -> Mark {
    call.as_bytes().unwrap_or_else(|| hash(call.as_str()))
}

fn hash(text: &str) -> [u8; 16] {
    let digest: [u8; 32] = Sha256::digest(text.as_bytes()).into();
    *digest.first_chunk().unwrap_or(&[0; 16])
}
