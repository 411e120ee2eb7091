//! The memory budget of request bodies, from their first byte until their call is answered or streams.
//!
//! A flood of bodies is rejected before it fills the memory of the machine, and one trial cannot use up the whole
//! budget.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rolltap_rollout::ids::TrialId;

/// The budget of all trials, in bytes.
const ROOM: u64 = 8 << 30;
/// The budget of one trial, in bytes: four bodies of the largest size.
const SHARE: u64 = 1 << 30;
/// The granularity of reservations, in bytes. Steps limit how often small pieces take the lock.
const STEP: u64 = 1 << 20;

/// The memory that bodies take at present.
#[derive(Debug, Default)]
pub(crate) struct BodyBudget {
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    total: u64,
    of: HashMap<TrialId, u64>,
}

/// The memory of one body. It is released on drop.
#[derive(Debug)]
pub(crate) struct Reservation {
    inbox: Arc<BodyBudget>,
    trial: TrialId,
    taken: u64,
}

/// The reason why a request body may not grow. Transient: the client may retry.
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
    /// Returns an empty reservation for a body of this trial.
    pub(crate) fn of(inbox: &Arc<BodyBudget>, trial: &TrialId) -> Self {
        Self { inbox: Arc::clone(inbox), trial: trial.clone(), taken: 0 }
    }

    /// Grows the reservation to `to` bytes in total. It never shrinks.
    pub(crate) fn grow(&mut self, to: u64) -> Result<(), BudgetFull> {
        if to <= self.taken {
            return Ok(());
        }
        let more = (to - self.taken).next_multiple_of(STEP);
        let mut held = self.inbox.held.lock().unwrap_or_else(PoisonError::into_inner);
        let of_trial = held.of.get(&self.trial).copied().unwrap_or_default();
        // The trial's own share first: an agent at its share must wait for its own calls, however full the proxy is.
        if of_trial + more > SHARE {
            return Err(BudgetFull::OfTrial);
        }
        if held.total + more > ROOM {
            return Err(BudgetFull::OfAll);
        }
        held.total += more;
        match held.of.get_mut(&self.trial) {
            Some(of_trial) => *of_trial += more,
            None => drop(held.of.insert(self.trial.clone(), more)),
        }
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
            // Without this, the map would grow with every trial of the process.
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
