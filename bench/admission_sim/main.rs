//! Simulates jobs of long conversations on many engines: `-n auto` beside the best fixed number, found by search.
//!
//! `just bench admission-sim` uses the code that admits trials, and a model of vLLM's KV cache and scheduler that tests
//! compare with vLLM. Time is virtual, so the figures do not depend on the machine.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a benchmark prints its results, and ends at the first error"
)]

mod fleet;
mod workload;

use std::process::ExitCode;
use std::thread;

use fleet::{Fleet, Outcome, Rule};
use workload::SHAPES;

/// The numbers of trials per replica that are tried.
const FIXED: [usize; 11] = [4, 8, 12, 16, 20, 24, 32, 40, 48, 62, 96];
/// Each rule has jobs with these seeds, because the longest trial decides much of the time of a single job.
const SEEDS: [u64; 3] = [7, 8, 9];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let (mut replicas, mut trials) = (64, 4000);
    while let Some(flag) = arguments.next() {
        let value = arguments.next().and_then(|value| value.parse().ok());
        match (flag.as_str(), value) {
            ("--replicas", Some(value)) => replicas = value,
            ("--trials", Some(value)) => trials = value,
            _ => {
                eprintln!("usage: admission-sim [--replicas N] [--trials N]");
                return ExitCode::from(2);
            }
        }
    }
    println!("{replicas} replicas, {trials} trials, {} jobs", SEEDS.len());
    for shape in SHAPES {
        println!("\n{}: {} tokens in each cache", shape.name, (shape.blocks - 1) * 16);
        println!(
            "{:>6} {:>9} {:>6} {:>19} {:>10} {:>9}",
            "-n", "time", "hits", "computed per trial", "preempted", "most open"
        );
        let outcome = |rule| {
            let mut sum = Outcome::default();
            for seed in SEEDS {
                sum += Fleet::new(&shape, replicas, shape.trials(trials, seed), rule).run();
            }
            sum
        };
        let rules: Vec<_> = FIXED.map(Rule::Fixed).into_iter().chain([Rule::Auto]).collect();
        let outcomes: Vec<_> = thread::scope(|scope| {
            let jobs: Vec<_> = rules.iter().map(|&rule| scope.spawn(move || outcome(rule))).collect();
            jobs.into_iter().map(|job| job.join().expect("a simulation ends")).collect()
        });
        let mut best = f64::INFINITY;
        for (&rule, outcome) in rules.iter().zip(&outcomes) {
            show(rule, outcome, trials * SEEDS.len());
            match rule {
                Rule::Fixed(_) => best = best.min(outcome.seconds),
                Rule::Auto => println!(
                    "auto has {:.2} of the best throughput of a fixed number",
                    best / outcome.seconds
                ),
            }
        }
    }
    ExitCode::SUCCESS
}

fn show(rule: Rule, outcome: &Outcome, trials: usize) {
    let Outcome { seconds, queries, hits, preemptions, most_open } = *outcome;
    let rule = match rule {
        Rule::Fixed(most) => most.to_string(),
        Rule::Auto => "auto".to_owned(),
    };
    let (hit, computed) = (hits as f64 / queries as f64, (queries - hits) as f64 / trials as f64);
    println!("{rule:>6} {seconds:>7.0} s {hit:>6.3} {computed:>19.0} {preemptions:>10} {most_open:>9}");
}
