//! One environment from its creation to its removal. It accepts one call at a time, whose work continues if the caller
//! leaves.
//!
//! A call takes the episode out and puts it back at its end. No lock is held during the work, and the stored state is
//! always complete.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rolltap_proxy::to_the_end;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::episode::{Episode, EpisodeEnded};
use super::error::GymError;
use super::hosts::Hosts;
use super::lease::Lease;
use super::reply::{EnvStatus, ResetReply, StepReply};
use super::request::Action;
use super::spec::Facts;

/// One environment.
pub(super) struct Slot {
    pub(super) facts: Facts,
    pub(super) lease: Arc<Lease>,
    state: Mutex<SlotState>,
    /// Cancelled when the environment must be removed. A call in progress ends early then.
    leaving: CancellationToken,
}

struct SlotState {
    stage: Stage,
    /// Why the environment accepts no further call. `None` as long as it accepts calls.
    removed: Option<Removed>,
    /// The answer to the latest step.
    last: Option<StepReply>,
}

enum Stage {
    /// There is no episode.
    Empty(Emptiness),
    Running(Box<Episode>),
    /// The episode has ended, and its environment is being removed.
    Over(EpisodeEnded),
    /// A call is in progress and holds the episode.
    Busy(Busy),
}

#[derive(Clone)]
enum Emptiness {
    NotReset,
    Vanished(String),
}

#[derive(Clone)]
struct Busy {
    is_step: bool,
    cancel: CancellationToken,
    /// Cancelled when the call has put the episode back.
    over: CancellationToken,
}

/// Why an environment accepts no further call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removed {
    Closed,
    Expired,
    /// The server ends.
    Stopping,
}

/// A call's hold on the environment. Dropped without [`SlotGuard::end`], as by a panic, it leaves no episode.
struct SlotGuard {
    slot: Arc<Slot>,
    cancel: CancellationToken,
    ended: bool,
    _over: DropGuard,
}

impl Slot {
    pub(super) fn new(facts: Facts, lease: Arc<Lease>) -> Arc<Self> {
        let state = SlotState { stage: Stage::Empty(Emptiness::NotReset), removed: None, last: None };
        Arc::new(Self { facts, lease, state: Mutex::new(state), leaving: CancellationToken::new() })
    }

    /// Begins another episode, whatever the state of the earlier one. A step in progress is cancelled.
    pub(super) async fn reset(self: Arc<Self>, hosts: Arc<Hosts>) -> Result<ResetReply, GymError> {
        let (turn, before) = loop {
            match self.take(false)? {
                Taken::Turn(turn, before) => break (turn, before),
                Taken::Later(step) => {
                    step.cancel.cancel();
                    step.over.cancelled().await;
                }
            }
        };
        to_the_end(async move {
            let begin = Box::pin(Episode::begin(&self.facts, &hosts));
            // The old environment is removed while the new one starts.
            let ((), begun) = tokio::join!(before.leave(), turn.cancel.run_until_cancelled(begin));
            match begun {
                None => {
                    turn.end(Stage::Empty(Emptiness::NotReset), None);
                    Err(self.refusal())
                }
                Some(Err(error)) => {
                    turn.end(Stage::Empty(Emptiness::NotReset), None);
                    Err(error)
                }
                Some(Ok((episode, reply))) => {
                    turn.end(Stage::Running(Box::new(episode)), None);
                    Ok(reply)
                }
            }
        })
        .await
    }

    /// Runs one step of the episode.
    pub(super) async fn step(
        self: Arc<Self>,
        action: Action,
        hosts: Arc<Hosts>,
    ) -> Result<StepReply, GymError> {
        let (turn, mut episode) = match self.take(true)? {
            Taken::Turn(turn, Stage::Running(episode)) => (turn, episode),
            // `take` gives a step nothing but a running episode.
            Taken::Turn(..) | Taken::Later(_) => return Err(GymError::Busy),
        };
        to_the_end(async move {
            let step = Box::pin(episode.step(action, &self.facts, &hosts));
            match turn.cancel.run_until_cancelled(step).await {
                None => {
                    turn.end(Stage::Running(episode), None);
                    Err(self.refusal())
                }
                Some(Err(error)) => {
                    episode.leave().await;
                    let vanished = Emptiness::Vanished(error.to_string());
                    turn.end(Stage::Empty(vanished), None);
                    Err(error)
                }
                Some(Ok(reply)) => {
                    let stage = match reply.done {
                        true => Stage::Over(episode.end()),
                        false => Stage::Running(episode),
                    };
                    turn.end(stage, Some(reply.clone()));
                    Ok(reply)
                }
            }
        })
        .await
    }

    /// Ends the call in progress, and removes the episode.
    pub(super) async fn remove(&self, why: Removed) {
        // Set before the cancellation, so that the cancelled call finds its reason.
        self.state().removed.get_or_insert(why);
        self.leaving.cancel();
        loop {
            let before = {
                let mut state = self.state();
                match &state.stage {
                    Stage::Busy(busy) => Err(busy.over.clone()),
                    _ => Ok(std::mem::replace(&mut state.stage, Stage::Empty(Emptiness::NotReset))),
                }
            };
            match before {
                Err(over) => over.cancelled().await,
                Ok(stage) => return stage.leave().await,
            }
        }
    }

    /// Returns whether the lease has ended and no removal has begun.
    pub(super) fn is_forgotten(&self) -> bool {
        self.lease.is_over(Instant::now()) && !self.leaving.is_cancelled()
    }

    pub(super) fn status(&self, with_last: bool) -> EnvStatus {
        let state = self.state();
        let status = match &state.stage {
            Stage::Empty(Emptiness::NotReset) => "created",
            Stage::Empty(Emptiness::Vanished(_)) => "vanished",
            Stage::Running(_) => "running",
            Stage::Busy(_) => "busy",
            Stage::Over(_) => "done",
        };
        EnvStatus {
            env_id: self.facts.id.clone(),
            task_id: self.facts.task.name.clone(),
            environment: self.facts.kind.to_string(),
            status,
            lease_seconds: self.lease.length.as_secs_f64(),
            lease_left_seconds: self.lease.left(Instant::now()).as_secs_f64(),
            last: state.last.clone().filter(|_| with_last),
        }
    }

    fn take(self: &Arc<Self>, for_step: bool) -> Result<Taken, GymError> {
        let mut state = self.state();
        if let Some(removed) = state.removed {
            return Err(removed.error(&self.lease));
        }
        match &state.stage {
            // Only a reset may interrupt a step.
            Stage::Busy(busy) if busy.is_step && !for_step => return Ok(Taken::Later(busy.clone())),
            Stage::Busy(_) => return Err(GymError::Busy),
            Stage::Empty(Emptiness::NotReset) if for_step => return Err(GymError::NotReset),
            Stage::Empty(Emptiness::Vanished(why)) if for_step => {
                return Err(GymError::Vanished(why.clone()));
            }
            Stage::Over(_) if for_step => return Err(GymError::Done),
            Stage::Empty(_) | Stage::Over(_) | Stage::Running(_) => {}
        }
        let (cancel, over) = (self.leaving.child_token(), CancellationToken::new());
        let busy = Busy { is_step: for_step, cancel: cancel.clone(), over: over.clone() };
        let before = std::mem::replace(&mut state.stage, Stage::Busy(busy));
        let slot = Arc::clone(self);
        Ok(Taken::Turn(SlotGuard { slot, cancel, ended: false, _over: over.drop_guard() }, before))
    }

    /// Returns why a call was cancelled: a removal, or else a reset.
    fn refusal(&self) -> GymError {
        self.state().removed.map_or(GymError::Reset, |removed| removed.error(&self.lease))
    }

    fn state(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stage {
    /// Waits until the episode's environment is removed.
    async fn leave(self) {
        match self {
            Self::Running(episode) => episode.leave().await,
            Self::Over(ended) => ended.leave().await,
            Self::Empty(_) | Self::Busy(_) => {}
        }
    }
}

/// The result of trying to take the episode.
enum Taken {
    /// The call may proceed, with the state from before.
    Turn(SlotGuard, Stage),
    /// A step is in progress and must end first.
    Later(Busy),
}

impl SlotGuard {
    /// Puts the state back, with the answer to the latest step of this episode, if any.
    fn end(mut self, stage: Stage, reply: Option<StepReply>) {
        self.ended = true;
        let mut state = self.slot.state();
        state.stage = stage;
        state.last = reply;
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        if !self.ended {
            let why = "the server failed in the midst of a call".to_owned();
            self.slot.state().stage = Stage::Empty(Emptiness::Vanished(why));
        }
    }
}

impl Removed {
    pub(super) fn error(self, lease: &Lease) -> GymError {
        match self {
            Self::Closed => GymError::Closed,
            Self::Expired => GymError::Expired(lease.length.as_secs_f64().to_string()),
            Self::Stopping => GymError::Stopping,
        }
    }
}
