//! A job on many replicas, in virtual time: engines with a KV cache, and the ledger that admits trials.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::ops::AddAssign;

use rolltap_proxy::{CacheLedger, CacheReport, EndedCall, ServerId};
use rolltap_rollout::ids::TrialId;
use rolltap_sim::kv::{Engine, EngineSettings, Finished, KvCache, StepPrice};

use crate::workload::{CONTEXT, Shape, Work};

const BLOCK: NonZeroU32 = NonZeroU32::new(16).expect("not 0");
/// The time between two reports of a replica: the pause of the pool's checks.
const REPORT: f64 = 2.0;
/// The time in which an environment starts, and the time of the tests at the end. Only a fixed number counts a trial during
/// its tests.
const START: f64 = 5.0;
const TESTS: f64 = 5.0;
/// Prices of a step, as on a GPU with 80 GB and a model of 8 billion weights: 20,000 prompt tokens per second.
const PRICE: StepPrice = StepPrice { step: 0.010, per_prefill_token: 0.000_05, per_decode_token: 0.000_04 };

/// How trials are admitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rule {
    /// This many trials per replica at once, each at the replica with the fewest.
    Fixed(usize),
    /// By the ledger.
    Auto,
}

/// The results of jobs, or of their sum.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    /// The time until all trials have ended.
    pub(crate) seconds: f64,
    /// The prompt tokens that were looked up in the caches, and those that were found.
    pub(crate) queries: u64,
    pub(crate) hits: u64,
    pub(crate) preemptions: u64,
    /// The largest number of trials that were open at once.
    pub(crate) most_open: usize,
}

impl AddAssign for Outcome {
    fn add_assign(&mut self, other: Self) {
        self.seconds += other.seconds;
        self.queries += other.queries;
        self.hits += other.hits;
        self.preemptions += other.preemptions;
        self.most_open = self.most_open.max(other.most_open);
    }
}

/// An event at a time that is known in advance. The order is that of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// The next turn of a trial.
    Turn(usize),
    /// The tests of a trial end.
    Tested(usize),
    Report,
}

/// Nanoseconds, so that times have an order.
fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

pub(crate) struct Fleet {
    engines: Vec<Engine>,
    ledger: CacheLedger,
    rule: Rule,
    work: Vec<Work>,
    /// The replica and the next turn of each trial.
    at: Vec<(usize, usize)>,
    /// The time at which each trial sent its last request.
    asked: Vec<f64>,
    /// The seconds until the first tokens of all requests, by replica.
    waited: Vec<f64>,
    /// The number of trials at each replica. With a fixed number, also those that are being tested.
    open: Vec<usize>,
    next: usize,
    ended: usize,
    timers: BinaryHeap<Reverse<(u64, Timer)>>,
    now: f64,
    most_open: usize,
}

fn id(trial: usize) -> TrialId {
    TrialId::new(format!("t-{trial}")).expect("a short name")
}

/// Returns the tokens of a trial's conversation before a turn's answer: those of its task, then its own.
fn prompt(work: &Work, trial: usize, turn: usize) -> Vec<u32> {
    let mut tokens = Vec::new();
    for (number, added) in work.turns.iter().take(turn + 1).enumerate() {
        // Samples of a task have the same first prompt. All else is random.
        let owner = if number == 0 { work.task } else { 1_000_000 + trial };
        extend(&mut tokens, owner, 2 * number, added.added);
        if number < turn {
            extend(&mut tokens, 1_000_000 + trial, 2 * number + 1, added.answer);
        }
    }
    tokens
}

fn extend(tokens: &mut Vec<u32>, owner: usize, part: usize, count: usize) {
    let start = (owner as u32).wrapping_mul(2_654_435_761).wrapping_add((part as u32).wrapping_mul(40_503));
    tokens.extend((0..count as u32).map(|index| start.wrapping_add(index.wrapping_mul(97))));
}

impl Fleet {
    pub(crate) fn new(shape: &Shape, replicas: usize, work: Vec<Work>, rule: Rule) -> Self {
        let number = |value| NonZeroUsize::new(value).expect("not 0");
        let settings =
            EngineSettings { max_num_seqs: number(256), max_num_batched_tokens: number(8192), price: PRICE };
        let engine = || Engine::new(settings, KvCache::new(shape.blocks, BLOCK));
        let mut ledger = CacheLedger::default();
        ledger.set_context(CONTEXT as u64);
        (0..replicas).for_each(|server| ledger.add(server as ServerId));
        Self {
            engines: (0..replicas).map(|_| engine()).collect(),
            ledger,
            rule,
            at: vec![(0, 0); work.len()],
            asked: vec![0.0; work.len()],
            waited: vec![0.0; replicas],
            work,
            open: vec![0; replicas],
            next: 0,
            ended: 0,
            timers: BinaryHeap::new(),
            now: 0.0,
            most_open: 0,
        }
    }

    /// Runs the job to its end.
    pub(crate) fn run(mut self) -> Outcome {
        self.report();
        while self.ended < self.work.len() {
            let step = (0..self.engines.len())
                .filter_map(|at| self.engines[at].next_step_end().map(|end| (nanos(end), at)))
                .min();
            let timer = self.timers.peek().map(|Reverse((time, _))| *time);
            match (step, timer) {
                (Some((end, at)), timer) if timer.is_none_or(|timer| end <= timer) => {
                    for finished in self.engines[at].complete_step() {
                        self.now = finished.end;
                        self.answered(&finished);
                    }
                }
                (_, Some(_)) => self.expire(),
                (_, None) => {
                    panic!("{} of {} trials ended, and nothing follows", self.ended, self.work.len())
                }
            }
        }
        self.outcome()
    }

    fn expire(&mut self) {
        let Some(Reverse((time, timer))) = self.timers.pop() else { return };
        self.now = time as f64 / 1e9;
        match timer {
            Timer::Turn(trial) => self.ask(trial),
            Timer::Tested(trial) => {
                self.ended += 1;
                if self.rule != Rule::Auto {
                    self.open[self.at[trial].0] -= 1;
                    self.admit();
                }
            }
            Timer::Report => self.report(),
        }
    }

    fn after(&mut self, seconds: f64, timer: Timer) {
        self.timers.push(Reverse((nanos(self.now + seconds), timer)));
    }

    /// Gives the ledger the report of each replica.
    fn report(&mut self) {
        for (server, engine) in self.engines.iter_mut().enumerate() {
            engine.advance(self.now);
            let counts = engine.cache().counts();
            let report = CacheReport {
                capacity: engine.cache().capacity() as u64,
                block_size: u64::from(BLOCK.get()),
                queries: counts.queries,
                hits: counts.hits,
                preemptions: counts.preemptions,
                first_token_seconds: self.waited[server],
                running: engine.running() as u64,
                waiting: engine.waiting() as u64,
            };
            self.ledger.report(server as ServerId, Some(report), self.now);
        }
        self.admit();
        self.after(REPORT, Timer::Report);
    }

    fn admit(&mut self) {
        while self.next < self.work.len() {
            let trial = self.next;
            let Some(replica) = self.place(trial) else { return };
            self.open[replica] += 1;
            self.most_open = self.most_open.max(self.open.iter().sum());
            self.at[trial] = (replica, 0);
            self.next += 1;
            self.after(START, Timer::Turn(trial));
        }
    }

    fn place(&mut self, trial: usize) -> Option<usize> {
        match self.rule {
            Rule::Fixed(most) => {
                let (replica, open) = self.open.iter().copied().enumerate().min_by_key(|(_, open)| *open)?;
                (open < most).then_some(replica)
            }
            Rule::Auto => {
                let servers: Vec<ServerId> = (0..self.engines.len() as ServerId).collect();
                let kind = format!("task-{}", self.work[trial].task);
                self.ledger.admit(&id(trial), &kind, &servers).map(|server| server as usize)
            }
        }
    }

    fn ask(&mut self, trial: usize) {
        let (replica, turn) = self.at[trial];
        self.asked[trial] = self.now;
        let work = &self.work[trial];
        let prompt = prompt(work, trial, turn);
        let mut answer = Vec::new();
        extend(&mut answer, 1_000_000 + trial, 2 * turn + 1, work.turns[turn].answer);
        self.engines[replica]
            .submit(self.now, trial as u64, prompt, answer)
            .expect("trials fit into the cache");
    }

    fn answered(&mut self, finished: &Finished) {
        let trial = finished.id as usize;
        let (replica, turn) = self.at[trial];
        self.waited[replica] += finished.first_token - self.asked[trial];
        let turns = &self.work[trial].turns;
        let before: usize = turns[..turn].iter().map(|turn| turn.added + turn.answer).sum();
        let call = EndedCall {
            prompt: (before + turns[turn].added) as u64,
            answer: turns[turn].answer as u64,
            known: before as u64,
            seconds: finished.end - self.asked[trial],
        };
        let (pause, is_last) = (turns[turn].pause, turn + 1 == turns.len());
        self.ledger.ended_call(&id(trial), replica as ServerId, call);
        if !is_last {
            self.at[trial].1 += 1;
            self.after(pause, Timer::Turn(trial));
            return;
        }
        self.ledger.release(&id(trial));
        self.after(TESTS, Timer::Tested(trial));
        if self.rule == Rule::Auto {
            self.open[replica] -= 1;
            self.admit();
        }
    }

    fn outcome(&self) -> Outcome {
        let counts = || self.engines.iter().map(|engine| engine.cache().counts());
        Outcome {
            seconds: self.now,
            queries: counts().map(|counts| counts.queries).sum(),
            hits: counts().map(|counts| counts.hits).sum(),
            preemptions: counts().map(|counts| counts.preemptions).sum(),
            most_open: self.most_open,
        }
    }
}
