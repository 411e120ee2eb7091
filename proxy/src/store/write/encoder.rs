//! Events as the bytes of records. What a segment has already is referred to, never into another segment.

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

/// Earlier calls of a trial that a call is compared with: as many conversations can go on side by side.
pub(crate) const COMPARED: usize = 4;
/// First calls of other trials that a trial's first call is compared with: agents begin alike.
const BEGINNINGS: usize = 8;
/// What has less in common with another trial's call is written whole.
const WORTH_SHARING: usize = 256;
/// Texts of at least so many bytes are kept once in a segment.
const LONG_TEXT: usize = 512;
/// Records of calls that are shorter are written at once, with no more than the dictionary in mind.
const WORTH_WORDS: usize = 2048;

/// A call that others can be written as the difference from.
#[derive(Debug)]
struct Written {
    at: u64,
    call: Arc<Call>,
    told: Option<Arc<StoredConversation>>,
    inputs_at: Option<u64>,
    /// What its record begins with.
    small: Arc<[u8]>,
}

/// What was written of a trial that may have more calls.
#[derive(Debug, Default)]
struct Live {
    calls: VecDeque<Written>,
    texts: LatestTexts,
}

/// Writes records of one segment after the other.
pub(crate) struct Encoder {
    segment: SegmentId,
    packer: Packer,
    /// What was written last of each live trial.
    recent: HashMap<TrialId, Live>,
    /// The latest calls that are written whole.
    beginnings: VecDeque<Written>,
    /// Where long texts lie, by their hash.
    texts: HashMap<[u8; 16], u64>,
    body: Vec<u8>,
    planes: Planes,
    /// What is not compressed with the body.
    plain: Vec<u8>,
}

/// Where calls were put.
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

    /// Another segment begins.
    pub(crate) fn begin(&mut self, segment: SegmentId) {
        self.segment = segment;
        self.forget();
    }

    /// Refers to nothing that is written so far.
    pub(crate) fn forget(&mut self) {
        self.recent.clear();
        self.beginnings.clear();
        self.texts.clear();
    }

    /// A trial's next calls are written as the difference from these, as far as they lie in this segment.
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
        self.recent.entry(trial.clone()).or_insert(live);
    }

    /// Appends the records of an event to what will lie at `end` of the segment.
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
            Event::Asleep { trial_id } => drop(self.recent.remove(trial_id)),
            Event::Woken { trial_id, latest } => self.goes_on_from(trial_id, latest),
            other => {
                let number = other.trial_id().map(|trial| index.number(trial)).unwrap_or_default();
                index.is_in(self.segment, number);
                if let Event::Sealed { trial_id, at } = other {
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
                    // The next trial of that name is another, and no segment is kept for this one.
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
        // Of its own trial alone: to read a trial takes no other trial's words.
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
        if is_whole {
            push(&mut self.beginnings, BEGINNINGS, written(None, Arc::default()));
        }
        let live = self.recent.entry(call.trial_id.clone()).or_default();
        push(&mut live.calls, COMPARED, written(told.clone(), small));
        Ok(())
    }

    /// Finds what of a conversation is written already, and writes the long texts that are not.
    fn place_texts(
        &mut self,
        told: &StoredConversation,
        trial: &TrialId,
        end: u64,
        out: &mut Vec<u8>,
    ) -> io::Result<Talk> {
        let recent = self.recent.get(trial).into_iter().flat_map(|live| &live.calls);
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

    /// Where a long text lies, written now if the segment does not have it yet. None for a short one.
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
        let latest = &mut self.recent.entry(trial.clone()).or_default().texts;
        let words = latest.words(text.len()).map(|(newest, words)| Words { distance: at - newest, words });
        latest.add(text, at, words.is_some());
        let packer = &mut self.packer;
        let none = TrialNumber::default();
        record::frame(out, |out| packer.pack(Kind::Text, none, &[], text.as_bytes(), words, out))?;
        Ok(Some(at))
    }
}

/// The call that most of this one's prompt is shared with, and what; none that shares fewer ids than `least`.
fn nearest<'a>(written: &'a VecDeque<Written>, call: &Call, least: usize) -> Option<(&'a Written, Shared)> {
    let shares = written.iter().map(|written| (written, Shared::between(call, &written.call)));
    shares.max_by_key(|(_, shared)| shared.length()).filter(|(_, shared)| shared.length() >= least)
}

/// What of a conversation need not be written.
struct Talk {
    /// Where the record of the call lies that messages are shared with.
    shared: Option<(u64, SharedMessages)>,
    /// Where texts lie: the inputs, new messages, answers. None for those that stand in the record.
    places: Vec<Option<u64>>,
}

fn push(written: &mut VecDeque<Written>, most: usize, new: Written) {
    if written.len() == most {
        written.pop_front();
    }
    written.push_back(new);
}

/// Tells which call's intent was followed by its record. The call's name, where that is one that we gave.
pub(crate) type Mark = [u8; 16];

fn mark(call: &CallId) -> Mark {
    call.as_bytes().unwrap_or_else(|| hash(call.as_str()))
}

fn hash(text: &str) -> [u8; 16] {
    let digest: [u8; 32] = Sha256::digest(text.as_bytes()).into();
    *digest.first_chunk().unwrap_or(&[0; 16])
}
