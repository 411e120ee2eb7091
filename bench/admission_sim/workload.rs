//! The trials of a simulated job: how many turns each has, and how long these are.

use std::f64::consts::TAU;

/// The longest context of the model, in tokens.
pub(crate) const CONTEXT: usize = 32_768;

/// The shape of a job's trials. Lengths are tokens, and times are seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    /// The blocks of 16 tokens in the cache of each replica.
    pub(crate) blocks: u32,
    /// The samples of each task. They share the first prompt.
    pub(crate) samples: usize,
    pub(crate) first_prompt: f64,
    pub(crate) turns: f64,
    pub(crate) tool_output: f64,
    pub(crate) answer: f64,
    /// The time that a tool takes.
    pub(crate) tool_time: f64,
}

/// Agents that read much and think little.
const CODING: Shape = Shape {
    name: "coding agents",
    blocks: 16_384,
    samples: 8,
    first_prompt: 3000.0,
    turns: 14.0,
    tool_output: 700.0,
    answer: 180.0,
    tool_time: 4.0,
};

/// Typical shapes: agents that read much and think little, and the reverse, with small and large caches.
pub(crate) const SHAPES: [Shape; 4] = [
    CODING,
    Shape { name: "the same, quarter of the cache", blocks: 4096, ..CODING },
    Shape { name: "slow tools", tool_time: 20.0, ..CODING },
    Shape {
        name: "long answers",
        blocks: 8192,
        samples: 16,
        first_prompt: 800.0,
        turns: 6.0,
        tool_output: 300.0,
        answer: 1200.0,
        tool_time: 1.0,
    },
];

/// A turn: what is added to the conversation, and the time before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) added: usize,
    pub(crate) answer: usize,
    pub(crate) pause: f64,
}

/// A trial.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) task: usize,
    pub(crate) turns: Vec<Turn>,
}

/// A small generator of random numbers (SplitMix64), so that every run has the same trials.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a number with this mean and a long tail (log-normal, sigma 0.6).
    fn around(&mut self, mean: f64) -> f64 {
        const SIGMA: f64 = 0.6;
        let normal = (-2.0 * (1.0 - self.unit()).ln()).sqrt() * (TAU * self.unit()).cos();
        mean * (SIGMA * normal - SIGMA * SIGMA / 2.0).exp()
    }

    fn length(&mut self, mean: f64) -> usize {
        (self.around(mean) as usize).max(1)
    }
}

impl Shape {
    /// Makes this many trials, in the order of their groups.
    pub(crate) fn trials(&self, count: usize, seed: u64) -> Vec<Work> {
        let mut random = Random(seed);
        let (mut trials, mut first) = (Vec::new(), 0);
        for number in 0..count {
            if number % self.samples == 0 {
                first = random.length(self.first_prompt);
            }
            let turns = random.length(self.turns).min(60);
            let mut turns: Vec<_> = (0..turns)
                .map(|turn| Turn {
                    added: if turn == 0 { first } else { random.length(self.tool_output) },
                    answer: random.length(self.answer).min(8000),
                    pause: random.around(self.tool_time),
                })
                .collect();
            // A trial ends where its context is full.
            let mut tokens = 0;
            let fitting = turns.iter().take_while(|turn| {
                tokens += turn.added + turn.answer;
                tokens <= CONTEXT
            });
            turns.truncate(fitting.count().max(1));
            trials.push(Work { task: number / self.samples, turns });
        }
        trials
    }
}
