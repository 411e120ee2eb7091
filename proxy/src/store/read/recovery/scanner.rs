//! Reads the records of segments in order, and continues where the last scan ended.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rolltap_rollout::ids::TrialId;

use super::record::{BadRecord, Intent};
use super::{Scan, Unfinished};
use crate::store::format::content::TrialNumber;
use crate::store::format::record::{Next, Records};
use crate::store::format::segment::{self, Format, HEAD, SegmentId};
use crate::store::read::index::At;
use crate::store::write::encoder::Mark;
use crate::store::{Damage, ReadError};

/// The state of a scan. It can be continued after a proxy has appended records.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    pub(super) scan: Scan,
    /// The segments that are scanned, in order.
    scanned: Vec<SegmentId>,
    /// The end of the last segment, where a proxy appends. `None` if the scan cannot continue there.
    end: Option<SegmentEnd>,
    pub(super) by_id: HashMap<TrialId, usize>,
    /// The indices of trials that are forgotten or withdrawn.
    pub(super) forgotten: HashSet<usize>,
    /// Possible damage. A later event can show that it belongs to forgotten trials and is expected.
    pub(super) doubts: Vec<(BadRecord, Damage)>,
    /// The marks of calls whose records were read.
    pub(super) ended: HashSet<Mark>,
    pub(super) intents: HashMap<Mark, Intent>,
}

/// The number of bytes by which the end of a scan is recognised.
const ENDING: u64 = 64;

/// How far a segment is scanned.
#[derive(Clone, Debug)]
struct SegmentEnd {
    /// The bytes before `offset`, at most [`ENDING`]. They are a part of the last record and its checksum, so a file that was
    /// replaced, or truncated and written again, has others there.
    ending: Vec<u8>,
    /// `None` if the file has no whole head yet.
    format: Option<Format>,
    /// The offset behind the last whole record.
    offset: u64,
}

impl Scanner {
    /// Scans what was appended since the last call. Scans everything again if a segment was removed or replaced.
    pub(crate) fn advance(&mut self, dir: &Path) -> Result<(), ReadError> {
        let failed = |path: PathBuf| move |source| ReadError { path, source };
        let segments = segment::list(dir).map_err(failed(dir.to_owned()))?;
        if !self.is_continued_by(&segments, dir) {
            *self = Self::default();
        }
        self.scan.latest = segments.last().copied();
        // Only the last segment is ever appended to, so the others are complete.
        let complete = self.scanned.len().saturating_sub(1);
        for &id in segments.iter().skip(complete) {
            let path = id.path(dir);
            self.segment(id, &path).map_err(failed(path))?;
        }
        self.scanned = segments;
        Ok(())
    }

    /// Whether the segments are those of the scan so far, apart from appended records and further segments.
    fn is_continued_by(&self, segments: &[SegmentId], dir: &Path) -> bool {
        let (Some(last), Some(end)) = (self.scanned.last(), &self.end) else {
            return self.scanned.is_empty();
        };
        let ending = File::open(last.path(dir)).and_then(|file| ending(&file, end.offset));
        segments.starts_with(&self.scanned) && ending.is_ok_and(|ending| ending == end.ending)
    }

    /// Scans a segment, from the end of the scan so far if it is the last one that was scanned.
    fn segment(&mut self, id: SegmentId, path: &Path) -> io::Result<()> {
        let mut file = BufReader::with_capacity(1 << 20, File::open(path)?);
        // Only the last segment is appended to, and only if its head is valid.
        self.scan.last = None;
        let known = self.end.take().filter(|_| self.scanned.last() == Some(&id));
        let (format, start) = match known {
            Some(SegmentEnd { format: Some(format), offset, .. }) => {
                file.seek(SeekFrom::Start(offset))?;
                // The record that was half written may be whole by now.
                self.scan.damage.retain(|damage| !(damage.is_torn_end && damage.path == path));
                (Some(format), offset)
            }
            Some(SegmentEnd { format: None, .. }) | None => (segment::read_head(&mut file)?, HEAD),
        };
        let (offset, is_continuable) = match format {
            Some(format) => self.records(id, path, format, Records::new(file, start))?,
            None => (0, true),
        };
        if is_continuable {
            let ending = ending(&File::open(path)?, offset)?;
            self.end = Some(SegmentEnd { ending, format, offset });
        }
        // A segment of an earlier format is never appended to.
        if format == Some(Format::V3) {
            self.scan.last = Some((id, offset));
        }
        Ok(())
    }

    /// Reads all records. Returns the offset behind the last whole one, and whether a later scan can continue there.
    fn records(
        &mut self,
        id: SegmentId,
        path: &Path,
        format: Format,
        mut records: Records<impl Read>,
    ) -> io::Result<(u64, bool)> {
        let (mut content, mut is_damaged_at_end) = (Vec::new(), false);
        let is_torn = loop {
            let at = At { segment: id, offset: records.position() };
            let reason = match records.next(&mut content)? {
                Next::End => break false,
                Next::TornEnd => break true,
                Next::Damage(reason) => reason,
                Next::Record => {
                    is_damaged_at_end = false;
                    if let Err(wrong) = self.take(at, format, &content) {
                        let damage = damage(path, at.offset, wrong.reason());
                        self.doubts.push((wrong, damage));
                    }
                    continue;
                }
            };
            is_damaged_at_end = true;
            self.scan.damage.push(damage(path, at.offset, reason));
        };
        if is_torn {
            let torn = damage(path, records.position(), "the last record was half written".to_owned());
            self.scan.damage.push(Damage { is_torn_end: true, ..torn });
        }
        // Damage extends to the next whole record, so at the end of the file it may hide one that is half written.
        Ok((records.position(), !is_damaged_at_end))
    }

    /// Returns a copy for [`Self::finish`], without the marks of ended calls, which only a further scan needs.
    pub(crate) fn snapshot(&self) -> Self {
        Self {
            scan: self.scan.clone(),
            scanned: self.scanned.clone(),
            end: self.end.clone(),
            by_id: self.by_id.clone(),
            forgotten: self.forgotten.clone(),
            doubts: self.doubts.clone(),
            ended: HashSet::new(),
            intents: self.intents.clone(),
        }
    }

    /// Returns the content of the data directory.
    pub(crate) fn finish(mut self) -> Scan {
        let names: HashMap<TrialNumber, &TrialId> =
            self.by_id.keys().map(|id| (self.scan.index.number_of(id), id)).collect();
        let mut unfinished: Vec<_> = self
            .intents
            .into_values()
            // Intents of forgotten trials have no name and are dropped.
            .filter_map(|Intent { trial, call_id, at }| {
                Some(Unfinished { trial_id: (*names.get(&trial)?).clone(), call_id, at })
            })
            .collect();
        unfinished.sort_by(|a, b| a.call_id.cmp(&b.call_id));
        self.scan.unfinished = unfinished;
        self.scan.damage.extend(self.doubts.into_iter().map(|(_, damage)| damage));
        self.scan.damage.sort_by(|a, b| (&a.path, a.at).cmp(&(&b.path, b.at)));
        let mut place = 0;
        self.scan.trials.retain(|_| {
            place += 1;
            !self.forgotten.contains(&(place - 1))
        });
        self.scan
    }
}

fn damage(path: &Path, at: u64, reason: String) -> Damage {
    Damage { path: path.to_owned(), at, reason, is_torn_end: false }
}

/// Returns the bytes before an offset of a file, at most [`ENDING`].
fn ending(file: &File, offset: u64) -> io::Result<Vec<u8>> {
    let start = offset.saturating_sub(ENDING);
    let mut bytes = vec![0; (offset - start) as usize];
    file.read_exact_at(&mut bytes, start)?;
    Ok(bytes)
}
