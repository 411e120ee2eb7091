//! The trials of a running job: their start, their end and their retries.

use super::Job;
use crate::job::dispatcher::{TrialEnd, Wakeup};
use crate::job::queue::NextTrial;

impl Job {
    pub(super) async fn run_trials(&mut self) {
        loop {
            while let Some(NextTrial { plan, before }) = self.dispatcher.next_to_start() {
                if let Some(before) = before {
                    self.attempts.follow(*before);
                }
                self.progress.trial_started(&plan);
                self.dispatcher.start(plan);
                // Starting many trials takes a while, and a request to stop the job must be noticed meanwhile.
                tokio::task::yield_now().await;
            }
            let ended = match self.dispatcher.next().await {
                None => break,
                Some(Wakeup::Due) => continue,
                Some(Wakeup::Ended(ended)) => ended,
            };
            let end = self.dispatcher.record(*ended).await;
            self.take(end);
            if let Err(problem) = self.write_result(self.dispatcher.running(), None) {
                self.context.log.line(problem);
            }
        }
        // An outcome whose retry did not begin counts as it is. A resumed job retries it.
        self.dispatcher.queue.give_up().for_each(|before| self.attempts.count(before));
    }

    fn take(&mut self, TrialEnd { outcome, next }: TrialEnd) {
        if outcome.lacks_the_reward() {
            self.progress.warn_of_no_reward(&outcome);
        }
        match next {
            Some(next) => {
                self.progress.trial_retried(&outcome, next.wait);
                self.dispatcher.try_again(next, outcome);
            }
            None => {
                self.progress.trial_ended(&outcome);
                self.attempts.count(outcome);
            }
        }
    }
}
