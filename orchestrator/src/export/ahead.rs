//! Limits how far one step of an export may be ahead of the next, by the number of tokens in all trials in between.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// The maximum number of tokens between two steps. A row takes about 25 bytes per token.
const TOKENS: usize = 1 << 20;
/// The maximum number of trials between two steps, whatever their size.
const TRIALS: usize = 64;

/// Returns a bounded channel from one step to the next.
pub(super) fn ahead<T>() -> (Sender<T>, impl Iterator<Item = T>) {
    let (sender, receiver): (_, Receiver<Item<T>>) = sync_channel(TRIALS);
    let room = Arc::new(AheadBudget::default());
    (Sender { sender, room }, receiver.into_iter().map(|item| item.value))
}

/// The sending end of the channel.
pub(super) struct Sender<T> {
    sender: SyncSender<Item<T>>,
    room: Arc<AheadBudget>,
}

/// The receiving step has ended.
#[derive(Debug)]
pub(super) struct Gone;

impl<T> Sender<T> {
    /// Sends a value, and waits while the budget is exceeded. A value larger than the whole budget is sent alone.
    pub(super) fn send(&self, value: T, tokens: usize) -> Result<(), Gone> {
        let share = Share::take(&self.room, tokens);
        self.sender.send(Item { value, _share: share }).map_err(|_| Gone)
    }
}

struct Item<T> {
    value: T,
    _share: Share,
}

#[derive(Default)]
struct AheadBudget {
    taken: Mutex<usize>,
    freed: Condvar,
}

/// A part of the budget. It is returned when dropped: when the next step takes the value, or when the next step ends
/// and drops its queue.
struct Share {
    room: Arc<AheadBudget>,
    tokens: usize,
}

impl Share {
    fn take(room: &Arc<AheadBudget>, tokens: usize) -> Self {
        let taken = room.taken.lock().unwrap_or_else(PoisonError::into_inner);
        // An empty budget admits any value, or a large value would wait forever.
        let is_full = |taken: &mut usize| *taken > 0 && taken.saturating_add(tokens) > TOKENS;
        let mut taken = room.freed.wait_while(taken, is_full).unwrap_or_else(PoisonError::into_inner);
        *taken = taken.saturating_add(tokens);
        Self { room: Arc::clone(room), tokens }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.room.taken.lock().unwrap_or_else(PoisonError::into_inner);
        *taken = taken.saturating_sub(self.tokens);
        // Only one thread sends into a channel.
        self.room.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn everything_arrives_in_order_whatever_its_size() {
        let (sender, mut received) = ahead();
        let sizes = [1, TOKENS / 2, TOKENS, 2 * TOKENS, 0, usize::MAX, 3];
        thread::scope(|scope| {
            scope.spawn(move || {
                sizes.iter().enumerate().try_for_each(|(at, &size)| sender.send(at, size)).unwrap()
            });
            assert_eq!(received.by_ref().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6]);
        });
    }

    #[test]
    fn whoever_waits_for_room_is_told_when_nobody_is_left_to_make_any() {
        let (sender, received) = ahead();
        sender.send((), TOKENS).unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(move || sender.send((), TOKENS));
            drop(received);
            assert!(waiting.join().unwrap().is_err());
        });
    }
}
