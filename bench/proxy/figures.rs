//! The figures of one load on one process, from all rounds.

use crate::load::{self, Seen};
use crate::loads::GateLoad;
use crate::process::Process;

/// The sums and best values of all rounds.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// Processor time of all rounds.
    pub(crate) seconds: f64,
    /// Tokens or calls of all rounds.
    pub(crate) work: f64,
    pub(crate) errors: usize,
    pub(crate) first_error: Option<String>,
    /// The median latency of a token in the round with the lowest one, in microseconds. Other work on the machine can
    /// only increase it. The same holds for the 99th percentile.
    pub(crate) median_us: Option<f64>,
    pub(crate) slowest_us: Option<f64>,
    /// From the first round, because later rounds reuse allocated memory.
    pub(crate) kib_per_stream: Option<f64>,
}

impl Figures {
    /// Runs one round of the load on the process, and adds its figures.
    pub(crate) async fn add(&mut self, of: &GateLoad, process: &Process, path: &str) {
        let (seconds, resident) = (process.cpu_seconds(), process.resident_kib());
        let (seen, largest) = load::run(&of.load, process.address, path, || process.resident_kib()).await;
        let Seen { calls, tokens, errors, first_error, mut one_way, at_once } = seen;
        self.seconds += process.cpu_seconds() - seconds;
        self.work += if of.per_token { tokens as f64 } else { calls as f64 };
        self.errors += errors;
        self.first_error = self.first_error.take().or(first_error);
        self.kib_per_stream.get_or_insert((largest - resident) / at_once.max(1) as f64);
        least(&mut self.median_us, quantile(&mut one_way, 0.5));
        least(&mut self.slowest_us, quantile(&mut one_way, 0.99));
    }

    /// Returns the processor time per unit of work, in microseconds.
    pub(crate) fn us_per_unit(&self) -> f64 {
        self.seconds * 1e6 / self.work
    }
}

fn least(of_all: &mut Option<f64>, of_round: Option<f64>) {
    *of_all = [*of_all, of_round].into_iter().flatten().reduce(f64::min);
}

/// Returns that quantile of the values, or `None` if there are none. Sorts them.
pub(crate) fn quantile(values: &mut [u64], of: f64) -> Option<f64> {
    values.sort_unstable();
    let last = values.len().checked_sub(1)?;
    values.get((last as f64 * of).round() as usize).map(|&value| value as f64)
}
