//! Thousands of open trials on a cluster in which something fails every few seconds. Faults overlap, and agents call nodes that
//! may be dead or paused.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rolltap_testing::{NatsServers, S3Server};

use super::super::agent;
use super::super::rng::{Chance, rounds_and_seed};
use super::super::shared_state::World;
use super::super::upstream::Upstream;
use super::super::verify;
use super::nodes::{self, Nodes, Size};
use super::{SERVERS, feed, object_storage};

const SIZE: Size = Size { nodes: 4, shards: 2 };
/// The mean time between two faults.
const FAULT_SECONDS: f64 = 3.0;
/// The faults between two verifications, for which all trials rest.
const FAULTS_PER_VERIFICATION: u64 = 60;
/// The longest time for which a part is dead or paused. Leases last five seconds.
const LONGEST: Duration = Duration::from_secs(8);

/// A part that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Node(usize),
    Server(usize),
    Storage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Killed,
    Paused,
}

/// A fault that has not ended.
#[derive(Clone, Copy, Debug)]
struct Fault {
    part: Part,
    kind: Kind,
    ends: Instant,
}

struct Soak {
    nodes: Nodes,
    servers: NatsServers,
    storage: S3Server,
    world: Arc<World>,
    chance: Chance,
    faults: Vec<Fault>,
    /// The parts that have failed.
    hit: BTreeSet<Part>,
}

/// Returns a number of the environment, or the usual one.
fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs NATS and an S3 server: run ./scripts/test"]
async fn thousands_of_trials_survive_a_fault_every_few_seconds() {
    let (faults, seed) = rounds_and_seed(600);
    let (agents, think) = (number("CRASH_AGENTS", 4_000), number("CRASH_THINK_SECONDS", 200));
    let dir = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(seed, Duration::from_millis(15)).await;
    let (servers, storage) = (NatsServers::start(SERVERS), S3Server::start());
    let objects = ["--cluster-objects", &object_storage(), "--cluster-segment-seconds", "10"];
    let variables = storage.variables();
    let nodes = Nodes::start(dir.path(), &upstream.url, &servers.urls(), SIZE, &objects, &variables).await;
    let world = World::new(seed, upstream);
    world.is_cluster.store(true, Ordering::Relaxed);
    world.think_millis.store(think * 1000, Ordering::Relaxed);
    let agents: Vec<_> =
        (0..agents).map(|number| tokio::spawn(agent::live(Arc::clone(&world), number))).collect();
    let chance = Chance::of(seed, u64::MAX);
    let (faults_so_far, hit) = (Vec::new(), BTreeSet::new());
    let mut soak = Soak { nodes, servers, storage, world, chance, faults: faults_so_far, hit };
    for done in 1..=faults {
        soak.begin_fault();
        let pause = Duration::from_secs_f64(FAULT_SECONDS).mul_f64(0.5 + soak.chance.unit());
        soak.run_for(pause).await;
        if done % FAULTS_PER_VERIFICATION == 0 || done == faults {
            soak.recover_and_verify(done == faults).await;
            println!("{done} faults: {}", soak.line());
        }
        assert!(agents.iter().all(|agent| !agent.is_finished()), "an agent gave up");
    }
    agents.iter().for_each(tokio::task::JoinHandle::abort);
    soak.feed_has_each_rewarded_trial_once().await;
    assert!(soak.hit.len() == SIZE.nodes + SERVERS + 1, "some parts never failed: {:?}", soak.hit);
    soak.nodes.stop_all().await;
}

impl Soak {
    /// Kills or pauses a random part that works. Two nodes, two servers or the storage may be out at once; without two servers
    /// of three nothing is stored, and calls wait.
    fn begin_fault(&mut self) {
        let part = match self.chance.among(0..10) {
            0..6 => Part::Node(self.chance.among(0..SIZE.nodes as u64) as usize),
            6..9 => Part::Server(self.chance.among(0..SERVERS as u64) as usize),
            _ => Part::Storage,
        };
        let is_node = |part: &Part| matches!(part, Part::Node(_));
        let out = self.faults.iter().filter(|fault| is_node(&fault.part) == is_node(&part)).count();
        if out >= 2 || self.faults.iter().any(|fault| fault.part == part) {
            return;
        }
        let kind = if self.chance.per_cent(50) { Kind::Killed } else { Kind::Paused };
        let lasts = self.chance.below(LONGEST);
        let began = match (part, kind) {
            (Part::Node(number), Kind::Killed) => self.nodes.kill_at_once(number),
            (Part::Node(number), Kind::Paused) => self.nodes.try_signal(number, "STOP"),
            (Part::Server(number), Kind::Killed) => {
                self.servers.kill(number);
                true
            }
            (Part::Server(number), Kind::Paused) => {
                nodes::send(self.servers.id(number), "STOP");
                true
            }
            (Part::Storage, _) => {
                nodes::send(self.storage.id().unwrap(), "STOP");
                true
            }
        };
        if began {
            self.hit.insert(part);
            self.faults.push(Fault { part, kind, ends: Instant::now() + lasts });
        }
    }

    fn end_fault(&mut self, fault: Fault) {
        match (fault.part, fault.kind) {
            // The node starts again with those that ended by themselves.
            (Part::Node(_), Kind::Killed) => {}
            (Part::Node(number), Kind::Paused) => {
                self.nodes.try_signal(number, "CONT");
            }
            (Part::Server(number), Kind::Killed) => {
                tokio::task::block_in_place(|| self.servers.restart(number));
            }
            (Part::Server(number), Kind::Paused) => nodes::send(self.servers.id(number), "CONT"),
            (Part::Storage, _) => nodes::send(self.storage.id().unwrap(), "CONT"),
        }
    }

    /// Lets agents call a random node each second, while faults end.
    async fn run_for(&mut self, time: Duration) {
        let ends = Instant::now() + time;
        while Instant::now() < ends {
            let now = Instant::now();
            let (over, going): (Vec<_>, Vec<_>) = self.faults.drain(..).partition(|fault| fault.ends <= now);
            self.faults = going;
            over.into_iter().for_each(|fault| self.end_fault(fault));
            let down: Vec<usize> = self.down().collect();
            self.nodes.start_ended_except(&down);
            let node = self.chance.among(0..SIZE.nodes as u64) as usize;
            self.world.comes_up(&self.nodes.place(node));
            tokio::time::sleep(Duration::from_millis(250).min(time)).await;
        }
    }

    /// The nodes that are killed at present.
    fn down(&self) -> impl Iterator<Item = usize> {
        self.faults.iter().filter_map(|fault| match fault {
            Fault { part: Part::Node(number), kind: Kind::Killed, .. } => Some(*number),
            _ => None,
        })
    }

    /// Ends all faults, waits until the cluster works, and panics with every broken promise.
    async fn recover_and_verify(&mut self, every_trial: bool) {
        let faults: Vec<Fault> = self.faults.drain(..).collect();
        faults.into_iter().for_each(|fault| self.end_fault(fault));
        self.nodes.restart_ended().await;
        self.nodes.holders(None).await;
        self.world.is_down().await;
        self.nodes.restart_ended().await;
        let place = self.nodes.any(&mut self.chance, false).await;
        let verdict = verify::trials(&self.world, &place.admin, &mut self.chance, every_trial).await;
        let (seed, breaches) = (self.world.seed, verdict.breaches);
        assert!(breaches.is_empty(), "CRASH_SEED={seed}\n{}\n{}", breaches.join("\n"), self.nodes.logs());
    }

    /// Reads the feed at all nodes in turn. Each trial whose reward was acknowledged is in it once.
    async fn feed_has_each_rewarded_trial_once(&mut self) {
        let places: Vec<_> = (0..SIZE.nodes).map(|number| self.nodes.place(number)).collect();
        let trials = feed::trials(&self.world.http, &places).await;
        let once: BTreeSet<&String> = trials.iter().collect();
        assert_eq!(once.len(), trials.len(), "a trial is in the feed twice");
        let rewarded = self.world.rewarded();
        assert!(rewarded.iter().all(|trial| once.contains(trial)), "a rewarded trial is not in the feed");
        println!("{} rewarded trials, {} in the feed", rewarded.len(), trials.len());
    }

    fn line(&self) -> String {
        let (seen, lost) = (&self.world.seen, &self.world.lost);
        format!(
            "{} trials, {} answers seen whole, {} requests repeated",
            self.world.books().len(),
            seen.load(Ordering::Relaxed),
            lost.load(Ordering::Relaxed)
        )
    }
}
