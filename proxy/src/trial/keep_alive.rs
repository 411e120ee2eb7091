//! How long a stream has been silent. Timeouts count from the last thing heard, never from the start of a call: long
//! answers are no fault.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// An agent behind a load balancer must hear something now and then, also during a long prefill.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Watches one stream. Costs a clock reading for each thing heard: its timer is looked at only when it is due, because
/// among many streams every look at memory of another one is felt.
#[derive(Debug)]
pub(crate) struct IdleTimer {
    longest: Duration,
    since: Instant,
    /// Something was heard since the clock was read.
    is_broken: bool,
    timer: Option<Timer>,
}

/// A timer that wakes the stream's task when it is due.
#[derive(Debug)]
struct Timer {
    sleep: Pin<Box<Sleep>>,
    due: Instant,
    wakes: Waker,
}

/// What a silence has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamSign {
    /// Nothing for so long that whoever waits should be told that we live.
    NothingYet,
    /// Nothing for so long that nothing will come.
    NothingForTooLong(Duration),
}

impl IdleTimer {
    /// A silence that begins now and may last for `longest`.
    pub(crate) fn new(longest: Duration) -> Self {
        Self { longest, since: Instant::now(), is_broken: false, timer: None }
    }

    /// Something was heard.
    pub(crate) fn broken(&mut self) {
        self.is_broken = true;
    }

    /// Resolves when something is to be done about the silence, again and again.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<UpstreamSign> {
        let now = Instant::now();
        if std::mem::take(&mut self.is_broken) {
            self.since = now;
        }
        let timer = self.timer.get_or_insert_with(|| Timer {
            sleep: Box::pin(tokio::time::sleep_until(now + KEEP_ALIVE)),
            due: now,
            wakes: cx.waker().clone(),
        });
        if now < timer.due && timer.wakes.will_wake(cx.waker()) {
            return Poll::Pending;
        }
        timer.wakes.clone_from(cx.waker());
        loop {
            timer.due = timer.sleep.deadline();
            ready!(timer.sleep.as_mut().poll(cx));
            let silent = self.since.elapsed();
            // Set again from the last thing heard: what was heard meanwhile did not touch the timer.
            let next = if silent < KEEP_ALIVE { KEEP_ALIVE - silent } else { KEEP_ALIVE };
            timer.sleep.as_mut().reset(Instant::now() + next);
            if silent >= self.longest {
                return Poll::Ready(UpstreamSign::NothingForTooLong(self.longest));
            }
            if silent >= KEEP_ALIVE {
                timer.due = now;
                return Poll::Ready(UpstreamSign::NothingYet);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_sign_of_life_every_few_seconds_then_the_end() {
        let mut silence = IdleTimer::new(Duration::from_secs(12));
        let begun = Instant::now();
        for seconds in [5, 10] {
            assert_eq!(poll_fn(|cx| silence.poll(cx)).await, UpstreamSign::NothingYet);
            assert_eq!(begun.elapsed().as_secs(), seconds);
        }
        let end = poll_fn(|cx| silence.poll(cx)).await;
        assert_eq!(end, UpstreamSign::NothingForTooLong(Duration::from_secs(12)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_heard_begins_it_anew() {
        let mut silence = IdleTimer::new(Duration::from_secs(60));
        let begun = Instant::now();
        assert!(tokio::time::timeout(Duration::from_secs(3), poll_fn(|cx| silence.poll(cx))).await.is_err());
        silence.broken();
        poll_fn(|cx| silence.poll(cx)).await;
        assert_eq!(begun.elapsed().as_secs(), 8);
    }
}
