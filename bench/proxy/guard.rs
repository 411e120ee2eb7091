//! The guard: a short form of the gate that compares the ratios of processor time with a committed baseline. It guards
//! against large regressions, and the gate's goals do not count.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::answer::Knobs;
use crate::gate;
use crate::load::Load;
use crate::loads::{GateLoad, LOADS};
use crate::stage::Stage;
use crate::verdict;

/// The baseline, relative to the measured crate.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/proxy/baseline.toml");

const HEADER: &str = "\
# The ratios of processor time with which `just bench gate --guard` compares: proxy relative to the pass-through, of
# the reduced loads and the guard's build profile. `just bench gate --guard --update` writes this file.
";

const ROUNDS: usize = 3;

/// The largest ratio relative to its baseline.
const LIMIT: f64 = 1.3;

/// The ratios of an earlier run.
#[derive(Debug, Serialize, Deserialize)]
struct Baseline {
    date: String,
    machine: String,
    /// The ratio of each load.
    processor: BTreeMap<String, f64>,
}

/// Compares each load with the baseline, and measures a load again if it is beyond the limit. Returns whether each load
/// is within the limit at least once.
pub(crate) async fn run() -> Result<bool, String> {
    let text = std::fs::read_to_string(FILE).map_err(|error| format!("{FILE}: {error}"))?;
    let baseline: Baseline = toml::from_str(&text).map_err(|error| format!("{FILE}: {error}"))?;
    println!("baseline of {} on {}; limit {LIMIT} times its ratios", baseline.date, baseline.machine);
    let stage = Stage::set(1);
    let key = stage.proxy.open_trial().await;
    let mut is_good = true;
    for load in reduced() {
        let known =
            *baseline.processor.get(load.name).ok_or_else(|| format!("{FILE} lacks {}", load.name))?;
        let mut holds = false;
        for name in [load.name, "  again"] {
            let pair = gate::measure(&stage, &key, &load, ROUNDS).await;
            let ratio = pair.processor_ratio();
            holds = ratio <= LIMIT * known && pair.errors() == 0;
            println!(
                "{:6}  {name:18}  {ratio:5.2}, baseline {known:5.2}: {:4.2}",
                verdict(holds),
                ratio / known
            );
            pair.report_errors(gate::SIDES);
            if holds {
                break;
            }
        }
        is_good &= holds;
    }
    Ok(is_good)
}

/// Measures the loads in more rounds and writes their ratios as the baseline.
pub(crate) async fn update() -> Result<bool, String> {
    let stage = Stage::set(1);
    let key = stage.proxy.open_trial().await;
    let mut processor = BTreeMap::new();
    for load in reduced() {
        let pair = gate::measure(&stage, &key, &load, 3 * ROUNDS).await;
        if pair.errors() > 0 {
            return Err(format!("{}: {} errors, {:?}", load.name, pair.errors(), pair.proxy.first_error));
        }
        let ratio = pair.processor_ratio();
        println!("{:18}  {ratio:.2}", load.name);
        processor.insert(load.name.to_owned(), (ratio * 100.0).round() / 100.0);
    }
    let baseline = Baseline { date: jiff::Zoned::now().date().to_string(), machine: machine(), processor };
    let text = toml::to_string(&baseline).map_err(|error| error.to_string())?;
    std::fs::write(FILE, format!("{HEADER}{text}")).map_err(|error| format!("{FILE}: {error}"))?;
    Ok(true)
}

/// Returns the gate's loads with fewer calls, so that three rounds of all take about 20 seconds.
fn reduced() -> [GateLoad; 5] {
    LOADS.map(|of| {
        let Load { knobs, calls, .. } = of.load;
        let load = match of.load.knobs.delay_us {
            0 => Load { calls: calls / 2, ..of.load },
            // A call of each stream is the least, and each token counts.
            _ => Load { knobs: Knobs { tokens: knobs.tokens / 2, ..knobs }, ..of.load },
        };
        GateLoad { load, ..of }
    })
}

fn machine() -> String {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let models: Vec<_> = cpus.lines().filter(|line| line.starts_with("model name")).collect();
    let model = models
        .first()
        .and_then(|line| line.split_once(": "))
        .map_or("an unknown processor", |(_, name)| name);
    format!("{model}, {} cores", models.len())
}
