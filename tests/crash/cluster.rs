//! A cluster whose parts are killed, paused and cut off at random moments under load. After each fault every promise of the
//! service is verified, at a node that may be another one than before.

mod balancer;
mod feed;
mod network;
mod nodes;
mod shards;
mod soak;
mod takeover;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rolltap_testing::{Cut, NatsServers, NatsSetup, S3Server, limit, sample};

use self::network::Network;
use self::nodes::{Nodes, Size};
use super::agent;
use super::part;
use super::rng::{Chance, rounds_and_seed};
use super::shared_state::World;
use super::upstream::Upstream;
use super::verify;

const AGENTS: u64 = 24;
/// One node more than there are shards takes over, and a second one makes a fault of a standby harmless for the others.
const SIZE: Size = Size { nodes: 4, shards: 2 };
const SERVERS: usize = 3;
/// The answers before a fault.
const ANSWERS: u64 = 60;
/// The longest wait for these answers.
const LOAD_SECONDS: u64 = 6;
/// Longer than a lease lasts.
const PAUSE: Duration = Duration::from_millis(6_500);

/// What goes wrong in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The node that answers is killed.
    HolderKilled,
    /// The node that answers is paused until another has taken over, and then wakes up.
    HolderPaused,
    /// The node that answers gets no answer from NATS and the object storage, which get its requests, until another has taken
    /// over.
    HolderCut,
    /// A node that forwards is killed.
    StandbyKilled,
    /// A NATS server is killed, and started again.
    ServerKilled,
    /// All NATS servers are paused for longer than a lease lasts.
    ServersPaused,
    /// The node that answers is killed while the object storage is paused.
    StoragePaused,
}

const FAULTS: [Fault; 7] = [
    Fault::HolderKilled,
    Fault::ServerKilled,
    Fault::HolderPaused,
    Fault::HolderCut,
    Fault::ServersPaused,
    Fault::StandbyKilled,
    Fault::StoragePaused,
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs NATS and an S3 server: run ./scripts/test"]
async fn a_cluster_loses_and_repeats_nothing_whatever_fails() {
    let (rounds, seed) = rounds_and_seed(sample(FAULTS.len() as u64, 300));

    let dir = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(seed, Duration::from_millis(15)).await;
    // Clients would learn addresses that bypass the network of the nodes.
    let setup = NatsSetup { has_relays: true, ..NatsSetup::of(SERVERS) };
    let (servers, storage) = (NatsServers::start_as(&setup), S3Server::start());
    // Short segments, so that takeovers read some from the object storage and some from the log.
    let objects = ["--cluster-objects", &object_storage(), "--cluster-segment-seconds", "2"];
    let network = Network::start(SIZE.nodes, &servers, &storage);
    let reach = |node| network.reach(node, &storage);
    let nodes = Nodes::start(dir.path(), &upstream.url, SIZE, &objects, reach).await;
    let world = World::new(seed, upstream);
    world.is_cluster.store(true, Ordering::Relaxed);
    let agents: Vec<_> =
        (0..AGENTS).map(|number| tokio::spawn(agent::live(Arc::clone(&world), number))).collect();
    let mut run = Run {
        nodes,
        network,
        servers,
        storage,
        world,
        chance: Chance::of(seed, u64::MAX),
        slowest: Duration::ZERO,
    };
    for round in 0..rounds {
        let fault = match FAULTS.get(round as usize) {
            Some(fault) => *fault,
            None => FAULTS[run.chance.among(0..FAULTS.len() as u64) as usize],
        };
        run.load_and_fail(fault).await;
        let every_trial = round % 20 == 5;
        run.verify(fault, every_trial).await;
        assert!(agents.iter().all(|agent| !agent.is_finished()), "an agent gave up");
        println!("round {round}: {fault:?}: {}", run.line());
    }
    agents.iter().for_each(tokio::task::JoinHandle::abort);
    run.world.is_down().await;
    run.verify(Fault::StandbyKilled, true).await;
    run.feed_has_each_rewarded_trial_once().await;
    assert!(run.world.seen.load(Ordering::Relaxed) > rounds * 5, "too few answers came");
    run.nodes.stop_all().await;
    check_object_storage(dir.path(), &run.storage);
}

/// The place of the captures in the object storage.
fn object_storage() -> String {
    format!("s3://{}/cluster", S3Server::BUCKET)
}

/// Checks all shards in the object storage, which has all captures after the holders have stopped.
fn check_object_storage(dir: &Path, storage: &S3Server) {
    let mut variables = network::variables(storage);
    variables.push(("XDG_CACHE_HOME".to_owned(), dir.join("cache").display().to_string()));
    let said = part::check(Path::new(&object_storage()), &variables);
    assert!(said.contains("rows checked"), "{said}");
    println!("{}", said.lines().last().unwrap());
}

struct Run {
    nodes: Nodes,
    network: Network,
    servers: NatsServers,
    storage: S3Server,
    world: Arc<World>,
    chance: Chance,
    /// The longest time between a fault and a node that answers.
    slowest: Duration,
}

impl Run {
    async fn load_and_fail(&mut self, fault: Fault) {
        // Agents call any node, also one that only forwards.
        let entrance = self.nodes.any(&mut self.chance, fault == Fault::StandbyKilled).await;
        self.world.comes_up(&entrance);
        let answers = self.world.seen.load(Ordering::Relaxed) + self.chance.among(10..ANSWERS);
        let load = async {
            while self.world.seen.load(Ordering::Relaxed) < answers {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        // The load may be short on a busy machine.
        let _ = tokio::time::timeout(limit(LOAD_SECONDS), load).await;
        let began = Instant::now();
        self.fail(fault).await;
        self.nodes.holders(None).await;
        self.slowest = self.slowest.max(began.elapsed());
        self.world.is_down().await;
        self.nodes.restart_ended().await;
    }

    async fn fail(&mut self, fault: Fault) {
        let holder = self.nodes.holder(&mut self.chance).await;
        match fault {
            Fault::HolderKilled => self.nodes.kill(holder).await,
            Fault::HolderPaused => {
                self.nodes.signal(holder, "STOP");
                tokio::time::sleep(PAUSE).await;
                self.nodes.holders(Some(holder)).await;
                self.nodes.signal(holder, "CONT");
                self.nodes.ends_because_it_was_replaced(holder).await;
            }
            Fault::HolderCut => {
                self.network.cut(holder, Cut::Answers);
                tokio::time::sleep(PAUSE).await;
                self.nodes.holders(Some(holder)).await;
                self.network.heal(holder);
                self.nodes.ends_because_it_was_replaced(holder).await;
            }
            Fault::StandbyKilled => {
                let standby = self.nodes.standby(&mut self.chance).await;
                self.nodes.kill(standby).await;
            }
            Fault::ServerKilled => {
                let server = self.chance.among(0..SERVERS as u64) as usize;
                self.servers.kill(server);
                tokio::time::sleep(self.chance.below(PAUSE)).await;
                self.servers.restart(server);
            }
            Fault::StoragePaused => {
                let storage = self.storage.id().unwrap();
                nodes::send(storage, "STOP");
                tokio::time::sleep(self.chance.below(PAUSE)).await;
                self.nodes.kill(holder).await;
                tokio::time::sleep(self.chance.below(PAUSE * 2)).await;
                nodes::send(storage, "CONT");
            }
            Fault::ServersPaused => {
                let ids: Vec<u32> = (0..SERVERS).map(|number| self.servers.id(number)).collect();
                ids.iter().for_each(|id| nodes::send(*id, "STOP"));
                tokio::time::sleep(PAUSE).await;
                ids.iter().for_each(|id| nodes::send(*id, "CONT"));
            }
        }
    }

    /// Panics with every broken promise, if there is one.
    async fn verify(&mut self, fault: Fault, every_trial: bool) {
        let place = self.nodes.any(&mut self.chance, false).await;
        let verdict = verify::trials(&self.world, &place.admin, &mut self.chance, every_trial).await;
        let breaches = verdict.breaches;
        let seed = self.world.seed;
        assert!(
            breaches.is_empty(),
            "CRASH_SEED={seed}, {fault:?}\n{}\n{}",
            breaches.join("\n"),
            self.nodes.logs()
        );
    }

    /// Reads the feed from its beginning. Each trial whose reward was acknowledged is in it once.
    async fn feed_has_each_rewarded_trial_once(&mut self) {
        let mut places = Vec::new();
        for _ in 0..SIZE.nodes {
            places.push(self.nodes.any(&mut self.chance, false).await);
        }
        let trials = feed::trials(&self.world.http, &places).await;
        for trial in self.world.rewarded() {
            let count = trials.iter().filter(|id| **id == trial).count();
            assert_eq!(count, 1, "{trial} is in the feed {count} times");
        }
        assert!(!trials.is_empty());
    }

    fn line(&self) -> String {
        let books = self.world.books();
        format!(
            "{} trials, {} answers seen whole, {} requests repeated, slowest recovery {:?}",
            books.len(),
            self.world.seen.load(Ordering::Relaxed),
            self.world.lost.load(Ordering::Relaxed),
            self.slowest
        )
    }
}
