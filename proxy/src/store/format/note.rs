//! Notes that no reader of tokens needs. The viewer shows them.

use jiff::Timestamp;
use rolltap_rollout::ids::CallId;
use serde::{Deserialize, Serialize};

/// An observation about a call, made after the call was recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallNote {
    /// The call.
    pub call_id: CallId,
    /// The observation.
    pub kind: CallNoteKind,
    /// When the proxy observed it.
    pub at: Timestamp,
}

/// What was observed about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallNoteKind {
    /// A marked retry got the recorded answer of the call, and sampled nothing.
    Replayed,
    /// The server rendered the messages of the call's spliced prompt again.
    Audited {
        /// Whether the server's ids are those of the proxy's own rendering, id for id.
        is_equal: bool,
    },
}

/// A pause of the trainer, in which the proxy holds new calls back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// The time of the request to pause.
    pub began_at: Timestamp,
    /// The time of the request to resume. `None` while the pause lasts.
    pub ended_at: Option<Timestamp>,
}

/// Adds a record of a pause. A later record of the same pause has its end.
pub(crate) fn add_pause(pauses: &mut Vec<Pause>, pause: Pause) {
    match pauses.iter_mut().rev().find(|known| known.began_at == pause.began_at) {
        Some(known) => known.ended_at = pause.ended_at.or(known.ended_at),
        None => pauses.push(pause),
    }
}

/// Returns the pause that lasts on, as its records have it. `None` if the last pause has ended.
pub(crate) fn current_pause(pauses: &[Pause]) -> Option<Pause> {
    pauses.last().filter(|pause| pause.ended_at.is_none()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_record_ends_a_pause() {
        let second = |second| Timestamp::from_second(second).unwrap();
        let pause =
            |began, ended: Option<i64>| Pause { began_at: second(began), ended_at: ended.map(second) };
        let mut pauses = Vec::new();
        add_pause(&mut pauses, pause(1, None));
        assert_eq!(current_pause(&pauses), Some(pause(1, None)));
        add_pause(&mut pauses, pause(1, Some(2)));
        assert_eq!(current_pause(&pauses), None);
        // A retried write may repeat a record in front of its end.
        add_pause(&mut pauses, pause(1, None));
        add_pause(&mut pauses, pause(5, None));
        assert_eq!(pauses, [pause(1, Some(2)), pause(5, None)]);
        assert_eq!(current_pause(&pauses), Some(pause(5, None)));
    }
}
