//! The file of submissions: one JSON object per line, appended and synced before a submission is acknowledged.

use std::collections::{BTreeMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rolltap_proxy::api::{DropCause, SubmissionState, Submit};
use rolltap_rollout::ids::{GroupId, SubmissionId, TaskId};
use serde::{Deserialize, Serialize};

use super::pacing::Position;
use crate::common::new_file;

/// The number of ended submissions that a restart keeps. Older ones are forgotten.
pub(super) const KEPT: usize = 10_000;

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SubmissionRecord {
    /// A submission was accepted.
    Submitted(Box<Submitted>),
    /// The first sample of a group began.
    GroupBegun { id: SubmissionId, group_id: GroupId, policy_version: i32, at: Timestamp },
    /// A group closed.
    GroupClosed {
        id: SubmissionId,
        group_id: GroupId,
        at: Timestamp,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dropped: Option<DropCause>,
    },
    /// The count of released groups, for the budget of staleness.
    Position(Position),
    /// No further sample of a submission begins, and the running ones are stopped.
    Stopping { id: SubmissionId, state: SubmissionState },
    /// A submission ended.
    Ended {
        id: SubmissionId,
        state: SubmissionState,
        at: Timestamp,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        groups: BTreeMap<GroupId, GroupProgress>,
    },
}

/// An accepted submission.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Submitted {
    pub(super) id: SubmissionId,
    pub(super) at: Timestamp,
    pub(super) policy_version: i32,
    pub(super) request: Submit,
    pub(super) groups: Vec<GroupOfTask>,
}

/// A group, its task and its size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GroupOfTask {
    pub(super) group_id: GroupId,
    pub(super) task_id: TaskId,
    pub(super) samples: u32,
}

/// The progress of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GroupProgress {
    /// The number of samples that ended.
    pub(super) ended: u32,
    /// The failures that are not the agent's, by cause.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) failures: BTreeMap<String, u32>,
    /// When the first sample began, and under which policy version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) begun: Option<(Timestamp, i32)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) closed_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) dropped: Option<DropCause>,
}

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SubmissionLogError {
    /// The system refused to read or write it.
    #[error("cannot use {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// A line is not a record. Only the last line can be half written.
    #[error("{} line {line}: expected a record of a submission: {problem}; restore the file, or move it away to begin with an empty queue", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
        /// The error of the parser.
        problem: String,
    },
    /// The thread that writes the file has ended.
    #[error("the queue of the service cannot be written any more: the service is ending")]
    Ended,
}

/// The open file of submissions.
#[derive(Debug)]
pub(super) struct SubmissionLog {
    path: PathBuf,
    file: File,
    /// The length of the complete lines in bytes.
    length: u64,
}

impl SubmissionLog {
    /// Opens the file, and returns its records. A half-written last line, which was never acknowledged, is removed.
    pub(super) fn open(path: &Path) -> Result<(Self, Vec<SubmissionRecord>), SubmissionLogError> {
        let failed = |source| SubmissionLogError::File { path: path.to_owned(), source };
        let bytes = match std::fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            read => read.map_err(failed)?,
        };
        let (records, length) = parse(&bytes).map_err(|(line, problem)| SubmissionLogError::Damaged {
            path: path.to_owned(),
            line,
            problem,
        })?;
        let (records, is_shorter) = without_forgotten(records);
        if is_shorter {
            return Ok((Self::rewrite(path, &records).map_err(failed)?, records));
        }
        let file = OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
        let mut log = Self { path: path.to_owned(), file, length: length as u64 };
        log.cut().map_err(failed)?;
        Ok((log, records))
    }

    /// Replaces the file by one with these records.
    fn rewrite(path: &Path, records: &[SubmissionRecord]) -> io::Result<Self> {
        let mut draft = new_file::beside(path)?;
        let lines = lines(records)?;
        draft.write_all(&lines)?;
        new_file::place(draft, path, true)?;
        let file = OpenOptions::new().append(true).open(path)?;
        Ok(Self { path: path.to_owned(), file, length: lines.len() as u64 })
    }

    /// Appends records. With `sync` they are durable when this returns.
    pub(super) fn append(
        &mut self,
        records: &[SubmissionRecord],
        sync: bool,
    ) -> Result<(), SubmissionLogError> {
        let lines = lines(records);
        let appended = lines.and_then(|lines| {
            self.file.write_all(&lines)?;
            if sync {
                self.file.sync_data()?;
            }
            Ok(lines.len() as u64)
        });
        match appended {
            Ok(length) => self.length += length,
            Err(source) => {
                // A half-written line must not be continued by the next one.
                let cut = self.cut();
                let source = cut.err().unwrap_or(source);
                return Err(SubmissionLogError::File { path: self.path.clone(), source });
            }
        }
        Ok(())
    }

    /// Removes the bytes behind the complete lines.
    fn cut(&mut self) -> io::Result<()> {
        self.file.set_len(self.length)?;
        self.file.sync_all()
    }
}

fn lines(records: &[SubmissionRecord]) -> io::Result<Vec<u8>> {
    let mut lines = Vec::new();
    for record in records {
        serde_json::to_writer(&mut lines, record)?;
        lines.push(b'\n');
    }
    Ok(lines)
}

/// Returns the records, and the length of the complete lines. An error has the number of the line.
fn parse(bytes: &[u8]) -> Result<(Vec<SubmissionRecord>, usize), (usize, String)> {
    let length = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let complete = bytes.get(..length).unwrap_or_default();
    let lines = complete.split_inclusive(|byte| *byte == b'\n').zip(1..);
    let records =
        lines.map(|(line, number)| serde_json::from_slice(line).map_err(|error| (number, error.to_string())));
    Ok((records.collect::<Result<_, _>>()?, length))
}

/// Removes the oldest ended submissions beyond [`KEPT`]. Also returns whether there were any.
fn without_forgotten(records: Vec<SubmissionRecord>) -> (Vec<SubmissionRecord>, bool) {
    let ended: Vec<SubmissionId> = records
        .iter()
        .filter_map(|record| match record {
            SubmissionRecord::Ended { id, .. } => Some(id.clone()),
            _ => None,
        })
        .collect();
    let forgotten: HashSet<_> = ended.iter().take(ended.len().saturating_sub(KEPT)).collect();
    if forgotten.is_empty() {
        return (records, false);
    }
    let mut positions = records.iter().filter(|record| matches!(record, SubmissionRecord::Position(_)));
    let last_position = positions.next_back().cloned();
    let is_kept = |record: &SubmissionRecord| record.id().is_some_and(|id| !forgotten.contains(id));
    let kept = last_position.into_iter().chain(records.into_iter().filter(is_kept));
    (kept.collect(), true)
}

impl SubmissionRecord {
    fn id(&self) -> Option<&SubmissionId> {
        match self {
            Self::Submitted(submitted) => Some(&submitted.id),
            Self::GroupBegun { id, .. }
            | Self::GroupClosed { id, .. }
            | Self::Stopping { id, .. }
            | Self::Ended { id, .. } => Some(id),
            Self::Position(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn submitted(number: usize) -> SubmissionRecord {
        SubmissionRecord::Submitted(Box::new(Submitted {
            id: SubmissionId::new(format!("s{number:06}")).unwrap(),
            at: Timestamp::UNIX_EPOCH,
            policy_version: 3,
            request: Submit { task: Some(format!("task {number}\n")), ..Submit::default() },
            groups: vec![GroupOfTask {
                group_id: GroupId::new("g").unwrap(),
                task_id: TaskId::new("t").unwrap(),
                samples: 2,
            }],
        }))
    }

    fn ended(number: usize) -> SubmissionRecord {
        let id = SubmissionId::new(format!("s{number:06}")).unwrap();
        let (at, groups) = (Timestamp::UNIX_EPOCH, BTreeMap::new());
        SubmissionRecord::Ended { id, state: SubmissionState::Done, at, error: None, groups }
    }

    #[test]
    fn what_is_appended_is_read_after_any_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("submissions.jsonl");
        let (mut log, records) = SubmissionLog::open(&path).unwrap();
        assert_eq!(records, []);
        log.append(&[submitted(0), ended(0)], true).unwrap();
        log.append(&[submitted(1)], true).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for cut in 0..=whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let (mut log, records) = SubmissionLog::open(&path).unwrap();
            let lines = whole[..cut].iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(records, [submitted(0), ended(0), submitted(1)][..lines]);
            log.append(&[submitted(2)], true).unwrap();
            let (_, again) = SubmissionLog::open(&path).unwrap();
            assert_eq!(again.len(), lines + 1, "a record follows the last complete line");
        }
    }

    #[test]
    fn a_damaged_line_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("submissions.jsonl");
        std::fs::write(&path, "{\"stopping\": {}}\n").unwrap();
        let error = SubmissionLog::open(&path).unwrap_err().to_string();
        assert!(error.contains("line 1") && error.contains("missing field `id`"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"stopping\": {}}\n", "nothing is lost");
    }

    #[test]
    fn the_oldest_ended_submissions_are_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("submissions.jsonl");
        let (mut log, _) = SubmissionLog::open(&path).unwrap();
        let all: Vec<_> = (0..=KEPT).flat_map(|number| [submitted(number), ended(number)]).collect();
        log.append(&all, true).unwrap();
        log.append(&[submitted(KEPT + 1)], true).unwrap();
        let (mut log, records) = SubmissionLog::open(&path).unwrap();
        assert_eq!(records.len(), 2 * KEPT + 1);
        assert_eq!((records.first(), records.last()), (Some(&submitted(1)), Some(&submitted(KEPT + 1))));
        log.append(&[ended(KEPT + 1)], true).unwrap();
        assert_eq!(SubmissionLog::open(&path).unwrap().1.len(), 2 * KEPT);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            // The length of the complete lines is that of the last newline, whatever the lines are.
            let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            if let Ok((_, length)) = parse(&bytes) {
                prop_assert_eq!(length, end);
            }
        }
    }
}
