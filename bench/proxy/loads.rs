//! The loads of the gate, and their goals.

use std::time::Duration;

use crate::answer::Knobs;
use crate::load::Load;
use crate::request::Size;

/// One load of the gate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GateLoad {
    /// The name in the table and in the baseline of the guard.
    pub(crate) name: &'static str,
    pub(crate) load: Load,
    /// If true, processor time is divided by the number of sampled tokens, otherwise by the number of calls.
    pub(crate) per_token: bool,
    pub(crate) goals: &'static [Goal],
}

/// The largest allowed value of a figure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    pub(crate) figure: Figure,
    pub(crate) limit: f64,
    /// A better value, which the verdict ignores.
    pub(crate) hoped_for: Option<f64>,
}

/// A figure of the proxy relative to the pass-through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    /// The ratio of processor time per unit of work.
    Processor,
    /// The additional microseconds of the median token from upstream to agent.
    AddedMedian,
    /// The ratio of the 99th percentile of the same latency.
    Slowest,
    /// The ratio of resident memory per open stream.
    Memory,
}

const fn processor(limit: f64, hoped_for: f64) -> Goal {
    Goal { figure: Figure::Processor, limit, hoped_for: Some(hoped_for) }
}

const fn other(figure: Figure, limit: f64) -> Goal {
    Goal { figure, limit, hoped_for: None }
}

const SMALL: Size = Size { first: 1000, observation: 0 };

/// A load without a pace, of single calls.
const FULL_SPEED: Load = Load {
    knobs: Knobs { prompt: 300, tokens: 64, delay_us: 0, continues: false },
    at_once: 16,
    calls: 16_000,
    stream: false,
    size: SMALL,
    turns: 1,
    ramp: Duration::ZERO,
    skip: Duration::ZERO,
};

pub(crate) const LOADS: [GateLoad; 5] = [
    GateLoad {
        name: "paced streams",
        load: Load {
            knobs: Knobs { prompt: 500, tokens: 75, delay_us: 20_000, continues: false },
            at_once: 200,
            calls: 200,
            stream: true,
            ramp: Duration::from_micros(100),
            skip: Duration::from_millis(300),
            ..FULL_SPEED
        },
        per_token: true,
        goals: &[
            processor(1.05, 0.95),
            other(Figure::AddedMedian, 60.0),
            other(Figure::Slowest, 1.3),
            other(Figure::Memory, 1.1),
        ],
    },
    GateLoad {
        name: "full-speed streams",
        load: Load {
            knobs: Knobs { tokens: 512, ..FULL_SPEED.knobs },
            at_once: 64,
            calls: 384,
            stream: true,
            ..FULL_SPEED
        },
        per_token: true,
        goals: &[processor(1.05, 0.9)],
    },
    GateLoad { name: "small JSON", load: FULL_SPEED, per_token: false, goals: &[processor(1.8, 1.4)] },
    GateLoad {
        name: "1 MB + 32k ids",
        load: Load {
            knobs: Knobs { prompt: 32_768, tokens: 256, ..FULL_SPEED.knobs },
            at_once: 4,
            calls: 500,
            size: Size { first: 1_000_000, observation: 0 },
            ..FULL_SPEED
        },
        per_token: false,
        goals: &[processor(2.2, 1.8)],
    },
    GateLoad {
        name: "20 turns",
        load: Load {
            knobs: Knobs { prompt: 0, tokens: 200, ..FULL_SPEED.knobs },
            calls: 3200,
            size: Size { first: 8000, observation: 4000 },
            turns: 20,
            ..FULL_SPEED
        },
        per_token: false,
        goals: &[processor(2.2, 1.8)],
    },
];
