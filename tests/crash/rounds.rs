//! The proxy is killed at random moments under load and started again on the same captures, many times. In some rounds
//! the disk of captures and log is full. After each kill every promise of the proxy is verified.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rolltap_testing::{limit, sample};
use serde_json::Value;

use super::agent;
use super::ledger::State;
use super::proxy::{Launch, Place, Proxy};
use super::rng::{Chance, rounds_and_seed};
use super::shared_state::{Moment, World};
use super::small_disk::SmallDisk;
use super::upstream::Upstream;
use super::verify;

/// The number of concurrent agents, each with a trial.
const AGENTS: u64 = 64;
/// The maximum number of answers before a kill, so that a slow machine does as much between two kills as a fast one.
const ANSWERS: u64 = 100;
/// The longest wait for these answers.
const LOAD_SECONDS: u64 = 4;
/// The kill comes within this time after the answers or after the chosen moment.
const HIT: Duration = Duration::from_millis(20);
/// The percentage of rounds with a full disk.
const FULL_DISK_PER_CENT: u64 = 10;
const DISK_MIB: u32 = 512;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_proxy_is_killed() {
    let (rounds, seed) = rounds_and_seed(sample(10, 500));

    let dir = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(seed, Duration::from_millis(15)).await;
    let mut launch = Launch::new(dir.path(), &upstream.url);
    let disk = SmallDisk::mount(&dir.path().join("disk"), DISK_MIB);
    if let Some(disk) = &disk {
        launch.data = disk.within.join("data");
        launch.seen_data = disk.outside.join("data");
        launch.log = disk.outside.join("proxy.log");
        launch.entry = disk.entry();
    }
    let world = World::new(seed, upstream);
    let agents: Vec<_> =
        (0..AGENTS).map(|number| tokio::spawn(agent::live(Arc::clone(&world), number))).collect();
    let mut run =
        Run { launch, disk, world, chance: Chance::of(seed, u64::MAX), figures: Figures::default() };
    for round in 1..=rounds {
        let proxy = run.start().await;
        let every_trial = round % if rounds > 10 { 100 } else { 5 } == 0;
        run.verify(&proxy.place, every_trial).await;
        run.load_and_kill(proxy).await;
        assert!(agents.iter().all(|agent| !agent.is_finished()), "an agent gave up");
        if round % 10 == 0 {
            println!("round {round}: {}", run.figures.line(&run.world));
        }
    }
    agents.iter().for_each(tokio::task::JoinHandle::abort);
    let proxy = run.start().await;
    run.verify(&proxy.place, true).await;
    assert_eq!(proxy.stop().await, Some(0), "{}", run.launch.log_text());
    run.figures.was_worth_it(&run.world, rounds);
}

struct Run {
    launch: Launch,
    /// The disk of captures and log, or `None` if the system mounts no file system for the tester.
    disk: Option<SmallDisk>,
    world: Arc<World>,
    chance: Chance,
    figures: Figures,
}

/// The figures of a run.
#[derive(Default)]
struct Figures {
    kills: u64,
    slowest_start: Duration,
    partial: usize,
    unseen: usize,
    full_disks: u64,
}

impl Run {
    /// Starts a proxy. Sometimes a proxy is killed before it is ready, and another is started.
    async fn start(&mut self) -> Proxy {
        while self.chance.per_cent(20) {
            let mut child = self.launch.spawn();
            tokio::time::sleep(self.chance.below(Duration::from_millis(80))).await;
            child.kill().await.unwrap();
            self.figures.kills += 1;
        }
        let proxy = self.launch.start().await;
        self.figures.slowest_start = self.figures.slowest_start.max(proxy.started_in);
        proxy
    }

    async fn load_and_kill(&mut self, mut proxy: Proxy) {
        self.world.comes_up(&proxy.place);
        let answers = self.world.seen.load(Ordering::Relaxed) + self.chance.among(0..ANSWERS);
        let moment = match self.chance.among(0..8) {
            0 => Some(Moment::Opening),
            1 => Some(Moment::Sealing),
            2 => Some(Moment::Rewarding),
            3 => Some(Moment::Done),
            4 | 5 => Some(Moment::Answered),
            _ => None,
        };
        let hit = match moment {
            // An acknowledged record must be durable at once.
            Some(Moment::Done | Moment::Answered) => Duration::ZERO,
            _ => self.chance.below(HIT),
        };
        let load = async {
            while self.world.seen.load(Ordering::Relaxed) < answers {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            if let Some(moment) = moment {
                // The first notification may be an old one, and the second is new.
                let told = &self.world.moments[moment as usize];
                told.notified().await;
                told.notified().await;
            }
            if !hit.is_zero() {
                tokio::time::sleep(hit).await;
            }
        };
        let full = self.disk.as_ref().filter(|_| self.chance.per_cent(FULL_DISK_PER_CENT));
        if let Some(disk) = full {
            self.world.is_full.store(true, Ordering::Relaxed);
            disk.fill();
        }
        // No agent may reach that moment if the load is short.
        let _ = tokio::time::timeout(limit(LOAD_SECONDS), load).await;
        proxy.kill().await;
        if let Some(disk) = full {
            disk.free();
            self.figures.full_disks += 1;
        }
        self.figures.kills += 1;
        self.world.is_down().await;
        self.world.is_full.store(false, Ordering::Relaxed);
    }

    /// Panics with every broken promise, if there is one.
    async fn verify(&mut self, place: &Place, every_trial: bool) {
        let verdict = verify::trials(&self.world, &place.admin, &mut self.chance, every_trial).await;
        (self.figures.partial, self.figures.unseen) = (verdict.partial, verdict.unseen);
        let mut breaches = verdict.breaches;
        if every_trial {
            breaches.extend(self.strangers(place).await);
            let (code, said) = self.launch.check();
            if code != Some(0) && !self.world.books().is_empty() {
                breaches.push(format!("rolltap check ends with {code:?}: {said}"));
            }
        }
        let seed = self.world.seed;
        let log = self.launch.log_text();
        assert!(
            breaches.is_empty(),
            "CRASH_SEED={seed}\n{}\nthe log of the proxies:\n{log}",
            breaches.join("\n")
        );
    }

    /// Returns the trials that the proxy lists and that no agent opened.
    async fn strangers(&self, place: &Place) -> Vec<String> {
        let all = format!("{}/v1/trials?limit=1000000", place.admin);
        let listed = self.world.http.get(all).send().await.unwrap();
        let listed: Vec<Value> = listed.json().await.unwrap();
        let known: std::collections::HashSet<_> =
            self.world.books().iter().map(|book| book.page().trial_id.clone()).collect();
        let strangers = listed.iter().filter_map(|trial| trial["trial_id"].as_str());
        strangers.filter(|id| !known.contains(*id)).map(|id| format!("{id}: no agent opened it")).collect()
    }
}

impl Figures {
    fn line(&self, world: &World) -> String {
        let books = world.books();
        let sealed = books.iter().filter(|book| book.page().state == State::Sealed).count();
        format!(
            "{} kills ({} on a full disk), {} trials ({sealed} sealed), {} answers seen whole, {} requests cut off, \
             slowest start {:?}",
            self.kills,
            self.full_disks,
            books.len(),
            world.seen.load(Ordering::Relaxed),
            world.lost.load(Ordering::Relaxed),
            self.slowest_start,
        )
    }

    /// Panics if the run had no load or no kill hit anything, because such a run would prove nothing.
    fn was_worth_it(&self, world: &World, rounds: u64) {
        println!(
            "{}; {} broken off in the captures, {} whole that no agent saw",
            self.line(world),
            self.partial,
            self.unseen
        );
        assert!(world.seen.load(Ordering::Relaxed) > rounds * 5, "too few answers came");
        assert!(world.lost.load(Ordering::Relaxed) > rounds * 5, "the kills hit too little");
    }
}
