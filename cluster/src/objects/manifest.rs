//! The list of a shard's segments in object storage.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::digest::{Sha256, Sha256Hasher};

/// The version of the manifest.
const FORMAT: u32 = 1;
/// The bytes of one read of a file.
const BUFFER: usize = 1 << 20;

/// The list of a shard's segments in object storage, a JSON object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    format: u32,
    /// The identity of the cluster.
    pub cluster: Uuid,
    /// The number of the shard.
    pub shard: u32,
    /// The epoch of the holder that wrote the manifest.
    pub epoch: u64,
    /// The number of times that the manifest was written.
    pub revision: u64,
    /// The sequence number of the last message of the shard's log whose content is in the segments. 0 for none.
    pub log_sequence: u64,
    /// The segments, by ascending number.
    pub segments: Vec<SegmentObject>,
}

/// A segment in object storage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentObject {
    /// The number of the segment.
    pub number: u32,
    /// The size in bytes.
    pub bytes: u64,
    /// The checksum of the content.
    pub sha256: Sha256,
    /// The place of the object below that of the shard.
    key: String,
}

/// Why bytes are no manifest that can be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The bytes are no JSON object, or a field is wrong.
    #[error("expected a manifest of rolltap, found other content: {0}")]
    Content(#[from] serde_json::Error),
    /// The manifest has another format.
    #[error("expected format {FORMAT}, found format {0}: use the newer rolltap that wrote it")]
    Format(u64),
    /// The manifest is of another shard.
    #[error("expected the manifest of shard {expected}, found that of shard {found}")]
    Shard {
        /// The number of the shard whose manifest is read.
        expected: u32,
        /// The number in the manifest.
        found: u32,
    },
    /// The segments are not in ascending order.
    #[error("expected segments by ascending number, found {after} after {before}")]
    Order {
        /// The number before.
        before: u32,
        /// The number after.
        after: u32,
    },
    /// The key of a segment does not follow from its number and its checksum.
    #[error("expected the key {expected:?} for segment {number}, found {found:?}")]
    Key {
        /// The number of the segment.
        number: u32,
        /// The key that follows from number and checksum.
        expected: String,
        /// The key in the manifest.
        found: String,
    },
}

impl SegmentObject {
    /// Whether a file has the content of the segment.
    ///
    /// # Errors
    /// The file exists and cannot be read.
    pub fn is_copied_at(&self, path: &Path) -> io::Result<bool> {
        let mut file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            file => file?,
        };
        if file.metadata()?.len() != self.bytes {
            return Ok(false);
        }
        let (mut hasher, mut buffer) = (Sha256Hasher::default(), vec![0; BUFFER]);
        loop {
            let read = file.read(&mut buffer)?;
            match buffer.get(..read) {
                None | Some([]) => return Ok(hasher.finish() == self.sha256),
                Some(part) => hasher.update(part),
            }
        }
    }
}

/// The part of a manifest that all formats have.
#[derive(Deserialize)]
struct AnyFormat {
    format: u64,
}

impl SegmentObject {
    /// The object of a segment with this number, size in bytes, and checksum.
    pub fn new(number: u32, bytes: u64, sha256: Sha256) -> Self {
        Self { number, bytes, sha256, key: key(number, &sha256) }
    }

    /// The place of the object below that of the shard.
    pub fn key(&self) -> &str {
        &self.key
    }
}

fn key(number: u32, sha256: &Sha256) -> String {
    format!("segments/{number:08}-{}.rolltap", sha256.short())
}

impl Manifest {
    /// The manifest before any segment is in object storage.
    pub(super) fn empty(cluster: Uuid, shard: u32) -> Self {
        Self { format: FORMAT, cluster, shard, epoch: 0, revision: 0, log_sequence: 0, segments: Vec::new() }
    }

    /// Returns the segment of this number.
    pub fn segment(&self, number: u32) -> Option<&SegmentObject> {
        let index = self.segments.binary_search_by_key(&number, |segment| segment.number);
        index.ok().and_then(|index| self.segments.get(index))
    }

    /// Parses the manifest of a shard.
    ///
    /// # Errors
    /// The bytes are no manifest of this format, or the manifest is of another shard.
    pub fn parse(bytes: &[u8], shard: u32) -> Result<Self, ManifestError> {
        // The format is read first, because other fields may have another meaning in another format.
        let AnyFormat { format } = serde_json::from_slice(bytes)?;
        if format != u64::from(FORMAT) {
            return Err(ManifestError::Format(format));
        }
        let manifest: Self = serde_json::from_slice(bytes)?;
        if manifest.shard != shard {
            return Err(ManifestError::Shard { expected: shard, found: manifest.shard });
        }
        for pair in manifest.segments.windows(2) {
            let [one, two] = pair else { continue };
            if one.number >= two.number {
                return Err(ManifestError::Order { before: one.number, after: two.number });
            }
        }
        // A key from outside must not name another object.
        for SegmentObject { number, sha256, key: found, .. } in &manifest.segments {
            let expected = key(*number, sha256);
            if *found != expected {
                return Err(ManifestError::Key { number: *number, expected, found: found.clone() });
            }
        }
        Ok(manifest)
    }

    /// Encodes the manifest. No map has keys other than strings, so the encoding cannot fail.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut encoded = serde_json::to_vec_pretty(self).unwrap_or_default();
        encoded.push(b'\n');
        encoded
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn manifests() -> impl Strategy<Value = Manifest> {
        let contents = proptest::collection::btree_map(any::<u32>(), any::<Vec<u8>>(), 0..5);
        (any::<u128>(), any::<u64>(), any::<u64>(), any::<u64>(), contents).prop_map(
            |(cluster, epoch, revision, log_sequence, contents)| {
                let segment = |(number, content): (u32, Vec<u8>)| {
                    SegmentObject::new(number, content.len() as u64, Sha256::of(&content))
                };
                let segments = contents.into_iter().map(segment).collect();
                let empty = Manifest::empty(Uuid::from_u128(cluster), 7);
                Manifest { epoch, revision, log_sequence, segments, ..empty }
            },
        )
    }

    proptest! {
        #[test]
        fn a_manifest_survives_encoding(manifest in manifests()) {
            prop_assert_eq!(Manifest::parse(&manifest.encode(), 7).unwrap(), manifest);
        }

        #[test]
        fn a_changed_byte_gives_an_error_or_a_manifest(manifest in manifests(), place: prop::sample::Index, byte: u8) {
            let mut encoded = manifest.encode();
            *place.get_mut(&mut encoded) = byte;
            let _ = Manifest::parse(&encoded, 7);
        }
    }

    #[test]
    fn fuzz_object_manifest() {
        rolltap_testing::fuzz!("object_manifest", |bytes| {
            // Whatever is accepted survives encoding.
            if let Ok(manifest) = Manifest::parse(bytes, 0) {
                assert_eq!(Manifest::parse(&manifest.encode(), 0).unwrap(), manifest);
            }
        });
    }

    fn error(text: &str) -> String {
        Manifest::parse(text.as_bytes(), 0).unwrap_err().to_string()
    }

    fn with_segments(segments: &str) -> String {
        format!(
            r#"{{"format":1,"cluster":"00000000-0000-0000-0000-000000000001","shard":0,"epoch":1,"revision":1,"log_sequence":0,"segments":[{segments}]}}"#
        )
    }

    #[test]
    fn other_content_and_other_formats_are_named() {
        assert!(error("<html>").starts_with("expected a manifest of rolltap, found other content: "));
        assert!(error("{}").contains("missing field `format`"));
        assert_eq!(
            error(r#"{"format":2,"shards":[]}"#),
            "expected format 1, found format 2: use the newer rolltap that wrote it"
        );
        assert_eq!(
            Manifest::parse(with_segments("").as_bytes(), 3).unwrap_err().to_string(),
            "expected the manifest of shard 3, found that of shard 0"
        );
    }

    #[test]
    fn segments_are_in_order_and_have_their_own_keys() {
        let segment = |number, key: &str| {
            let sha256 = Sha256::of(b"");
            let key = if key.is_empty() { super::key(number, &sha256) } else { key.to_owned() };
            format!(r#"{{"number":{number},"bytes":0,"sha256":"{sha256}","key":"{key}"}}"#)
        };
        let two = format!("{},{}", segment(1, ""), segment(2, ""));
        let manifest = Manifest::parse(with_segments(&two).as_bytes(), 0).unwrap();
        assert_eq!(manifest.segment(2).unwrap().key(), "segments/00000002-e3b0c44298fc1c14.rolltap");
        assert_eq!(manifest.segment(3), None);
        let twice = format!("{},{}", segment(2, ""), segment(2, ""));
        assert_eq!(error(&with_segments(&twice)), "expected segments by ascending number, found 2 after 2");
        let foreign = segment(1, "../../other");
        assert!(error(&with_segments(&foreign)).ends_with("found \"../../other\""));
    }
}
