//! The scheduler of one engine in virtual time.

mod jump;

use std::collections::VecDeque;
use std::num::NonZeroUsize;

use self::jump::Step;
use super::cache::KvCache;
use super::sequence::Sequence;

/// The settings of an engine.
#[derive(Clone, Copy, Debug)]
pub struct EngineSettings {
    /// The maximum number of running requests: `--max-num-seqs`.
    pub max_num_seqs: NonZeroUsize,
    /// The maximum number of tokens that a step computes: `--max-num-batched-tokens`. A longer prefill takes several
    /// steps.
    pub max_num_batched_tokens: NonZeroUsize,
    /// The duration of a step.
    pub price: StepPrice,
}

/// The duration of a step, in seconds: a linear function of its work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepPrice {
    /// The part that every step takes.
    pub step: f64,
    /// The part of each token of a prefill. A preempted request prefills its sampled tokens again.
    pub per_prefill_token: f64,
    /// The part of each request that samples its second or a later token.
    pub per_decode_token: f64,
}

/// The scheduler of one engine, with its KV cache. All times are seconds of a virtual clock that the caller chooses.
///
/// A caller with several engines processes their events in the order of time. It submits requests with
/// [`Engine::submit`], asks each engine for [`Engine::next_step_end`], and calls [`Engine::complete_step`] on the engine
/// with the earliest end if no request arrives before that end.
///
/// Steps of equal duration in which no request can finish, start or be preempted are advanced in one jump. A request that
/// arrives during a jump ends the jump at the end of the current step.
#[derive(Debug)]
pub struct Engine {
    settings: EngineSettings,
    cache: KvCache,
    /// In the order of their admission.
    running: Vec<Request>,
    waiting: VecDeque<Request>,
    /// The end of the last complete step, or the arrival of the first request after an idle time.
    now: f64,
    step: Option<Step>,
}

/// One request of an engine.
#[derive(Debug)]
struct Request {
    id: u64,
    /// The prompt and the whole output. The output beyond `known` tokens is not used yet.
    sequence: Sequence,
    /// The number of tokens in the prompt and in the sampled part of the output.
    known: usize,
    /// The number of known tokens whose keys and values are computed.
    computed: usize,
    /// The number of tokens that the current step computes.
    scheduled: usize,
    /// The number of known tokens at the last admission. The computation of these is the prefill.
    prefill: usize,
    /// The number of cached tokens at the first admission.
    cached_tokens: Option<usize>,
    first_token: Option<f64>,
}

/// A request whose output is complete.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finished {
    /// The id with which the request was submitted.
    pub id: u64,
    /// The number of tokens of the prompt that were cached at the first admission.
    pub cached_tokens: usize,
    /// The number of times that the request was preempted.
    pub preemptions: u32,
    /// The time of the first sampled token.
    pub first_token: f64,
    /// The time of the last sampled token.
    pub end: f64,
}

/// The reason why an engine does not accept a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The prompt or the output has no token.
    #[error("request {id} has an empty prompt or an empty output; give each at least one token")]
    Empty {
        /// The id of the request.
        id: u64,
    },
    /// The request would be preempted forever, even if it ran alone.
    #[error(
        "request {id} has {tokens} tokens, and the KV cache has room for {capacity}; add blocks to the cache"
    )]
    TooLong {
        /// The id of the request.
        id: u64,
        /// The tokens of prompt and output.
        tokens: usize,
        /// The tokens that the cache has room for.
        capacity: usize,
    },
}

impl Engine {
    /// Creates an engine without requests. Its clock starts at 0.
    pub fn new(settings: EngineSettings, cache: KvCache) -> Self {
        Self { settings, cache, running: Vec::new(), waiting: VecDeque::new(), now: 0.0, step: None }
    }

    /// Returns the cache. During a jump, call [`Engine::advance`] before.
    pub fn cache(&self) -> &KvCache {
        &self.cache
    }

    /// Returns the number of running requests: `vllm:num_requests_running`.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Returns the number of requests that wait for their first or next admission: `vllm:num_requests_waiting`.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Appends a request to the waiting ones at the time `now`. `output` has the tokens that will be sampled.
    ///
    /// `now` must not be earlier than in earlier calls, nor later than the end of the step in progress.
    ///
    /// # Errors
    /// The request has no prompt or no output, or it never fits in the cache.
    pub fn submit(
        &mut self,
        now: f64,
        id: u64,
        prompt: impl IntoIterator<Item = u32>,
        output: impl IntoIterator<Item = u32>,
    ) -> Result<(), SubmitError> {
        let mut sequence = Sequence::new(self.cache.block_size(), prompt);
        let prompt = sequence.len();
        sequence.extend(output);
        let (tokens, capacity) = (sequence.len(), self.cache.capacity());
        if prompt == 0 || tokens == prompt {
            return Err(SubmitError::Empty { id });
        }
        if tokens > capacity {
            return Err(SubmitError::TooLong { id, tokens, capacity });
        }
        if self.running.is_empty() && self.waiting.is_empty() {
            self.now = self.now.max(now);
        }
        self.interrupt(now);
        self.waiting.push_back(Request {
            id,
            sequence,
            known: prompt,
            computed: 0,
            scheduled: 0,
            prefill: prompt,
            cached_tokens: None,
            first_token: None,
        });
        Ok(())
    }

    /// Returns the time at which the step in progress, or the jump of equal steps, ends. Schedules a step if none is in
    /// progress. Returns `None` if the engine has no requests.
    pub fn next_step_end(&mut self) -> Option<f64> {
        if self.step.is_none() {
            self.step = self.schedule();
        }
        self.step.map(Step::end)
    }

    /// Completes the step in progress, or the jump of equal steps. Returns the requests that finished at its end.
    pub fn complete_step(&mut self) -> Vec<Finished> {
        let Some(end) = self.next_step_end() else { return Vec::new() };
        if let Some(step) = self.step {
            self.complete_steps(step.count - 1);
        }
        self.step = None;
        self.now = end;
        self.sample(end);
        self.take_finished(end)
    }

    /// Schedules the next step, as `Scheduler.schedule` of vLLM.
    fn schedule(&mut self) -> Option<Step> {
        let (budget, preempted) = self.schedule_running();
        if !preempted {
            self.schedule_waiting(budget);
        }
        let (mut prefill_tokens, mut decodes) = (0, 0);
        for request in self.running.iter().filter(|request| request.scheduled > 0) {
            if request.computed < request.prefill {
                prefill_tokens += request.scheduled;
            } else {
                decodes += 1;
            }
        }
        if prefill_tokens + decodes == 0 {
            return None;
        }
        let price = &self.settings.price;
        let seconds = price.step
            + prefill_tokens as f64 * price.per_prefill_token
            + decodes as f64 * price.per_decode_token;
        // After a preemption, the next step may admit the preempted request.
        let repeats = decodes == self.running.len() && !preempted;
        let count = if repeats { 1 + self.further_equal_steps() } else { 1 };
        Some(Step { start: self.now, seconds, count, complete: 0 })
    }

    /// Schedules the running requests. Returns the tokens that the step can still compute, and whether a request was
    /// preempted.
    fn schedule_running(&mut self) -> (usize, bool) {
        let mut budget = self.settings.max_num_batched_tokens.get();
        let (mut index, mut preempted) = (0, false);
        while budget > 0
            && let Some(request) = self.running.get_mut(index)
        {
            let tokens = (request.known - request.computed).min(budget);
            if self.cache.extend(&mut request.sequence, request.computed + tokens) {
                request.scheduled = tokens;
                budget -= tokens;
                index += 1;
            } else if let Some(mut last) = self.running.pop() {
                // The request that was admitted last loses its blocks. It may be the request that needs the block.
                self.cache.preempt(&mut last.sequence);
                last.computed = 0;
                self.waiting.push_front(last);
                preempted = true;
            }
        }
        (budget, preempted)
    }

    /// Admits waiting requests in their order, until one does not fit.
    fn schedule_waiting(&mut self, mut budget: usize) {
        while budget > 0
            && self.running.len() < self.settings.max_num_seqs.get()
            && let Some(request) = self.waiting.front_mut()
            && let Some(cached) = self.cache.admit(&mut request.sequence, request.known)
            && let Some(mut request) = self.waiting.pop_front()
        {
            request.computed = cached;
            request.prefill = request.known;
            request.scheduled = (request.known - cached).min(budget);
            request.cached_tokens.get_or_insert(cached);
            // The admission made sure that the blocks are free.
            self.cache.extend(&mut request.sequence, cached + request.scheduled);
            budget -= request.scheduled;
            self.running.push(request);
        }
    }

    /// Records that the scheduled tokens are computed. A request whose known tokens are all computed gets its next token.
    fn sample(&mut self, end: f64) {
        for request in &mut self.running {
            request.computed += std::mem::take(&mut request.scheduled);
            if request.computed == request.known {
                request.known += 1;
                request.first_token.get_or_insert(end);
            }
        }
    }

    /// Frees the requests whose output is complete.
    fn take_finished(&mut self, end: f64) -> Vec<Finished> {
        let is_finished = |request: &mut Request| request.known == request.sequence.len();
        let finished = self.running.extract_if(.., is_finished).map(|mut request| {
            self.cache.free(&mut request.sequence);
            Finished {
                id: request.id,
                cached_tokens: request.cached_tokens.unwrap_or(0),
                preemptions: request.sequence.preemptions(),
                first_token: request.first_token.unwrap_or(end),
                end,
            }
        });
        finished.collect()
    }
}

#[cfg(test)]
mod tests;
