//! Reservation for request bodies in memory, from their first byte until their call is answered or streams: a flood of them is
//! refused before it fills the machine, and none of one trial keeps out those of all others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rolltap_rollout::ids::TrialId;

/// Bytes of all trials.
const ROOM: u64 = 8 << 30;
/// Bytes of one: four bodies of the largest size.
const SHARE: u64 = 1 << 30;
/// Reservation is taken in steps, so that small pieces cost no more than large ones.
const STEP: u64 = 1 << 20;

/// The bodies that are held.
#[derive(Debug, Default)]
pub(crate) struct BodyBudget {
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    total: u64,
    of: HashMap<TrialId, u64>,
}

/// The room of one body, given back when this goes.
#[derive(Debug)]
pub(crate) struct Reservation {
    inbox: Arc<BodyBudget>,
    trial: TrialId,
    taken: u64,
}

/// Why there is no room for more of a body. It passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BudgetFull {
    #[error(
        "this trial's requests under way hold {SHARE} bytes, as many as one trial may; wait for one to end"
    )]
    OfTrial,
    #[error("the requests under way hold {ROOM} bytes, as many as this proxy takes; try again")]
    OfAll,
}

impl Reservation {
    /// For a body of that trial, none of which has come.
    pub(crate) fn of(inbox: &Arc<BodyBudget>, trial: &TrialId) -> Self {
        Self { inbox: Arc::clone(inbox), trial: trial.clone(), taken: 0 }
    }

    /// Makes room for so many bytes in all.
    pub(crate) fn grow(&mut self, to: u64) -> Result<(), BudgetFull> {
        if to <= self.taken {
            return Ok(());
        }
        let more = (to - self.taken).next_multiple_of(STEP);
        let mut held = self.inbox.held.lock().unwrap_or_else(PoisonError::into_inner);
        let of_trial = held.of.get(&self.trial).copied().unwrap_or_default();
        if of_trial + more > SHARE {
            return Err(BudgetFull::OfTrial);
        }
        if held.total + more > ROOM {
            return Err(BudgetFull::OfAll);
        }
        held.total += more;
        held.of.insert(self.trial.clone(), of_trial + more);
        self.taken += more;
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut held = self.inbox.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.total -= self.taken;
        if let Some(of_trial) = held.of.get_mut(&self.trial) {
            *of_trial -= self.taken;
            if *of_trial == 0 {
                held.of.remove(&self.trial);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rooms(inbox: &Arc<BodyBudget>, trial: &str, count: u64) -> Vec<Reservation> {
        let trial = TrialId::new(trial).unwrap();
        (0..count).map(|_| Reservation::of(inbox, &trial)).collect()
    }

    #[test]
    fn a_trial_takes_its_share_and_leaves_room_to_others() {
        let inbox = Arc::new(BodyBudget::default());
        let mut greedy = rooms(&inbox, "greedy", 5);
        for room in &mut greedy[..4] {
            room.grow(SHARE / 4).unwrap();
        }
        assert_eq!(greedy[4].grow(1), Err(BudgetFull::OfTrial));
        assert_eq!(rooms(&inbox, "modest", 1)[0].grow(SHARE), Ok(()));
        greedy.remove(0);
        assert_eq!(greedy[3].grow(SHARE / 4), Ok(()));
    }

    #[test]
    fn all_trials_together_do_not_fill_the_machine_and_everything_is_given_back() {
        let inbox = Arc::new(BodyBudget::default());
        let mut all: Vec<_> =
            (0..ROOM / SHARE).flat_map(|trial| rooms(&inbox, &format!("t{trial}"), 1)).collect();
        all.iter_mut().for_each(|room| room.grow(SHARE).unwrap());
        assert_eq!(rooms(&inbox, "last", 1)[0].grow(1), Err(BudgetFull::OfAll));
        drop(all);
        let held = inbox.held.lock().unwrap();
        assert_eq!((held.total, held.of.len()), (0, 0));
    }

    #[test]
    fn a_body_that_grows_takes_what_it_has_grown_by() {
        let inbox = Arc::new(BodyBudget::default());
        let mut rooms = rooms(&inbox, "t", 1);
        for to in [0, 1, 10, STEP, STEP + 1, 2] {
            rooms[0].grow(to).unwrap();
        }
        assert_eq!(inbox.held.lock().unwrap().total, 2 * STEP);
    }
}
