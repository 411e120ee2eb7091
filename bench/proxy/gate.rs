//! The gate: five loads, each on the pass-through and on the proxy in alternating rounds, and a verdict for each goal.
//! With TLS to the upstream, nginx takes the place of the pass-through, and there are no goals.

use crate::figures::Figures;
use crate::loads::{Figure, GateLoad, Goal, LOADS};
use crate::stage::Stage;

/// The path that the pass-through gets.
pub(crate) const PATH: &str = "/v1/chat/completions";

/// The names of the sides of the gate.
pub(crate) const SIDES: [&str; 2] = ["pass-through", "proxy"];

/// The texts of a figure.
struct Line {
    name: &'static str,
    result: String,
    /// The values of the reference and of the proxy, with their unit.
    values: [String; 2],
}

fn digits(figure: Figure) -> usize {
    if figure == Figure::AddedMedian { 0 } else { 2 }
}

/// The figures of one load.
#[derive(Debug, Default)]
pub(crate) struct Pair {
    pub(crate) passing: Figures,
    pub(crate) proxy: Figures,
}

/// Runs all loads and prints a line per goal. Returns whether all goals are met.
pub(crate) async fn run(rounds: usize, workers: usize) -> bool {
    let stage = Stage::set(workers);
    let key = stage.proxy.open_trial().await;
    println!("{rounds} rounds, {workers} worker thread(s), each on a core of its own");
    println!(
        "{:18}  {:22}  {:>7}  {:>6}  {:>6}  {:6}  {:>14}  {:>12}",
        "load", "figure", "result", "goal", "hoped", "", "pass-through", "proxy"
    );
    let mut missed = 0;
    for load in &LOADS {
        let pair = measure(&stage, &key, load, rounds).await;
        missed += load.goals.iter().filter(|goal| !pair.report(load, goal)).count();
        pair.report_errors(SIDES);
    }
    println!(
        "{}",
        if missed == 0 { "all goals are met".to_owned() } else { format!("{missed} goals MISSED") }
    );
    missed == 0
}

/// Runs all loads with TLS to the upstream, and prints the proxy's figures beside those of nginx. Returns whether all
/// calls succeeded.
pub(crate) async fn run_beside_nginx(rounds: usize) -> bool {
    let stage = Stage::beside_nginx();
    let key = stage.proxy.open_trial().await;
    println!("{rounds} rounds, TLS to the upstream, one worker on a core of its own");
    println!("{:18}  {:22}  {:>7}  {:>14}  {:>12}", "load", "figure", "result", "nginx", "proxy");
    let mut failed = 0;
    for load in &LOADS {
        let pair = measure(&stage, &key, load, rounds).await;
        for goal in load.goals {
            let Line { name, result, values: [nginx, proxy] } = pair.line(load, goal.figure);
            println!("{:18}  {name:22}  {result:>7}  {nginx:>14}  {proxy:>12}", load.name);
        }
        pair.report_errors(["nginx", "proxy"]);
        failed += pair.errors();
    }
    failed == 0
}

/// Runs the rounds of one load. The side that is first alternates, because a change of the machine's speed within a
/// round would always favour the same side otherwise.
pub(crate) async fn measure(stage: &Stage, key: &str, load: &GateLoad, rounds: usize) -> Pair {
    let (path, mut pair) = (format!("/t/{key}{PATH}"), Pair::default());
    for round in 0..rounds {
        for is_proxy in [round % 2 == 1, round % 2 == 0] {
            match is_proxy {
                true => pair.proxy.add(load, &stage.proxy, &path).await,
                false => pair.passing.add(load, &stage.passing, PATH).await,
            }
        }
    }
    pair
}

impl Pair {
    /// Returns the proxy's processor time per unit of work, relative to that of the pass-through.
    pub(crate) fn processor_ratio(&self) -> f64 {
        self.proxy.us_per_unit() / self.passing.us_per_unit()
    }

    pub(crate) fn errors(&self) -> usize {
        self.passing.errors + self.proxy.errors
    }

    /// Returns the figure, and the values of the reference and of the proxy with their unit.
    fn figure(&self, figure: Figure) -> (f64, [f64; 2], &'static str) {
        let Self { passing, proxy } = self;
        let both =
            |of: fn(&Figures) -> Option<f64>| [of(passing), of(proxy)].map(|value| value.unwrap_or(f64::NAN));
        let (values, unit) = match figure {
            Figure::Processor => ([passing.us_per_unit(), proxy.us_per_unit()], "us"),
            Figure::AddedMedian => (both(|of| of.median_us), "us"),
            Figure::Slowest => (both(|of| of.slowest_us), "us"),
            Figure::Memory => (both(|of| of.kib_per_stream), "KiB"),
        };
        let [theirs, ours] = values;
        (if figure == Figure::AddedMedian { ours - theirs } else { ours / theirs }, values, unit)
    }

    /// Returns the texts of a figure.
    fn line(&self, load: &GateLoad, figure: Figure) -> Line {
        let (result, values, unit) = self.figure(figure);
        let name = match (figure, load.per_token) {
            (Figure::Processor, true) => "CPU per token",
            (Figure::Processor, false) => "CPU per call",
            (Figure::AddedMedian, _) => "one-way p50, added us",
            (Figure::Slowest, _) => "one-way p99",
            (Figure::Memory, _) => "memory per stream",
        };
        let digits = digits(figure);
        let values = values.map(|value| format!("{value:.1} {unit}"));
        Line { name, result: format!("{result:.digits$}"), values }
    }

    /// Prints a line of the table. Returns whether the goal is met. A load with an error meets no goal.
    fn report(&self, load: &GateLoad, goal: &Goal) -> bool {
        let is_met = self.figure(goal.figure).0 <= goal.limit && self.errors() == 0;
        let Line { name, result, values: [theirs, ours] } = self.line(load, goal.figure);
        let digits = digits(goal.figure);
        let hoped_for = goal.hoped_for.map_or_else(String::new, |hoped_for| format!("{hoped_for:.2}"));
        println!(
            "{:18}  {name:22}  {result:>7}  {:6.digits$}  {hoped_for:>6}  {:6}  {theirs:>14}  {ours:>12}",
            load.name,
            goal.limit,
            if is_met { "ok" } else { "MISSED" },
        );
        is_met
    }

    pub(crate) fn report_errors(&self, sides: [&str; 2]) {
        for (name, figures) in sides.into_iter().zip([&self.passing, &self.proxy]) {
            if let Some(error) = &figures.first_error {
                println!("  {} errors of the {name}, the first one: {error}", figures.errors);
            }
        }
    }
}
