//! The files of a data directory that is the cache of a shard.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rolltap_cluster::log::LogEntry;
use rolltap_cluster::objects::SegmentObject;

use super::RestoreError;
use crate::store::format::segment::{self, HEAD, SegmentId};

/// The file that marks a data directory as the cache of a shard. It names the cluster and the shard.
const MARK: &str = "CLUSTER";

/// Removes the segments of a directory that is the cache of this shard, or that is empty, and marks it. Segments with the
/// content of an object in object storage stay.
pub(super) fn clear(dir: &Path, expected: &str, archived: &[SegmentObject]) -> Result<(), RestoreError> {
    let cannot = |source| RestoreError::Write { path: dir.to_owned(), source };
    let mark = dir.join(MARK);
    let segments = segment::list(dir).map_err(cannot)?;
    let found = fs::read_to_string(&mark).ok();
    if !segments.is_empty() && found.as_deref().map(str::trim_end) != Some(expected) {
        let found = found.map_or_else(String::new, |found| format!(" ({} has {})", MARK, found.trim_end()));
        return Err(RestoreError::NotACache { path: dir.to_owned(), expected: expected.to_owned(), found });
    }
    fs::write(&mark, format!("{expected}\n")).map_err(cannot)?;
    for id in segments {
        let object = archived.iter().find(|object| object.number == id.number());
        let stays = object.is_some_and(|object| object.is_copied_at(&id.path(dir)).unwrap_or(false));
        if !stays {
            fs::remove_file(id.path(dir)).map_err(cannot)?;
        }
    }
    Ok(())
}

/// Writes segments from the entries of a log.
pub(super) struct SegmentFiles {
    dir: PathBuf,
    current: Option<(SegmentId, File)>,
    /// The sequence number of the last message of each segment.
    ends: BTreeMap<SegmentId, u64>,
    /// The first segment in object storage. The log may have the end of earlier ones, which were removed.
    first: Option<SegmentId>,
}

impl SegmentFiles {
    /// Writes to this directory. `first` is the number of the first segment in object storage.
    pub(super) fn new(dir: &Path, first: Option<u32>) -> Self {
        let first = first.map(SegmentId::of_number);
        Self { dir: dir.to_owned(), current: None, ends: BTreeMap::new(), first }
    }

    /// Returns the closed segments that are not in object storage, each with the sequence number of its last message.
    pub(super) fn closed(&self, archived: &[SegmentObject]) -> Vec<(SegmentId, u64)> {
        let open = self.ends.last_key_value().map(|(id, _)| *id);
        let is_archived = |id: SegmentId| archived.iter().any(|object| object.number == id.number());
        let closed = self.ends.iter().filter(|(id, _)| Some(**id) != open && !is_archived(**id));
        closed.map(|(id, sequence)| (*id, *sequence)).collect()
    }

    pub(super) fn apply(&mut self, sequence: u64, entry: LogEntry) -> io::Result<()> {
        match entry {
            LogEntry::Epoch(_) => Ok(()),
            LogEntry::Append { segment, offset, bytes } => {
                let id = SegmentId::of_number(segment);
                if self.first.is_some_and(|first| id < first) {
                    return Ok(());
                }
                self.ends.insert(id, sequence);
                self.append(id, offset, &bytes)
            }
            LogEntry::Remove { segment } => {
                let id = SegmentId::of_number(segment);
                self.current = self.current.take().filter(|(current, _)| *current != id);
                self.ends.remove(&id);
                match fs::remove_file(id.path(&self.dir)) {
                    // The manifest in object storage no longer had the segment.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                    removed => removed,
                }
            }
        }
    }

    fn append(&mut self, id: SegmentId, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if self.current.as_ref().is_none_or(|(current, _)| *current != id) {
            self.finish()?;
            self.current = Some((id, self.open(id, offset)?));
        }
        let Some((_, file)) = &mut self.current else { return Ok(()) };
        let length = file.metadata()?.len();
        if offset > length {
            let missing =
                format!("it continues segment {} at {offset}, which has {length} bytes", id.number());
            return Err(io::Error::new(io::ErrorKind::InvalidData, missing));
        }
        if offset < length {
            // An earlier holder ended within a record, and its successor truncated that and continued there. Or the segment
            // is a copy from object storage, and the log still has the end of it.
            file.set_len(offset)?;
        }
        file.write_all(bytes)
    }

    /// Opens a segment to append to it. The log has no entry for the head of a segment.
    fn open(&self, id: SegmentId, offset: u64) -> io::Result<File> {
        let path = id.path(&self.dir);
        if offset == HEAD && !path.exists() {
            return segment::create(&self.dir, id);
        }
        File::options().append(true).open(path)
    }

    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.current.take().map_or(Ok(()), |(_, file)| file.sync_data())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn append(segment: u32, offset: u64, bytes: &'static [u8]) -> LogEntry {
        LogEntry::Append { segment, offset, bytes: Bytes::from_static(bytes) }
    }

    fn content(dir: &Path, segment: u32) -> Vec<u8> {
        fs::read(SegmentId::of_number(segment).path(dir)).unwrap().split_off(HEAD as usize)
    }

    #[test]
    fn entries_become_the_segments_that_they_were_made_from() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = SegmentFiles::new(dir.path(), None);
        let entries = [
            LogEntry::Epoch(1),
            append(1, 8, b"abc"),
            append(1, 11, b"torn"),
            // The next holder truncates the torn record.
            LogEntry::Epoch(2),
            append(1, 11, b"d"),
            append(2, 8, b"e"),
            LogEntry::Remove { segment: 1 },
            append(2, 9, b"f"),
        ];
        for (count, entry) in entries.into_iter().enumerate() {
            files.apply(count as u64, entry).unwrap();
            if count == 5 {
                assert_eq!(content(dir.path(), 1), b"abcd");
            }
        }
        files.finish().unwrap();
        assert_eq!(segment::list(dir.path()).unwrap(), [SegmentId::of_number(2)]);
        assert_eq!(content(dir.path(), 2), b"ef");
    }

    #[test]
    fn a_gap_is_an_error_and_not_a_hole() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = SegmentFiles::new(dir.path(), None);
        files.apply(1, append(1, 8, b"abc")).unwrap();
        let error = files.apply(2, append(1, 20, b"x")).unwrap_err().to_string();
        assert!(error.contains("continues segment 1 at 20, which has 11 bytes"), "{error}");
        assert!(files.apply(3, append(2, 20, b"x")).is_err(), "a segment begins with its head");
    }

    #[test]
    fn captures_that_are_nowhere_else_are_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        clear(dir.path(), "cluster a, shard 0", &[]).unwrap();
        segment::create(dir.path(), SegmentId::of_number(1)).unwrap();
        let error = clear(dir.path(), "cluster b, shard 0", &[]).unwrap_err().to_string();
        assert!(
            error.contains("not those of cluster b, shard 0 (CLUSTER has cluster a, shard 0)"),
            "{error}"
        );
        clear(dir.path(), "cluster a, shard 0", &[]).unwrap();
        assert!(segment::list(dir.path()).unwrap().is_empty());

        let own = tempfile::tempdir().unwrap();
        segment::create(own.path(), SegmentId::of_number(1)).unwrap();
        assert!(matches!(clear(own.path(), "cluster a, shard 0", &[]), Err(RestoreError::NotACache { .. })));
        assert_eq!(segment::list(own.path()).unwrap().len(), 1);
    }
}
