//! Thousands of open trials on a cluster in which something fails every few seconds. Faults overlap, and agents call nodes that
//! may be dead, paused or cut off. Workers run jobs meanwhile, some with real vLLM and in Docker.

mod fault;
mod jobs;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rolltap_sim as sim;
use rolltap_testing::{NatsDisk, NatsServers, NatsSetup, S3Server};
use serde_json::Value;

use self::fault::{Fault, Kind, Target};
use self::jobs::Jobs;
use super::super::agent;
use super::super::rng::{Chance, rounds_and_seed};
use super::super::shared_state::World;
use super::super::shim::{Clock, Shim};
use super::super::small_disk::SmallDisk;
use super::super::upstream::{Engines, Upstream};
use super::super::verify;
use super::balancer::Balancer;
use super::network::{Network, variables};
use super::nodes::{Nodes, Size};
use super::{SERVERS, check_object_storage, feed, object_storage};

const SIZE: Size = Size { nodes: 4, shards: 2 };
/// The mean time between two faults.
const FAULT_SECONDS: f64 = 3.0;
/// The faults between two verifications, for which all trials rest.
const FAULTS_PER_VERIFICATION: u64 = 60;
/// The size of the disk of one NATS server.
const DISK_MIB: u32 = 512;

struct Soak {
    nodes: Nodes,
    network: Network,
    clocks: Vec<Clock>,
    servers: NatsServers,
    disk: SmallDisk,
    storage: S3Server,
    jobs: Jobs,
    world: Arc<World>,
    chance: Chance,
    began: Instant,
    faults: Vec<Fault>,
    /// The number of faults of each kind.
    hit: BTreeMap<(Target, Kind), u64>,
    _sim: sim::RunningSim,
}

/// Returns a number of the environment, or the usual one.
fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs NATS, an S3 server, vLLM and Docker: run ./scripts/test"]
async fn thousands_of_trials_survive_a_fault_every_few_seconds() {
    let (faults, seed) = rounds_and_seed(600);
    let (agents, think) = (number("CRASH_AGENTS", 4_000), number("CRASH_THINK_SECONDS", 200));
    let dir = tempfile::tempdir().unwrap();
    let mut soak = Soak::start(dir.path(), seed).await;
    soak.world.think_millis.store(think * 1000, Ordering::Relaxed);
    let agents: Vec<_> =
        (0..agents).map(|number| tokio::spawn(agent::live(Arc::clone(&soak.world), number))).collect();
    for done in 1..=faults {
        soak.begin_fault().await;
        let pause = Duration::from_secs_f64(FAULT_SECONDS).mul_f64(0.5 + soak.chance.unit());
        soak.run_for(pause).await;
        if done % FAULTS_PER_VERIFICATION == 0 || done == faults {
            soak.recover_and_verify(done == faults).await;
            println!("{done} faults: {}", soak.line());
        }
        assert!(agents.iter().all(|agent| !agent.is_finished()), "an agent gave up");
    }
    agents.iter().for_each(tokio::task::JoinHandle::abort);
    let (jobs, trials) = tokio::task::block_in_place(|| {
        let (jobs, trials) = soak.jobs.end();
        (jobs, trials.to_vec())
    });
    println!("{jobs} jobs with {} valid trials; faults: {:?}", trials.len(), soak.hit);
    soak.feed_has_each_rewarded_trial_once(trials).await;
    soak.no_group_is_split().await;
    soak.nodes.stop_all().await;
    check_object_storage(dir.path(), &soak.storage);
}

impl Soak {
    async fn start(dir: &Path, seed: u64) -> Self {
        let vllm =
            std::env::var("ROLLTAP_TEST_VLLM").expect("ROLLTAP_TEST_VLLM is not set: run ./scripts/test");
        let sim = sim::start(sim::Settings::default()).await.unwrap();
        let engines = [("tiny".to_owned(), vllm), ("sim".to_owned(), format!("http://{}", sim.addr()))];
        let engines = Engines::from(engines);
        let upstream = Upstream::start_with(seed, Duration::from_millis(15), engines).await;
        let disk = SmallDisk::mount(&dir.join("disk"), DISK_MIB).expect("a file system can be mounted");
        let nats_disk = NatsDisk { entry: disk.entry(), dir: disk.within.clone() };
        let setup = NatsSetup { has_relays: true, disk: Some(nats_disk), ..NatsSetup::of(SERVERS) };
        let (servers, storage) = (NatsServers::start_as(&setup), S3Server::start());
        let network = Network::start(SIZE.nodes, &servers, &storage);
        let shim = Shim::compile(dir);
        let clock = |node: usize| shim.clock(dir.join(format!("clock-{node}")));
        let balancer = Balancer::bind().await;
        let place = balancer.place.clone();
        let objects = object_storage();
        let more = ["--cluster-objects", &objects, "--cluster-segment-seconds", "10"];
        let more = [&more[..], &["--public-url", &place.agents]].concat();
        let reach = |node: usize| {
            let mut reach = network.reach(node, &storage);
            reach.variables.extend(clock(node).0);
            reach
        };
        let nodes = Nodes::start(dir, &upstream.url, SIZE, &more, reach).await;
        balancer.serve((0..SIZE.nodes).map(|number| nodes.place(number)).collect());
        let urls = servers.urls();
        let common = ["--cluster", &urls, "--cluster-objects", &objects, "--proxy", &place.admin];
        let jobs = Jobs::start(dir, common.map(str::to_owned).to_vec(), variables(&storage));
        let world = World::new(seed, upstream);
        world.is_cluster.store(true, Ordering::Relaxed);
        Self {
            nodes,
            network,
            clocks: (0..SIZE.nodes).map(|node| clock(node).1).collect(),
            servers,
            disk,
            storage,
            jobs,
            world,
            chance: Chance::of(seed, u64::MAX),
            began: Instant::now(),
            faults: Vec::new(),
            hit: BTreeMap::new(),
            _sim: sim,
        }
    }

    /// Returns the NATS server that leads the log of a shard, if a server knows it.
    async fn leader(&self, shard: u64) -> Option<usize> {
        for server in 0..SERVERS {
            let url = format!("{}/jsz?streams=true", self.servers.monitor(server));
            let request = self.world.http.get(url).timeout(Duration::from_millis(300));
            let Ok(answer) = request.send().await else { continue };
            let Ok(state) = answer.json::<Value>().await else { continue };
            let streams = state["account_details"][0]["stream_detail"].as_array().cloned();
            let name = format!("rolltap-rolltap-shard-{shard}");
            let stream = streams.into_iter().flatten().find(|stream| stream["name"] == name.as_str());
            let leader = stream.and_then(|stream| stream["cluster"]["leader"].as_str().map(str::to_owned));
            if let Some(number) = leader.and_then(|name| name.strip_prefix("server-")?.parse().ok()) {
                return Some(number);
            }
        }
        None
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
            if !self.faults.iter().any(|fault| fault.target == Target::Job) {
                tokio::task::block_in_place(|| self.jobs.follow());
            }
            let node = self.chance.among(0..SIZE.nodes as u64) as usize;
            self.world.comes_up(&self.nodes.place(node));
            tokio::time::sleep(Duration::from_millis(250).min(time)).await;
        }
    }

    /// The nodes that are killed at present.
    fn down(&self) -> impl Iterator<Item = usize> {
        self.faults.iter().filter_map(|fault| match fault {
            Fault { target: Target::Node(number), kind: Kind::Killed, .. } => Some(*number),
            _ => None,
        })
    }

    /// Ends all faults, waits until the cluster works, and panics with every broken promise.
    async fn recover_and_verify(&mut self, every_trial: bool) {
        let faults: Vec<Fault> = self.faults.drain(..).collect();
        faults.into_iter().for_each(|fault| self.end_fault(fault));
        tokio::task::block_in_place(|| self.servers.wait_for_all());
        self.nodes.restart_ended().await;
        self.nodes.holders(None).await;
        self.world.is_down().await;
        self.nodes.restart_ended().await;
        let place = self.nodes.any(&mut self.chance, false).await;
        let verdict = verify::trials(&self.world, &place.admin, &mut self.chance, every_trial).await;
        let (seed, breaches) = (self.world.seed, verdict.breaches);
        assert!(breaches.is_empty(), "CRASH_SEED={seed}\n{}\n{}", breaches.join("\n"), self.nodes.logs());
    }

    /// Reads the feed at all nodes in turn. Each trial whose reward was acknowledged is in it once, and so are these.
    async fn feed_has_each_rewarded_trial_once(&mut self, more: Vec<String>) {
        let places: Vec<_> = (0..SIZE.nodes).map(|number| self.nodes.place(number)).collect();
        let trials = feed::trials(&self.world.http, &places).await;
        let once: BTreeSet<&String> = trials.iter().collect();
        assert_eq!(once.len(), trials.len(), "a trial is in the feed twice");
        let rewarded = [self.world.rewarded(), more].concat();
        let missing: Vec<_> = rewarded.iter().filter(|trial| !once.contains(trial)).collect();
        assert!(missing.is_empty(), "rewarded trials are not in the feed: {missing:?}");
        println!("{} rewarded trials, {} in the feed", rewarded.len(), trials.len());
    }

    /// Each group is on one shard.
    async fn no_group_is_split(&mut self) {
        let mut groups = BTreeSet::new();
        for holder in self.nodes.holders(None).await {
            for shard in 0..SIZE.shards {
                // A node answers a request that another one has forwarded to it for its own shard alone.
                let request = self.world.http.get(format!("{}/v1/groups", self.nodes.place(holder).admin));
                let answer = request.header("x-rolltap-forwarded", shard).send().await.unwrap();
                if !answer.status().is_success() {
                    continue;
                }
                for group in answer.json::<Vec<Value>>().await.unwrap() {
                    let id = group["group_id"].as_str().unwrap().to_owned();
                    assert!(groups.insert(id), "a group is on two shards: {group}");
                }
            }
        }
        assert!(!groups.is_empty());
    }

    fn line(&self) -> String {
        let (seen, lost) = (&self.world.seen, &self.world.lost);
        format!(
            "{} trials, {} answers seen whole, under {} leases, {} requests repeated, {} jobs",
            self.world.books().len(),
            seen.load(Ordering::Relaxed),
            self.world.holders.leases(),
            lost.load(Ordering::Relaxed),
            self.jobs.ended()
        )
    }
}
