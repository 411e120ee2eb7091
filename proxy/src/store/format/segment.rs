//! The files of a store: numbered segments. The next segment begins when the last one has grown large enough.
//!
//! Segments are append-only, and only the last one is written. No segment refers to another, so each can be read,
//! stored or removed alone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The first bytes of a segment, before the version of its format.
const MAGIC: [u8; 7] = *b"rolltap";

/// The number of bytes before the first record.
pub(crate) const HEAD: u64 = 8;

/// The number of a segment. 0 is the only file of the first format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SegmentId(u32);

/// The format of a segment's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// One file, `capture.rolltap`. Records name trials in JSON.
    V1,
    /// Records begin with the number of their trial, and may be compressed.
    V2,
    /// Compressed with the preceding text of the trial. A record contains the call's id once, and the logprobs apart.
    V3,
}

impl SegmentId {
    /// The number before the first segment.
    pub(crate) const NONE: Self = Self(0);

    /// The segment with this number.
    pub(crate) fn of_number(number: u32) -> Self {
        Self(number)
    }

    pub(crate) fn number(self) -> u32 {
        self.0
    }

    pub(crate) fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    pub(crate) fn file_name(self) -> String {
        match self.0 {
            0 => "capture.rolltap".to_owned(),
            number => format!("capture-{number:08}.rolltap"),
        }
    }

    fn of_file_name(name: &str) -> Option<Self> {
        if name == "capture.rolltap" {
            return Some(Self(0));
        }
        let number = name.strip_prefix("capture-")?.strip_suffix(".rolltap")?.parse().ok()?;
        // Number 0 is the file of the first format, which has another name.
        (number > 0).then_some(Self(number))
    }

    pub(crate) fn path(self, dir: &Path) -> PathBuf {
        dir.join(self.file_name())
    }
}

/// Lists the segments of a data directory in order. Empty if the directory does not exist.
pub(crate) fn list(dir: &Path) -> io::Result<Vec<SegmentId>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut segments = Vec::new();
    for entry in entries {
        segments.extend(entry?.file_name().to_str().and_then(SegmentId::of_file_name));
    }
    segments.sort_unstable();
    Ok(segments)
}

/// Creates a segment. Its name is durable, so that the file survives the death of the machine.
pub(crate) fn create(dir: &Path, id: SegmentId) -> io::Result<File> {
    let path = id.path(dir);
    let mut options = OpenOptions::new();
    options.create_new(true).append(true);
    // Captures contain prompts and answers, so other users have no access.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&path)?;
    let [a, b, c, d, e, f, g] = MAGIC;
    let begun = file.write_all(&[a, b, c, d, e, f, g, 3]).and_then(|()| file.sync_data());
    let begun = begun.and_then(|()| File::open(dir)?.sync_all());
    if begun.is_err() {
        // A leftover file would make the next try fail, because `create_new` needs a free name.
        drop(fs::remove_file(&path));
    }
    begun.map(|()| file)
}

/// Reads the head of a segment. Returns `None` if the file is shorter: a process died before it wrote the head.
pub(crate) fn read_head(file: &mut impl Read) -> io::Result<Option<Format>> {
    let mut head = [0; HEAD as usize];
    match file.read_exact(&mut head) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let [name @ .., version] = head;
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    match version {
        _ if name != MAGIC => Err(wrong("it is no capture file of rolltap".to_owned())),
        1 => Ok(Some(Format::V1)),
        2 => Ok(Some(Format::V2)),
        3 => Ok(Some(Format::V3)),
        _ => Err(wrong(format!("its format is version {version}, this rolltap reads versions 1 to 3"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_listed_in_order_and_nothing_else_is() {
        let dir = tempfile::tempdir().unwrap();
        assert!(list(&dir.path().join("none")).unwrap().is_empty());
        for name in
            ["capture-00000010.rolltap", "capture-2.rolltap", "capture.rolltap", "capture-x.rolltap", "a"]
        {
            fs::write(dir.path().join(name), b"").unwrap();
        }
        assert_eq!(list(dir.path()).unwrap(), [SegmentId(0), SegmentId(2), SegmentId(10)]);
    }

    #[test]
    fn a_segment_says_its_format() {
        let dir = tempfile::tempdir().unwrap();
        create(dir.path(), SegmentId::NONE.next()).unwrap();
        assert!(create(dir.path(), SegmentId::NONE.next()).is_err(), "never twice");
        let head = fs::read(SegmentId::NONE.next().path(dir.path())).unwrap();
        assert_eq!(read_head(&mut &*head).unwrap(), Some(Format::V3));
        assert_eq!(read_head(&mut &b"rolltap\x02"[..]).unwrap(), Some(Format::V2));
        assert_eq!(read_head(&mut &b"rolltap\x01"[..]).unwrap(), Some(Format::V1));
        assert_eq!(read_head(&mut &head[..5]).unwrap(), None);
        assert!(read_head(&mut &b"rolltap\x09"[..]).unwrap_err().to_string().contains("version 9"));
        assert!(read_head(&mut &b"something else"[..]).is_err());
    }
}
