//! Open trials with long histories: each call continues the conversation of its trial, and the trials take turns.

use bytes::Bytes;
use futures_util::future::join_all;

use super::{Cost, Sizes};
use crate::answer::Knobs;
use crate::client::Client;
use crate::gate::PATH;
use crate::process::Process;
use crate::reading::Reading;
use crate::request::{self, Size};
use crate::stage::Stage;
use crate::trials::{Trial, Trials};

const SIZES: [usize; 3] = [10, 100, 1000];

/// The turns of a trial before the measurement, and those that are measured.
const HISTORY: usize = 50;
const MEASURED: usize = 5;

/// The number of concurrent calls.
const AT_ONCE: usize = 10;

const KNOBS: Knobs = Knobs { prompt: 0, tokens: 64, delay_us: 0, continues: true };

pub(super) struct Conversations {
    /// The trials of all groups of a size. Small groups are repeated, because their calls are few.
    pub(super) trials: usize,
}

impl Sizes for Conversations {
    const COUNT: usize = SIZES.len();
    const TITLE: &str = "open trials, per call";

    fn name(&self, size: usize) -> String {
        format!("{} trials of {HISTORY} turns", SIZES[size])
    }

    async fn add(&self, size: usize, stage: &Stage, on_proxy: bool, cost: &mut Cost) {
        let (count, process) = (SIZES[size], stage.side(on_proxy));
        let bodies: Vec<_> = (0..HISTORY + MEASURED)
            .map(|turns| request::body(&KNOBS, false, Size { first: 2000, observation: 400 }, "", turns))
            .collect();
        let admin = process.admin.map(Trials::new);
        if cost.kib.is_none() {
            // The first calls of a process allocate memory that all trials use.
            let (_, paths) = open(admin.as_ref(), AT_ONCE).await;
            play(process, &paths, &bodies).await;
        }
        for _ in 0..self.trials.div_ceil(count) {
            let resident = process.resident_kib();
            let (trials, paths) = open(admin.as_ref(), count).await;
            play(process, &paths, &bodies[..HISTORY]).await;
            cost.kib.get_or_insert((process.resident_kib() - resident) / count as f64);
            let seconds = process.cpu_seconds();
            play(process, &paths, &bodies[HISTORY..]).await;
            cost.seconds += process.cpu_seconds() - seconds;
            cost.work += (count * MEASURED) as f64;
            for trial in trials {
                admin.as_ref().unwrap().end(trial).await;
            }
        }
    }
}

/// Makes one call of each path for each body, in turn. Each agent has its own paths, so that the calls of a trial follow
/// each other.
async fn play(process: &Process, paths: &[String], bodies: &[Bytes]) {
    let agent = async |number: usize| {
        let mut client = Client::connect(process.address).await.unwrap();
        for body in bodies {
            for path in paths.iter().skip(number).step_by(AT_ONCE) {
                let mut reading = Reading::new(&KNOBS, false);
                let read = client.call(path, body.clone(), |part| {
                    reading.take(part, |_| {});
                    true
                });
                read.await.unwrap();
                reading.finish().unwrap();
            }
        }
    };
    join_all((0..AT_ONCE).map(agent)).await;
}

/// Opens trials on the proxy, or pretends to on the pass-through. Returns the paths of their calls.
async fn open(admin: Option<&Trials>, count: usize) -> (Vec<Trial>, Vec<String>) {
    let (mut trials, mut paths) = (Vec::new(), Vec::new());
    for _ in 0..count {
        match admin {
            Some(admin) => trials.push(admin.open().await),
            None => paths.push(PATH.to_owned()),
        }
    }
    paths.extend(trials.iter().map(|trial| trial.path.clone()));
    (trials, paths)
}
