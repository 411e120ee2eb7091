//! Jumps: equal steps that are advanced together.

use super::Engine;

/// The step in progress, among steps that are known to be equal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// The start of the first of the steps.
    pub(super) start: f64,
    /// The duration of each of the steps.
    pub(super) seconds: f64,
    /// The number of steps, at least 1.
    pub(super) count: usize,
    /// The number of steps that are complete, less than `count`.
    pub(super) complete: usize,
}

impl Step {
    /// Returns the end of the last of the steps.
    pub(super) fn end(self) -> f64 {
        self.start + self.seconds * self.count as f64
    }

    /// Returns how many of the steps before the last one are complete at `now`.
    fn complete_at(self, now: f64) -> usize {
        // The conversion gives 0 for numbers below 0, and the largest integer for an infinite number.
        (((now - self.start) / self.seconds) as usize).min(self.count - 1)
    }
}

impl Engine {
    /// Completes the steps of a jump that end at or before `now`, except the last step of the jump. Then
    /// [`Engine::cache`] has the state at `now`.
    pub fn advance(&mut self, now: f64) {
        if let Some(step) = self.step {
            self.complete_steps(step.complete_at(now));
        }
    }

    /// Ends a jump at the end of the step that is in progress at `now`.
    pub(super) fn interrupt(&mut self, now: f64) {
        self.advance(now);
        if let Some(step) = &mut self.step {
            step.count = step.complete + 1;
        }
    }

    /// Completes the steps of a jump until `complete` of them are complete. Schedules the step after these.
    pub(super) fn complete_steps(&mut self, complete: usize) {
        let Some(step) = &mut self.step else { return };
        while step.complete < complete {
            step.complete += 1;
            for request in &mut self.running {
                request.computed += 1;
                request.known += 1;
                // The jump is so short that the free blocks suffice.
                self.cache.extend(&mut request.sequence, request.computed + 1);
            }
        }
    }

    /// Returns the number of steps that can follow a step in which all running requests decode, without a change of the
    /// running and waiting requests before the end of the last of these steps.
    pub(super) fn further_equal_steps(&self) -> usize {
        // A request may finish in the last step.
        let left = self.running.iter().map(|request| request.sequence.len() - request.known - 1);
        let mut steps = left.min().unwrap_or(0);
        if !self.waiting.is_empty() && self.running.len() < self.settings.max_num_seqs.get() {
            // The first waiting request does not fit. It may fit once a further block is cached that it can share.
            let block = self.cache.block_size().get() as usize;
            let until_full = self.running.iter().map(|request| block - (request.computed + 1) % block - 1);
            steps = steps.min(until_full.min().unwrap_or(0));
        }
        if self.fits(steps) {
            return steps;
        }
        let (mut fitting, mut exceeding) = (0, steps);
        while exceeding - fitting > 1 {
            let middle = fitting.midpoint(exceeding);
            if self.fits(middle) {
                fitting = middle;
            } else {
                exceeding = middle;
            }
        }
        fitting
    }

    /// Returns whether the free blocks suffice for `steps` steps after the scheduled one.
    fn fits(&self, steps: usize) -> bool {
        let missing = self
            .running
            .iter()
            .map(|request| self.cache.missing_blocks(&request.sequence, request.computed + 1 + steps));
        missing.sum::<usize>() <= self.cache.free_blocks()
    }
}
