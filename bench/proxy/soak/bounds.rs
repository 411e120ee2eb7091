//! The samples of a soak, and the bounds that they must hold.

use crate::verdict;

/// The figures of a period of ten seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Seconds since the end of the warm-up.
    pub(crate) at: f64,
    pub(crate) resident_kib: f64,
    /// The used part of one core.
    pub(crate) core: f64,
    /// The 50th and the 99th percentile of a token's latency, in microseconds.
    pub(crate) one_way: [f64; 2],
    /// The same of a small whole answer.
    pub(crate) whole: [f64; 2],
    /// All answers so far, from the beginning of the soak.
    pub(crate) answered: u64,
    /// All ended trials so far, and their records.
    pub(crate) trials: u64,
    pub(crate) recorded: u64,
}

/// The memory that the index needs for each recorded call: a position of 16 bytes, in a list that may have grown to
/// twice its length.
const BYTES_PER_CALL: f64 = 32.0;

/// The memory that each ended trial needs: the parameters of its opening, its status, and its entries in the tables of
/// the registry, the feed and the index. 20 000 trials without calls took 3.9 kB each.
const BYTES_PER_TRIAL: f64 = 4096.0;

/// The change of resident memory that proves nothing, because the allocator returns pages at its own times.
const NOISE_BYTES: f64 = 8.0 * 1024.0 * 1024.0;

/// The largest latency of the last quarter, relative to that of the first quarter.
const DRIFT: f64 = 1.5;

type Latency = fn(&Sample) -> f64;

/// Prints a line per bound. Returns whether all bounds hold. The samples are those after the warm-up.
pub(crate) fn judge(samples: &[Sample]) -> bool {
    let memory = judge_memory(samples);
    let quarter = (samples.len() / 4).max(1);
    let (first, last) = (&samples[..quarter], &samples[samples.len() - quarter..]);
    let mut is_good = memory;
    let latencies: [(&str, Latency); 4] = [
        ("one-way p50", |sample| sample.one_way[0]),
        ("one-way p99", |sample| sample.one_way[1]),
        ("call p50", |sample| sample.whole[0]),
        ("call p99", |sample| sample.whole[1]),
    ];
    for (name, latency) in latencies {
        let [before, after] = [first, last].map(|samples| median(samples.iter().map(latency).collect()));
        // A figure that is missing is NaN, and no bound holds for it.
        let holds = after <= DRIFT * before;
        is_good &= holds;
        let ratio = after / before;
        println!(
            "{:6}  {name}: {after:.0} us in the last quarter, {before:.0} us in the first ({ratio:.2}, bound {DRIFT})",
            verdict(holds)
        );
    }
    is_good
}

fn judge_memory(samples: &[Sample]) -> bool {
    let half = &samples[samples.len() / 2..];
    let (first, last) = (half[0], half[half.len() - 1]);
    let calls = (last.recorded - first.recorded) as f64;
    let trials = (last.trials - first.trials) as f64;
    let grown = slope(half) * (last.at - first.at) * 1024.0;
    let bound = calls * BYTES_PER_CALL + trials * BYTES_PER_TRIAL + NOISE_BYTES;
    let holds = grown <= bound;
    println!(
        "{:6}  memory: {:+.1} MB in the second half, for {calls} recorded calls of {trials} trials ({:.0} bytes a call, \
         bound {:.1} MB = {BYTES_PER_CALL} bytes a call, {BYTES_PER_TRIAL} a trial, {:.0} MB noise)",
        verdict(holds),
        grown / 1e6,
        grown / calls,
        bound / 1e6,
        NOISE_BYTES / 1e6,
    );
    holds
}

/// Returns the slope of resident memory by least squares, in KiB per second.
fn slope(samples: &[Sample]) -> f64 {
    let count = samples.len() as f64;
    let at = samples.iter().map(|sample| sample.at).sum::<f64>() / count;
    let resident = samples.iter().map(|sample| sample.resident_kib).sum::<f64>() / count;
    let covariance =
        samples.iter().map(|sample| (sample.at - at) * (sample.resident_kib - resident)).sum::<f64>();
    covariance / samples.iter().map(|sample| (sample.at - at).powi(2)).sum::<f64>()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) / 2]
}
