//! Selects the segments to remove: those whose trials were all settled long ago. A segment is removed as a whole,
//! together with every trial that has a record in it.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::format::segment::SegmentId;

/// The minimum age of trials that are removed to free space. Until then, their trainer may not have read them.
const YOUNGEST: SignedDuration = SignedDuration::from_hours(1);

/// How long captures are stored. The default is forever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// The maximum age of complete trials. For a trial without a reward, the age counts from one day after the seal.
    pub max_age: Option<Duration>,
    /// While all segments together have more bytes than this, the oldest are removed.
    pub max_bytes: Option<u64>,
}

/// The facts that decide whether a segment is removed.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentFacts {
    pub(super) id: SegmentId,
    pub(super) bytes: u64,
    /// The time from which its retention counts. `None` while one of its trials is open.
    pub(super) settled: Option<Timestamp>,
}

impl Retention {
    /// Returns the segments to remove now. `segments` is in order, oldest first.
    pub(super) fn expired(&self, segments: &[SegmentFacts], now: Timestamp) -> Vec<SegmentId> {
        let mut left: u64 = segments.iter().map(|segment| segment.bytes).sum();
        let mut expired = Vec::new();
        for SegmentFacts { id, bytes, settled } in segments {
            let Some(age) = settled.map(|settled| now.duration_since(settled)) else { continue };
            // After a clock is set back, the age is negative. `unsigned_abs` alone would make it look old.
            let is_old = self.max_age.is_some_and(|max| age.unsigned_abs() > max && age.is_positive());
            let is_too_much = self.max_bytes.is_some_and(|max| left > max) && age >= YOUNGEST;
            if is_old || is_too_much {
                left -= bytes;
                expired.push(*id);
            }
        }
        expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sealed_long_ago_goes_and_nothing_open_ever_does() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let hours_ago = |hours: i64| Some(Timestamp::from_second(1_000_000 - hours * 3600).unwrap());
        let mut id = SegmentId::NONE;
        let segments: Vec<_> = [hours_ago(90), None, hours_ago(50), hours_ago(10), hours_ago(0)]
            .into_iter()
            .map(|settled| {
                id = id.next();
                SegmentFacts { id, bytes: 100, settled }
            })
            .collect();
        let expired = |hours: Option<u64>, max_bytes| {
            let retention =
                Retention { max_age: hours.map(|hours| Duration::from_secs(hours * 3600)), max_bytes };
            let expired = retention.expired(&segments, now).into_iter();
            expired
                .map(|id| segments.iter().position(|segment| segment.id == id).unwrap())
                .collect::<Vec<_>>()
        };
        assert!(expired(None, None).is_empty());
        assert_eq!(expired(Some(60), None), [0]);
        assert_eq!(expired(Some(0), None), [0, 2, 3]);
        assert_eq!(expired(None, Some(400)), [0]);
        assert_eq!(expired(None, Some(250)), [0, 2, 3]);
        assert_eq!(expired(None, Some(0)), [0, 2, 3], "the last was settled just now");
    }
}
