//! Scans a data directory. Finds each trial and the positions of its calls without decoding the calls.
//!
//! The proxy scans once, at start-up. A reader beside a running proxy keeps its [`Scanner`], which then reads only what
//! was appended since.

mod apply;
mod record;
mod scanner;

use std::path::Path;

use jiff::Timestamp;
use rolltap_rollout::ids::{CallId, TrialId};
use rolltap_rollout::rollout::TrialRewards;

pub(crate) use self::scanner::Scanner;
use super::index::Index;
use crate::store::format::event::{Completion, GroupClosed, Opened, PolicyChange};
use crate::store::format::note::{CallNote, Pause};
use crate::store::format::segment::SegmentId;
use crate::store::{Damage, ReadError, Summary};

/// The content of a data directory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scan {
    /// Every trial, in the order in which they were opened.
    pub(crate) trials: Vec<RecoveredTrial>,
    pub(crate) policy: Vec<PolicyChange>,
    /// The pauses, in the order in which they began. Those in removed segments are missing.
    pub(crate) pauses: Vec<Pause>,
    /// The closed groups, in the order in which they closed.
    pub(crate) closed_groups: Vec<GroupClosed>,
    /// The highest number of a completion or closing. The highest feed number of a trial whose retention is over.
    pub(crate) last_sequence: u64,
    /// The highest number of a trial whose retention is over.
    pub(crate) forgotten_through: u64,
    pub(crate) index: Index,
    /// Calls with an intent, but without a record.
    pub(crate) unfinished: Vec<Unfinished>,
    /// The damaged parts, which were skipped.
    pub(crate) damage: Vec<Damage>,
    /// The last segment, and the offset of its next record. `None` if no segment can be appended to.
    pub(crate) last: Option<(SegmentId, u64)>,
    /// The segment with the highest number.
    pub(crate) latest: Option<SegmentId>,
}

/// A trial without its calls.
#[derive(Clone, Debug)]
pub(crate) struct RecoveredTrial {
    pub(crate) opened: Opened,
    /// The time of the seal, or `None` if the trial is open.
    pub(crate) sealed_at: Option<Timestamp>,
    pub(crate) summary: Option<Summary>,
    pub(crate) rewards: TrialRewards,
    pub(crate) completion: Option<Completion>,
    pub(crate) notes: Vec<CallNote>,
}

/// A call that was in flight when the process ended.
#[derive(Clone, Debug)]
pub(crate) struct Unfinished {
    pub(crate) trial_id: TrialId,
    pub(crate) call_id: CallId,
    pub(crate) at: Timestamp,
}

/// Scans a data directory. The result is empty if the directory does not exist.
pub(crate) fn scan(dir: &Path) -> Result<Scan, ReadError> {
    let mut scanner = Scanner::default();
    scanner.advance(dir)?;
    Ok(scanner.finish())
}
