//! The proxy is killed at random moments under load and started again on the same captures, many times over. In some rounds
//! the disk that holds captures and log is full. After each time every promise that the proxy made is verified.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use rolltap_testing::{limit, sample};
use serde_json::Value;

use super::agent;
use super::ledger::{Book, State};
use super::proxy::{Launch, Place, Proxy};
use super::rng::Chance;
use super::shared_state::{Moment, World};
use super::small_disk::SmallDisk;
use super::upstream::Upstream;
use super::verify;

/// Agents at once, each with a trial.
const AGENTS: u64 = 64;
/// A kill comes after fewer answers than these, so that a slow machine gets as much done between two kills as a fast one.
const ANSWERS: u64 = 100;
/// It does not wait for longer.
const LOAD_SECONDS: u64 = 4;
/// After the answers, or the moment that it is to hit, it comes within this time.
const HIT: Duration = Duration::from_millis(20);
/// Of the rounds, how many have a full disk.
const FULL_DISK_PER_CENT: u64 = 10;
const DISK_MIB: u32 = 512;
/// Settled trials that are looked at again after each kill; after the last one all are.
const AGAIN: usize = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_proxy_is_killed() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let rounds = number("CRASH_ROUNDS").unwrap_or(sample(10, 500));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let seed = number("CRASH_SEED").unwrap_or_else(|| u64::from(now.subsec_nanos()));
    println!("{rounds} rounds with CRASH_SEED={seed}");

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
    let mut run = Run { launch, disk, world, chance: Chance::of(seed, u64::MAX), told: Told::default() };
    for round in 1..=rounds {
        let proxy = run.start().await;
        let every_trial = round % if rounds > 10 { 100 } else { 5 } == 0;
        run.verify(&proxy.place, every_trial).await;
        run.load_and_kill(proxy).await;
        assert!(agents.iter().all(|agent| !agent.is_finished()), "an agent gave up");
        if round % 10 == 0 {
            println!("round {round}: {}", run.told.line(&run.world));
        }
    }
    agents.iter().for_each(tokio::task::JoinHandle::abort);
    let proxy = run.start().await;
    run.verify(&proxy.place, true).await;
    assert_eq!(proxy.stop().await, Some(0), "{}", run.launch.log_text());
    run.told.was_worth_it(&run.world, rounds);
}

struct Run {
    launch: Launch,
    /// Where captures and log are; none where the system mounts no file system for the tester.
    disk: Option<SmallDisk>,
    world: Arc<World>,
    chance: Chance,
    told: Told,
}

/// What the figures of a run are.
#[derive(Default)]
struct Told {
    kills: u64,
    slowest_start: Duration,
    partial: usize,
    unseen: usize,
    full_disks: u64,
}

impl Run {
    /// Sometimes a proxy is killed before it is ready, and another is started.
    async fn start(&mut self) -> Proxy {
        while self.chance.per_cent(20) {
            let mut child = self.launch.spawn();
            tokio::time::sleep(self.chance.below(Duration::from_millis(80))).await;
            child.kill().await.unwrap();
            self.told.kills += 1;
        }
        let proxy = self.launch.start().await;
        self.told.slowest_start = self.told.slowest_start.max(proxy.started_in);
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
            // What was acknowledged must be safe at once.
            Some(Moment::Done | Moment::Answered) => Duration::ZERO,
            _ => self.chance.below(HIT),
        };
        let load = async {
            while self.world.seen.load(Ordering::Relaxed) < answers {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            if let Some(moment) = moment {
                // The first was told long ago; the second is now.
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
        // No agent comes to that moment if the load is short.
        let _ = tokio::time::timeout(limit(LOAD_SECONDS), load).await;
        proxy.kill().await;
        if let Some(disk) = full {
            disk.free();
            self.told.full_disks += 1;
        }
        self.told.kills += 1;
        self.world.is_down().await;
        self.world.is_full.store(false, Ordering::Relaxed);
    }

    /// Panics with every broken promise, if there is one.
    async fn verify(&mut self, place: &Place, every_trial: bool) {
        let mut breaches = self.world.complaints();
        (self.told.partial, self.told.unseen) = (0, 0);
        let (settled, live): (Vec<_>, Vec<_>) =
            self.world.books().into_iter().partition(|book| book.page().is_settled);
        let few =
            |chance: &mut Chance| settled.get(chance.among(0..settled.len().max(1) as u64) as usize).cloned();
        let again: Vec<Book> = match every_trial {
            true => settled.clone(),
            false => (0..AGAIN).filter_map(|_| few(&mut self.chance)).collect(),
        };
        for book in live.iter().chain(&again) {
            let verdict = verify::trial(&self.world, &place.admin, book).await;
            breaches.extend(verdict.breaches);
            self.told.unseen += verdict.unseen;
            self.told.partial += verdict.partial;
            if book.page().is_settled {
                self.world.upstream.forget(book.page().number);
            }
        }
        if every_trial {
            breaches.extend(self.strangers(place).await);
            let (code, said) = self.launch.check();
            if code != Some(0) && !self.world.books().is_empty() {
                breaches.push(format!("rolltap check ends with {code:?}: {said}"));
            }
        }
        let seed = self.world.seed;
        let log = self.launch.log_text();
        assert!(breaches.is_empty(), "CRASH_SEED={seed}\n{}\nthe proxies said:\n{log}", breaches.join("\n"));
    }

    /// Trials that are listed and that nobody opened.
    async fn strangers(&self, place: &Place) -> Vec<String> {
        let all = format!("{}/v1/trials?limit=1000000", place.admin);
        let listed = self.world.http.get(all).send().await.unwrap();
        let listed: Vec<Value> = listed.json().await.unwrap();
        let known: std::collections::HashSet<_> =
            self.world.books().iter().map(|book| book.page().trial_id.clone()).collect();
        let strangers = listed.iter().filter_map(|trial| trial["trial_id"].as_str());
        strangers.filter(|id| !known.contains(*id)).map(|id| format!("{id}: nobody opened it")).collect()
    }
}

impl Told {
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

    /// A run without load, or whose kills hit nothing, would show nothing.
    fn was_worth_it(&self, world: &World, rounds: u64) {
        println!(
            "{}; {} broken off in the captures, {} whole that nobody saw",
            self.line(world),
            self.partial,
            self.unseen
        );
        assert!(world.seen.load(Ordering::Relaxed) > rounds * 5, "too few answers came");
        assert!(world.lost.load(Ordering::Relaxed) > rounds * 5, "the kills hit too little");
    }
}
