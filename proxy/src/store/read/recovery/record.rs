//! The records that a scan decodes itself, and the defects that it finds.

use jiff::Timestamp;
use rolltap_rollout::ids::{CallId, TrialId};

use crate::store::format::content::TrialNumber;
use crate::store::write::encoder::Mark;

/// The defect of a record.
#[derive(Clone, Debug)]
pub(super) enum BadRecord {
    /// The record cannot be read.
    Unreadable(String),
    /// The record concerns a trial that was never opened.
    Unopened(TrialId),
    /// A policy version before this one is missing.
    Policy(String),
}

impl BadRecord {
    pub(super) fn reason(&self) -> String {
        match self {
            Self::Unreadable(reason) | Self::Policy(reason) => reason.clone(),
            Self::Unopened(trial) => format!("trial {trial} was never opened"),
        }
    }
}

impl From<String> for BadRecord {
    fn from(reason: String) -> Self {
        Self::Unreadable(reason)
    }
}

impl From<&str> for BadRecord {
    fn from(reason: &str) -> Self {
        Self::Unreadable(reason.to_owned())
    }
}

/// The intent of a call: it is durable before the call goes upstream.
#[derive(Clone, Debug)]
pub(super) struct Intent {
    pub(super) trial: TrialNumber,
    pub(super) call_id: CallId,
    pub(super) at: Timestamp,
}

impl Intent {
    /// Reads the body of an intent's record, or returns `None` if it is malformed.
    pub(super) fn read(trial: TrialNumber, mark: Mark, body: &[u8]) -> Option<Self> {
        let (micros, name) = body.split_first_chunk()?;
        let at = Timestamp::from_microsecond(i64::from_le_bytes(*micros)).ok()?;
        let call_id = match name {
            // Without a name, the mark is the id.
            [] => CallId::of_bytes(mark),
            name => CallId::new(std::str::from_utf8(name).ok()?).ok()?,
        };
        Some(Intent { trial, call_id, at })
    }
}
