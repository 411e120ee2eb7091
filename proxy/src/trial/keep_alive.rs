//! Measures how long a stream has been silent. Timeouts count from the last data, never from the start of a call: long
//! answers are valid.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// The interval of keep-alives. An agent behind a load balancer must receive data regularly, also during a long
/// prefill.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Watches one stream. Each poll costs one clock reading. The timer is examined only when it is due: with many streams,
/// each access to the memory of another stream is noticeable.
#[derive(Debug)]
pub(crate) struct IdleTimer {
    longest: Duration,
    since: Instant,
    /// Data arrived after the last reading of the clock.
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

/// The result of a silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamSign {
    /// The silence is long enough for a keep-alive to the agent.
    NothingYet,
    /// The silence is so long that no data will come.
    NothingForTooLong(Duration),
}

impl IdleTimer {
    /// Starts to watch a silence that begins now and may last for `longest`.
    pub(crate) fn new(longest: Duration) -> Self {
        Self { longest, since: Instant::now(), is_broken: false, timer: None }
    }

    /// Notes that data arrived.
    pub(crate) fn broken(&mut self) {
        self.is_broken = true;
    }

    /// Resolves each time that the silence requires an action.
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
        // The timer is not due and wakes the current task, so it need not be polled.
        if now < timer.due && timer.wakes.will_wake(cx.waker()) {
            return Poll::Pending;
        }
        timer.wakes.clone_from(cx.waker());
        loop {
            timer.due = timer.sleep.deadline();
            ready!(timer.sleep.as_mut().poll(cx));
            let silent = self.since.elapsed();
            // The next deadline counts from the last data, whose arrival did not touch the timer.
            let next = if silent < KEEP_ALIVE { KEEP_ALIVE - silent } else { KEEP_ALIVE };
            timer.sleep.as_mut().reset(Instant::now() + next);
            if silent >= self.longest {
                return Poll::Ready(UpstreamSign::NothingForTooLong(self.longest));
            }
            if silent >= KEEP_ALIVE {
                // Let the next poll register the task with the timer, which was reset.
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
