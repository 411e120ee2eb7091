//! What fails, and how.

use std::time::{Duration, Instant};

use rolltap_testing::Cut;

use super::super::super::rng::Chance;
use super::super::{SERVERS, nodes};
use super::{SIZE, Soak, jobs};

/// The longest time of a fault, which most are shorter than. Leases last five seconds.
const LONGEST: Duration = Duration::from_secs(8);
/// The time of some pauses of a node.
const LONG_PAUSE: Duration = Duration::from_secs(60);
/// The seconds by which clocks jump, back or forth.
const JUMPS: [i64; 4] = [-86_400, -60, 60, 86_400];
const CUTS: [Cut; 4] = [Cut::Silent, Cut::Requests, Cut::Answers, Cut::Refused];

/// A part that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    Node(usize),
    Server(usize),
    Storage,
    Worker(usize),
    Job,
}

/// How a part fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Killed,
    Paused,
    /// The network of the part fails.
    Cut(Cut),
    /// The wall clock is wrong by this many seconds.
    WrongClock(i64),
    DiskFull,
}

/// A fault that has not ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub(super) target: Target,
    pub(super) kind: Kind,
    pub(super) ends: Instant,
}

fn one_of<T: Copy>(chance: &mut Chance, all: &[T]) -> T {
    all[chance.among(0..all.len() as u64) as usize]
}

impl Soak {
    /// Chooses a part that works, and how it fails. Two nodes, two servers or the storage may be out at once; without two
    /// servers of three nothing is stored, and calls wait.
    async fn choose(&mut self) -> Option<(Target, Kind)> {
        let chance = &mut self.chance;
        let target = match chance.among(0..100) {
            0..45 => Target::Node(chance.among(0..SIZE.nodes as u64) as usize),
            45..70 => Target::Server(self.a_server().await),
            70..80 => Target::Storage,
            80..95 => Target::Worker(chance.among(0..jobs::WORKERS as u64) as usize),
            _ => Target::Job,
        };
        let is_like = |other: Target| std::mem::discriminant(&other) == std::mem::discriminant(&target);
        let out = self.faults.iter().filter(|fault| is_like(fault.target)).count();
        if out >= 2 || self.faults.iter().any(|fault| fault.target == target) {
            return None;
        }
        let chance = &mut self.chance;
        let cut = one_of(chance, &CUTS);
        let percent = chance.among(0..100);
        let kind = match (target, percent) {
            (Target::Job, _) | (Target::Node(_) | Target::Server(_), 0..30) => Kind::Killed,
            (Target::Worker(_), 0..50) => Kind::Killed,
            (Target::Node(_), 85..) => Kind::WrongClock(one_of(chance, &JUMPS)),
            (Target::Server(0), 75..) => Kind::DiskFull,
            (Target::Node(_) | Target::Server(_), 60..) | (Target::Storage, 40..) => Kind::Cut(cut),
            _ => Kind::Paused,
        };
        Some((target, kind))
    }

    /// Returns a random server, or half of the time the leader of the log of a shard.
    async fn a_server(&mut self) -> usize {
        let random = self.chance.among(0..SERVERS as u64) as usize;
        if self.chance.per_cent(50) {
            return random;
        }
        let shard = self.chance.among(0..SIZE.shards as u64);
        self.leader(shard).await.unwrap_or(random)
    }

    /// Begins one fault.
    pub(super) async fn begin_fault(&mut self) {
        loop {
            let Some((target, kind)) = self.choose().await else { continue };
            if self.begins(target, kind) {
                let longest = match target {
                    Target::Worker(_) => jobs::LONGEST,
                    Target::Node(_) if kind == Kind::Paused && self.chance.per_cent(5) => LONG_PAUSE,
                    _ => LONGEST,
                };
                let ends = Instant::now() + self.chance.below(longest);
                *self.hit.entry((target, kind)).or_default() += 1;
                println!("{:.1?} s: {target:?} {kind:?}", self.began.elapsed().as_secs_f64());
                return self.faults.push(Fault { target, kind, ends });
            }
        }
    }

    /// Lets a part fail. Returns false if it does not run.
    fn begins(&mut self, target: Target, kind: Kind) -> bool {
        match (target, kind) {
            (Target::Node(number), Kind::Killed) => return self.nodes.kill_at_once(number),
            (Target::Node(number), Kind::Paused) => return self.nodes.try_signal(number, "STOP"),
            (Target::Node(number), Kind::Cut(cut)) => self.network.cut(number, cut),
            (Target::Node(number), Kind::WrongClock(seconds)) => self.clocks[number].jump(seconds),
            (Target::Server(number), Kind::Killed) => self.servers.kill(number),
            (Target::Server(number), Kind::Paused) => nodes::send(self.servers.id(number), "STOP"),
            (Target::Server(number), Kind::Cut(cut)) => self.servers.cut(number, cut),
            (Target::Server(_), Kind::DiskFull) => self.disk.fill(),
            (Target::Storage, Kind::Paused) => nodes::send(self.storage.id().unwrap(), "STOP"),
            (Target::Storage, Kind::Cut(cut)) => self.network.cut_storage(cut),
            (Target::Worker(number), Kind::Killed) => self.jobs.kill_worker(number),
            (Target::Worker(number), _) => self.jobs.signal_worker(number, "STOP"),
            (Target::Job, _) => return self.jobs.kill_job(),
            other => panic!("{other:?} cannot fail"),
        }
        true
    }

    pub(super) fn end_fault(&mut self, Fault { target, kind, .. }: Fault) {
        match (target, kind) {
            // The node starts again with those that ended by themselves.
            (Target::Node(_), Kind::Killed) => {}
            (Target::Node(number), Kind::Paused) => drop(self.nodes.try_signal(number, "CONT")),
            (Target::Node(number), Kind::Cut(_)) => self.network.heal(number),
            (Target::Node(number), _) => self.clocks[number].jump(0),
            (Target::Server(number), Kind::Killed) => self.servers.restart_at_once(number),
            (Target::Server(number), Kind::Paused) => nodes::send(self.servers.id(number), "CONT"),
            (Target::Server(number), Kind::DiskFull) => {
                // NATS turns JetStream off when its disk is full, and on at its next start.
                self.disk.free();
                self.servers.kill(number);
                self.servers.restart_at_once(number);
            }
            (Target::Server(number), _) => self.servers.heal(number),
            (Target::Storage, Kind::Cut(_)) => self.network.heal_storage(),
            (Target::Storage, _) => nodes::send(self.storage.id().unwrap(), "CONT"),
            (Target::Worker(number), Kind::Killed) => self.jobs.start_worker(number),
            (Target::Worker(number), _) => self.jobs.signal_worker(number, "CONT"),
            (Target::Job, _) => self.jobs.resume(),
        }
    }
}
