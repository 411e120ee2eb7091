//! The cost of a token with more open streams, and of a call with more open trials. Neither should grow.

mod conversations;
mod streams;

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::stage::Stage;

/// The rounds of each size on each side. The side that is first alternates.
const ROUNDS: usize = 2;

/// The sums of one size on one side.
#[derive(Debug, Default)]
pub(super) struct Cost {
    /// Processor time of all rounds.
    seconds: f64,
    /// Tokens or calls of all rounds.
    work: f64,
    /// Resident memory of each stream or trial, from the first round.
    kib: Option<f64>,
}

/// The sizes of one kind of load, and how to measure one.
pub(super) trait Sizes {
    const COUNT: usize;
    /// A heading for the table.
    const TITLE: &str;

    fn name(&self, size: usize) -> String;

    /// Measures a size, by its number, on the proxy or on the pass-through.
    async fn add(&self, size: usize, stage: &Stage, on_proxy: bool, cost: &mut Cost);
}

impl Cost {
    fn us(&self) -> f64 {
        self.seconds * 1e6 / self.work
    }

    fn kib(&self) -> f64 {
        self.kib.unwrap_or(f64::NAN)
    }
}

/// Measures all sizes and prints a table.
pub(crate) async fn run(seconds: usize, trials: usize) {
    allow_files(streams::MOST);
    table(&streams::Streams { seconds }).await;
    table(&conversations::Conversations { trials }).await;
}

async fn table<S: Sizes>(sizes: &S) {
    println!(
        "{:34}  {:12}  {:>9}  {:>10}  {:>14}  {:>10}  {:>10}",
        S::TITLE,
        "",
        "CPU",
        "x smallest",
        "x pass-through",
        "memory",
        "x smallest"
    );
    let mut smallest: Option<[Cost; 2]> = None;
    for size in 0..S::COUNT {
        // Each size has new processes, because memory that is allocated once is not returned.
        let stage = Stage::set(1);
        let mut costs = [Cost::default(), Cost::default()];
        for round in 0..ROUNDS {
            for on_proxy in [round % 2 == 1, round % 2 == 0] {
                sizes.add(size, &stage, on_proxy, &mut costs[usize::from(on_proxy)]).await;
            }
        }
        let reference = smallest.as_ref().unwrap_or(&costs);
        for (side, (cost, smallest)) in ["pass-through", "proxy"].iter().zip(costs.iter().zip(reference)) {
            println!(
                "{:34}  {side:12}  {:6.1} us  {:10.2}  {:14.2}  {:6.1} KiB  {:10.2}",
                sizes.name(size),
                cost.us(),
                cost.us() / smallest.us(),
                cost.us() / costs[0].us(),
                cost.kib(),
                cost.kib() / smallest.kib(),
            );
        }
        smallest.get_or_insert(costs);
    }
}

/// Raises this process's limit of open files to the largest one that is allowed. Child processes inherit it.
fn allow_files(streams: usize) {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    // The measured process has two sockets for each stream.
    let needed = 2 * streams as u64 + 500;
    let allowed = limit.maximum.unwrap_or(u64::MAX);
    assert!(
        allowed >= needed,
        "{streams} streams need {needed} open files, and the hard limit is {allowed}: raise it with ulimit -Hn"
    );
}
