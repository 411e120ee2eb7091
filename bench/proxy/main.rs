//! The cost of the proxy: processor time per unit of work, latency, and memory per stream. Each figure stands beside
//! that of a hyper pass-through that captures nothing, measured in the same minutes.
//!
//! `just bench proxy` runs it, and docs/explanation/performance.md explains the figures. It checks no threshold,
//! because machines are noisy.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a benchmark that fails panics, and prints its figures"
)]

mod load;
mod pass_through;
#[path = "../process.rs"]
mod process;
mod upstream;

use std::net::SocketAddr;

use load::{Load, Seen};
use process::Process;
use upstream::Knobs;

/// One kind of load.
struct Cell {
    name: &'static str,
    /// If true, processor time is divided by the number of sampled tokens, otherwise by the number of calls.
    per_token: bool,
    knobs: Knobs,
    load: Load,
}

const CELLS: [Cell; 5] = [
    Cell {
        name: "paced streams, 200 at once, a token each 20 ms",
        per_token: true,
        knobs: Knobs { prompt: 500, tokens: 75, delay_us: 20_000 },
        load: Load { at_once: 200, calls: 200, stream: true, body: 1000, turns: 1 },
    },
    Cell {
        name: "streams as fast as they come, 64 at once",
        per_token: true,
        knobs: Knobs { prompt: 300, tokens: 512, delay_us: 0 },
        load: Load { at_once: 64, calls: 256, stream: true, body: 1000, turns: 1 },
    },
    Cell {
        name: "small whole answers, 16 at once",
        per_token: false,
        knobs: Knobs { prompt: 300, tokens: 64, delay_us: 0 },
        load: Load { at_once: 16, calls: 8000, stream: false, body: 1000, turns: 1 },
    },
    Cell {
        name: "requests of 1 MB, 32768 prompt ids back",
        per_token: false,
        knobs: Knobs { prompt: 32_768, tokens: 256, delay_us: 0 },
        load: Load { at_once: 4, calls: 400, stream: false, body: 1_000_000, turns: 1 },
    },
    Cell {
        name: "20 turns of a growing conversation, 16 at once",
        per_token: false,
        knobs: Knobs { prompt: 2000, tokens: 200, delay_us: 0 },
        load: Load { at_once: 16, calls: 1600, stream: false, body: 4000, turns: 20 },
    },
];

const ROUNDS: usize = 3;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["pass-through", upstream] => runtime.block_on(pass_through::run(upstream.parse().unwrap())),
        // The runtime of the proxy is the one that the program uses.
        ["proxy", upstream, data] => process::run_proxy(upstream, data),
        ["compare"] => runtime.block_on(compare()),
        // Upstream and load share the second core, and the measured process has the first.
        _ => process::on_core(1, &["compare"]),
    }
}

async fn compare() {
    let upstream = upstream::start().await;
    let data = tempfile::tempdir().unwrap();
    let passing = Process::start(&["pass-through", &upstream.to_string()]);
    let proxy = Process::start(&["proxy", &upstream.to_string(), data.path().to_str().unwrap()]);
    let key = proxy.open_trial().await;
    for cell in &CELLS {
        let (mut theirs, mut ours) = (Total::default(), Total::default());
        for _ in 0..ROUNDS {
            theirs.add(cell, &passing, "/v1/chat/completions").await;
            ours.add(cell, &proxy, &format!("/t/{key}/v1/chat/completions")).await;
        }
        cell.report(&theirs, &ours);
    }
}

/// The sums over all rounds of a cell on one process.
#[derive(Default)]
struct Total {
    seconds: f64,
    work: f64,
    /// Microseconds from upstream to client in the best round.
    one_way: Option<(u64, u64)>,
    /// From the first round, because later rounds reuse allocated memory.
    kib_per_stream: Option<f64>,
}

impl Total {
    async fn add(&mut self, cell: &Cell, process: &Process, path: &str) {
        let (seconds, resident) = (process.cpu_seconds(), process.resident_kib());
        let target: SocketAddr = process.address;
        let (seen, largest) =
            load::run(&cell.load, &cell.knobs, target, path, || process.resident_kib()).await;
        let Seen { calls, tokens, mut one_way } = seen;
        self.seconds += process.cpu_seconds() - seconds;
        self.work += if cell.per_token { tokens as f64 } else { calls as f64 };
        self.kib_per_stream.get_or_insert((largest - resident) / cell.load.at_once as f64);
        one_way.sort_unstable();
        if !one_way.is_empty() {
            let quantile = |per_cent: usize| one_way[(one_way.len() - 1) * per_cent / 100];
            let this = (quantile(50), quantile(99));
            self.one_way = Some(self.one_way.map_or(this, |best| best.min(this)));
        }
    }

    fn microseconds(&self) -> f64 {
        self.seconds * 1e6 / self.work
    }
}

impl Cell {
    fn report(&self, theirs: &Total, ours: &Total) {
        let (theirs_us, ours_us) = (theirs.microseconds(), ours.microseconds());
        let unit = if self.per_token { "token" } else { "call" };
        println!("{}", self.name);
        println!(
            "  processor: {:.2} x   ({ours_us:.1} us per {unit}, {theirs_us:.1} passed through)",
            ours_us / theirs_us
        );
        if let (Some(theirs), Some(ours)) = (theirs.one_way, ours.one_way) {
            println!(
                "  one way: p50 {} us, {} passed through; p99 {} us, {}",
                ours.0, theirs.0, ours.1, theirs.1
            );
        }
        if self.knobs.delay_us > 0 {
            let kib = |total: &Total| total.kib_per_stream.unwrap_or_default();
            println!("  memory per stream: {:.0} KiB, {:.0} passed through", kib(ours), kib(theirs));
        }
    }
}
