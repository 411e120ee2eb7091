//! The queue of trials: claims, silent workers, stops.

use std::time::Duration;

use rolltap_cluster::objects::{Content, Sha256};
use rolltap_cluster::work::{
    Claim, ClaimState, Heartbeat, JobMonitor, Offer, TrialKey, TrialState, TrialWatch, WorkKind, WorkQueue,
    WorkerId, WorkerRecord,
};
use rolltap_cluster::{Cluster, connect};
use rolltap_testing::{NatsServers, limit};
use uuid::Uuid;

use super::harness::settings;

const JOB: Uuid = Uuid::from_u128(9);

fn kind() -> WorkKind {
    "local".parse().unwrap()
}

async fn cluster(servers: &NatsServers) -> Cluster {
    connect(&settings(servers, 1)).await.unwrap()
}

struct Worker {
    queue: WorkQueue,
    id: WorkerId,
    heartbeat: Heartbeat,
}

impl Worker {
    async fn start(cluster: &Cluster) -> Self {
        let (queue, id) = (WorkQueue::wait(cluster).await, WorkerId::new());
        let record = WorkerRecord {
            name: "worker".to_owned(),
            kinds: vec![kind()],
            slots: 2,
            running: 0,
            draining: false,
        };
        let heartbeat = Heartbeat::start(&queue, id, record).await.unwrap();
        Self { queue, id, heartbeat }
    }

    /// Takes the offers that are in the queue.
    async fn take(&self, most: usize) -> Vec<Offer> {
        let mut requested = self.queue.offers(&kind()).await.unwrap().unwrap().request(most).await.unwrap();
        let mut taken = Vec::new();
        while let Some(offer) = requested.next().await.unwrap() {
            taken.push(offer);
        }
        taken
    }

    async fn claim(&self, offer: Offer) -> Option<Claim> {
        let trial = String::from_utf8(offer.content().to_vec()).unwrap();
        assert_eq!(offer.key().unwrap().job, JOB);
        Box::pin(offer.claim(TrialKey { job: JOB, trial }, self.id, "worker")).await.unwrap()
    }

    async fn claim_one(&self) -> Claim {
        let offer = self.take(1).await.pop().expect("an offer");
        self.claim(offer).await.expect("a claim")
    }
}

async fn offer(monitor: &JobMonitor, trial: &str) -> TrialWatch {
    let watch = monitor.watch(trial).await.unwrap();
    monitor.queue().offer(&kind(), &monitor.key(trial), trial.to_owned().into()).await.unwrap();
    watch
}

async fn becomes(watch: &mut TrialWatch, is_meant: impl Fn(&TrialState) -> bool) -> TrialState {
    let wait = async {
        let mut state = watch.state();
        while !state.as_ref().is_some_and(&is_meant) {
            state = watch.changed().await;
        }
        state.unwrap()
    };
    tokio::time::timeout(limit(60), wait).await.expect("a state in time")
}

fn ended() -> TrialState {
    TrialState::Ended { name: "worker".to_owned(), folder: Content { sha256: Sha256::of(b""), bytes: 0 } }
}

#[tokio::test]
#[ignore = "needs NATS: run ./scripts/test"]
async fn a_trial_is_run_by_one_worker_and_its_end_is_seen() {
    let servers = NatsServers::start(1);
    let cluster = cluster(&servers).await;
    let queue = WorkQueue::open(&cluster, &kind()).await.unwrap();
    let monitor = JobMonitor::start(&queue, JOB);
    let mut watch = offer(&monitor, "a..b").await;
    // A coordinator that starts again may offer a trial twice.
    let docker = "docker".parse().unwrap();
    let other = WorkQueue::open(&cluster, &docker).await.unwrap();
    other.offer(&docker, &monitor.key("a..b"), "a..b".into()).await.unwrap();
    assert_eq!(watch.state(), None);

    let (one, two) = (Worker::start(&cluster).await, Worker::start(&cluster).await);
    let mut claim = one.claim_one().await;
    becomes(&mut watch, |state| matches!(state, TrialState::Running { .. })).await;
    assert!(two.take(1).await.is_empty(), "a claimed trial is no longer in the queue");
    one.queue.offer(&kind(), &TrialKey { job: JOB, trial: "copy".to_owned() }, "a..b".into()).await.unwrap();
    let copy = two.take(1).await.pop().unwrap();
    assert!(two.claim(copy).await.is_none(), "the trial is claimed");
    assert_eq!(claim.look().await.unwrap(), ClaimState::Running);
    assert!(claim.end(&ended()).await.unwrap());
    assert_eq!(becomes(&mut watch, TrialState::is_final).await, ended());
    assert!(claim.end(&ended()).await.unwrap(), "a repetition is harmless");
    queue.forget(claim.key()).await.unwrap();

    // A monitor that starts later finds states of before.
    let mut claimed = offer(&monitor, "c").await;
    let claim = one.claim_one().await;
    becomes(&mut claimed, |state| matches!(state, TrialState::Running { .. })).await;
    let later = JobMonitor::start(&queue, JOB);
    let state = later.watch("c").await.unwrap().state();
    assert!(matches!(state, Some(TrialState::Running { .. })), "{state:?}");
    drop(claim);
    one.heartbeat.leave().await;
}

#[tokio::test]
#[ignore = "needs NATS: run ./scripts/test"]
async fn a_trial_of_a_silent_worker_is_lost_and_what_the_worker_does_later_has_no_effect() {
    let mut servers = NatsServers::start(1);
    let cluster = cluster(&servers).await;
    let queue = WorkQueue::open(&cluster, &kind()).await.unwrap();
    let monitor = JobMonitor::start(&queue, JOB);
    let (mut one, mut two) = (offer(&monitor, "one").await, offer(&monitor, "two").await);
    let (silent, alive) = (Worker::start(&cluster).await, Worker::start(&cluster).await);
    let mut lost = silent.claim_one().await;
    let mut kept = alive.claim_one().await;
    let is_first = lost.key().trial == "one";
    let (of_silent, of_alive) = if is_first { (&mut one, &mut two) } else { (&mut two, &mut one) };
    let seen = async {
        while monitor.workers().len() < 2 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(limit(60), seen).await.unwrap();
    // NATS is away for all of them, for longer than the silence of a dead worker.
    servers.kill(0);
    tokio::time::sleep(Duration::from_secs(25)).await;
    servers.restart(0);
    assert_eq!(lost.look().await.unwrap(), ClaimState::Running, "nobody is blamed for NATS");

    drop(silent.heartbeat);
    let state = becomes(of_silent, TrialState::is_final).await;
    assert!(matches!(&state, TrialState::Lost { name, .. } if name == "worker"), "{state:?}");
    assert_eq!(lost.look().await.unwrap(), ClaimState::Gone);
    assert!(!lost.end(&ended()).await.unwrap());
    assert_eq!(of_silent.state(), Some(state));
    assert!(matches!(of_alive.state(), Some(TrialState::Running { .. })));
    assert!(kept.end(&ended()).await.unwrap());
    assert_eq!(becomes(of_alive, TrialState::is_final).await, ended());
}

#[tokio::test]
#[ignore = "needs NATS: run ./scripts/test"]
async fn a_stop_reaches_the_worker_or_withdraws_the_trial() {
    let servers = NatsServers::start(1);
    let cluster = cluster(&servers).await;
    let queue = WorkQueue::open(&cluster, &kind()).await.unwrap();
    let monitor = JobMonitor::start(&queue, JOB);
    let mut running = offer(&monitor, "running").await;
    let worker = Worker::start(&cluster).await;
    let mut claim = worker.claim_one().await;
    let queued = offer(&monitor, "queued").await;
    assert!(matches!(monitor.stop("running").await.unwrap(), TrialState::Stopping { .. }));
    assert_eq!(monitor.stop("queued").await.unwrap(), TrialState::Withdrawn);
    assert_eq!(claim.look().await.unwrap(), ClaimState::Stopping);
    assert!(claim.end(&ended()).await.unwrap());
    assert_eq!(becomes(&mut running, TrialState::is_final).await, ended());
    let withdrawn = worker.take(1).await.pop().unwrap();
    assert!(worker.claim(withdrawn).await.is_none());
    // An offer that is handed back comes again, and so does one that a dead worker took and did not claim.
    let _watch = offer(&monitor, "again").await;
    worker.take(1).await.pop().unwrap().hand_back().await;
    let again = worker.take(1).await.pop().expect("the offer comes again");
    assert!(worker.claim(again).await.is_some());
    assert!(matches!(monitor.give_up("again", "test").await.unwrap(), TrialState::Lost { .. }));
    drop(queued);
}
