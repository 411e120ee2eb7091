//! The users of `deploy/nats/accounts.conf`: each role does its whole work, and what another role may do is refused.

use async_nats::jetstream::consumer::push;
use async_nats::jetstream::{self, Context, stream};
use async_nats::{Client, ConnectOptions};
use rolltap_cluster::objects::{Content, Sha256};
use rolltap_cluster::work::{
    ClaimState, Heartbeat, JobMonitor, TrialKey, TrialState, WorkKind, WorkQueue, WorkerId, WorkerRecord,
};
use rolltap_cluster::{Cluster, ClusterSettings, connect, connect_to_existing};
use rolltap_testing::{NatsServers, NatsSetup, TestAuthority, limit};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::harness::{acquired, claimed, settings_at, stored};

const JOB: Uuid = Uuid::from_u128(9);
const LOG: &str = "rolltap-rolltap-shard-0";
const LEASES: &str = "rolltap-rolltap";

fn servers() -> NatsServers {
    servers_with(&[])
}

fn servers_with(more: &[&str]) -> NatsServers {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/nats/accounts.conf");
    let passwords = [
        ("NATS_NODE_PASSWORD", "of-node"),
        ("NATS_COORDINATOR_PASSWORD", "of-coordinator"),
        ("NATS_WORKER_PASSWORD", "of-worker"),
    ];
    let arguments = [&["-c", file], more].concat();
    NatsServers::start_as(&NatsSetup { arguments: &arguments, variables: &passwords, ..NatsSetup::of(1) })
}

fn settings_of(servers: &NatsServers, role: &str) -> ClusterSettings {
    let urls = servers.urls_of(role, &format!("of-{role}"));
    ClusterSettings { name: "rolltap".parse().unwrap(), ..settings_at(&urls, 1) }
}

async fn cluster_of(servers: &NatsServers, role: &str) -> Cluster {
    connect(&settings_of(servers, role)).await.unwrap()
}

fn kind() -> WorkKind {
    "local".parse().unwrap()
}

/// A client with the user of a role, and what the server refuses it.
struct Intruder {
    client: Client,
    context: Context,
    refusals: mpsc::UnboundedReceiver<String>,
}

impl Intruder {
    async fn of(servers: &NatsServers, role: &str) -> Self {
        let (sender, refusals) = mpsc::unbounded_channel();
        let options = ConnectOptions::new().event_callback(move |event| {
            let _ = sender.send(event.to_string());
            async {}
        });
        let options = options.user_and_password(role.to_owned(), format!("of-{role}"));
        let client = options.connect(servers.urls()).await.unwrap();
        let context = jetstream::new(client.clone());
        Self { client, context, refusals }
    }

    /// Publishes, and waits until the server has refused it.
    async fn cannot_publish(&mut self, subject: &str, payload: &str) {
        let reply = self.client.new_inbox();
        self.client.publish_with_reply(subject.to_owned(), reply, payload.to_owned().into()).await.unwrap();
        self.is_refused(&format!("Permissions Violation for Publish to \"{subject}\"")).await;
    }

    async fn cannot_subscribe(&mut self, subject: &str) {
        let _subscriber = self.client.subscribe(subject.to_owned()).await.unwrap();
        self.is_refused(&format!("Permissions Violation for Subscription to \"{subject}\"")).await;
    }

    async fn is_refused(&mut self, expected: &str) {
        let wait = async {
            while let Some(event) = self.refusals.recv().await {
                if event.contains(expected) {
                    return;
                }
            }
        };
        tokio::time::timeout(limit(30), wait).await.unwrap_or_else(|_| panic!("not refused: {expected}"));
    }
}

#[tokio::test]
#[ignore = "needs NATS: run ./scripts/test"]
async fn each_role_does_its_whole_work_with_its_own_user() {
    let servers = servers();
    // The parts of a cluster start in any order: the worker is first.
    let worker_settings = settings_of(&servers, "worker");
    let waiting = tokio::spawn(async move { connect_to_existing(&worker_settings).await.unwrap() });

    let node = cluster_of(&servers, "node").await;
    let lease = acquired(&node, 1).await;
    let (mut publisher, found) = claimed(&node, lease.epoch()).await;
    assert!(found.is_empty());
    let number = publisher.append(1, 0, b"captured");
    stored(&publisher, number).await;
    let sequence = publisher.mark().await.unwrap();
    lease.release().await;
    let next = cluster_of(&servers, "node").await;
    let lease = acquired(&next, 2).await;
    let (publisher, found) = claimed(&next, lease.epoch()).await;
    assert_eq!(found, b"captured");
    publisher.trimmer().trim(sequence).await.unwrap();

    let coordinator = cluster_of(&servers, "coordinator").await;
    let queue = WorkQueue::open(&coordinator, &kind()).await.unwrap();
    let monitor = JobMonitor::start(&queue, JOB);
    let mut watch = monitor.watch("a.b").await.unwrap();
    queue.offer(&kind(), &monitor.key("a.b"), "offer".into()).await.unwrap();

    let worker = tokio::time::timeout(limit(60), waiting).await.unwrap().unwrap();
    let (work, id) = (WorkQueue::wait(&worker).await, WorkerId::new());
    let kinds = vec![kind()];
    let record = WorkerRecord { name: "worker".to_owned(), kinds, slots: 2, running: 0, draining: false };
    let heartbeat = Heartbeat::start(&work, id, record).await.unwrap();
    assert!(
        work.offers(&"docker".parse().unwrap()).await.unwrap().is_none(),
        "no coordinator has such trials"
    );
    let offers = work.offers(&kind()).await.unwrap().unwrap();
    let first = offers.request(1).await.unwrap().next().await.unwrap().unwrap();
    first.hand_back().await;
    let offer = offers.request(1).await.unwrap().next().await.unwrap().unwrap();
    let mut claim = Box::pin(offer.claim(monitor.key("a.b"), id, "worker")).await.unwrap().unwrap();
    assert_eq!(claim.look().await.unwrap(), ClaimState::Running);
    assert!(matches!(monitor.stop("a.b").await.unwrap(), TrialState::Stopping { .. }));
    let folder = Content { sha256: Sha256::of(b""), bytes: 0 };
    assert!(claim.end(&TrialState::Ended { name: "worker".to_owned(), folder }).await.unwrap());
    let ended = async {
        while !watch.state().is_some_and(|state| state.is_final()) {
            watch.changed().await;
        }
        while monitor.workers().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(limit(60), ended).await.unwrap();
    queue.forget(&TrialKey { job: JOB, trial: "a.b".to_owned() }).await.unwrap();
    heartbeat.leave().await;
}

#[tokio::test]
#[ignore = "needs NATS: run ./scripts/test"]
async fn workers_and_coordinators_reach_neither_captures_nor_leases() {
    let servers = servers();
    let node = cluster_of(&servers, "node").await;
    let lease = acquired(&node, 1).await;
    let (mut publisher, _) = claimed(&node, lease.epoch()).await;
    let number = publisher.append(1, 0, b"captured");
    stored(&publisher, number).await;
    let coordinator = cluster_of(&servers, "coordinator").await;
    WorkQueue::open(&coordinator, &kind()).await.unwrap();

    for role in ["worker", "coordinator"] {
        let mut intruder = Intruder::of(&servers, role).await;
        let direct = r#"{"stream_name": "rolltap-rolltap-shard-0", "config": {"ack_policy": "none"}}"#;
        for (subject, payload) in [
            (format!("$JS.API.STREAM.INFO.{LOG}"), ""),
            (format!("$JS.API.STREAM.MSG.GET.{LOG}"), r#"{"seq": 1}"#),
            (format!("$JS.API.DIRECT.GET.{LOG}"), r#"{"seq": 1}"#),
            (format!("$JS.API.CONSUMER.CREATE.{LOG}"), direct),
            (format!("$JS.API.CONSUMER.CREATE.{LOG}.reader"), direct),
            (format!("$JS.API.CONSUMER.DURABLE.CREATE.{LOG}.reader"), direct),
            (format!("$JS.API.CONSUMER.MSG.NEXT.{LOG}.reader"), "1"),
            (format!("$JS.API.STREAM.PURGE.{LOG}"), ""),
            (format!("$JS.API.STREAM.DELETE.{LOG}"), ""),
            (format!("$JS.API.STREAM.UPDATE.{LOG}"), "{}"),
            (format!("$JS.API.STREAM.SNAPSHOT.{LOG}"), "{}"),
            ("$JS.API.STREAM.NAMES".to_owned(), ""),
            ("$JS.API.STREAM.LIST".to_owned(), ""),
            ("rolltap.rolltap.shard.0".to_owned(), "forged"),
            (format!("$KV.{LEASES}.shard.0"), "{}"),
            (format!("$JS.API.DIRECT.GET.KV_{LEASES}.$KV.{LEASES}.shard.0"), ""),
            (format!("$JS.API.DIRECT.GET.KV_{LEASES}"), r#"{"last_by_subj": "$KV.rolltap-rolltap.shard.0"}"#),
            (format!("$JS.API.STREAM.MSG.GET.KV_{LEASES}"), r#"{"seq": 1}"#),
            (format!("$JS.API.CONSUMER.CREATE.KV_{LEASES}"), "{}"),
            (format!("$JS.API.STREAM.PURGE.KV_{LEASES}"), ""),
            ("$JS.API.STREAM.CREATE.other".to_owned(), r#"{"name": "other", "subjects": ["rolltap.>"]}"#),
            ("$KV.another.key".to_owned(), "x"),
            ("$JS.API.STREAM.INFO.KV_another".to_owned(), ""),
        ] {
            intruder.cannot_publish(&subject, payload).await;
        }
        for subject in ["rolltap.rolltap.shard.0", ">", "$KV.>", "$JS.API.>"] {
            intruder.cannot_subscribe(subject).await;
        }
    }
    // A worker cannot change the queue or the record either.
    let mut worker = Intruder::of(&servers, "worker").await;
    for subject in [
        "$KV.rolltap-rolltap.cluster",
        "rolltap.rolltap.queue.local",
        "$JS.API.STREAM.CREATE.rolltap-rolltap-queue",
        "$JS.API.STREAM.PURGE.rolltap-rolltap-queue",
        "$JS.API.STREAM.MSG.DELETE.rolltap-rolltap-queue",
        "$JS.API.CONSUMER.CREATE.rolltap-rolltap-queue.local.rolltap.rolltap.queue.local",
        "$JS.API.CONSUMER.DELETE.rolltap-rolltap-queue.local",
        "$JS.API.STREAM.PURGE.KV_rolltap-rolltap-work",
        "$JS.API.CONSUMER.CREATE.KV_rolltap-rolltap-work",
    ] {
        worker.cannot_publish(subject, "{}").await;
    }
    let number = publisher.append(1, 8, b" on");
    stored(&publisher, number).await;
    let (_, found) = claimed(&node, lease.epoch() + 1).await;
    assert_eq!(found, b"captured on");
}

/// JetStream answers to any subject that a request names, and a consumer delivers to any. Only the accounts prevent that
/// these messages reach a log.
#[tokio::test]
#[ignore = "needs NATS: run ./scripts/test"]
async fn answers_that_are_sent_to_a_log_stay_in_the_account_of_the_asker() {
    let servers = servers();
    let node = cluster_of(&servers, "node").await;
    let (mut publisher, _) = claimed(&node, 1).await;
    let coordinator = cluster_of(&servers, "coordinator").await;
    let queue = WorkQueue::open(&coordinator, &kind()).await.unwrap();
    let key = TrialKey { job: JOB, trial: "one".to_owned() };
    queue.offer(&kind(), &key, "offer".into()).await.unwrap();

    let worker = Intruder::of(&servers, "worker").await;
    let ask = "$JS.API.STREAM.INFO.rolltap-rolltap-queue";
    worker.client.publish_with_reply(ask, "rolltap.rolltap.shard.0", "".into()).await.unwrap();
    // The server has answered the first request when it answers the second one.
    worker.context.get_stream("rolltap-rolltap-queue").await.unwrap();

    let coordinator = Intruder::of(&servers, "coordinator").await;
    let states = coordinator.context.get_stream("KV_rolltap-rolltap-work").await.unwrap();
    let deliver_subject = "rolltap.rolltap.shard.0".to_owned();
    let mut pushing =
        states.create_consumer(push::Config { deliver_subject, ..push::Config::default() }).await.unwrap();
    assert!(!pushing.info().await.unwrap().push_bound, "the subscription of the log is in another account");
    // A stream that copies the log finds none in its account.
    let source = stream::Source { name: LOG.to_owned(), ..stream::Source::default() };
    let copy = stream::Config {
        name: "rolltap-rolltap-queue".to_owned(),
        sources: Some(vec![source]),
        ..stream::Config::default()
    };
    coordinator.context.create_stream(copy).await.unwrap_err();

    let number = publisher.append(1, 0, b"alone");
    stored(&publisher, number).await;
    let (_, found) = claimed(&node, 2).await;
    assert_eq!(found, b"alone");
}

#[tokio::test]
#[ignore = "needs NATS: run ./scripts/test"]
async fn a_missing_permission_and_a_wrong_password_are_named() {
    let servers = servers();
    let error = connect(&settings_of(&servers, "worker")).await.unwrap_err().to_string();
    // The client asks for the limits of the account before it creates a bucket.
    let expected = "Permissions Violation for Publish to \"$JS.API.INFO\"";
    assert!(error.contains(expected) && error.contains("accounts.conf"), "{error}");
    for urls in [servers.urls(), servers.urls_of("worker", "wrong")] {
        let error = connect(&settings_at(&urls, 1)).await.unwrap_err().to_string();
        assert!(error.contains("authorization violation"), "{error}");
    }
}

#[tokio::test]
#[ignore = "needs NATS: run ./scripts/test"]
async fn nats_with_tls_is_trusted_by_its_authority_alone() {
    let authority = TestAuthority::default();
    let [certificate, key] = authority.certificate("127.0.0.1").files();
    let [certificate, key] = [&certificate, &key].map(|file| file.path().to_str().unwrap());
    let servers = servers_with(&["--tls", "--tlscert", certificate, "--tlskey", key]);
    let urls = servers.urls_of("node", "of-node").replace("nats://", "tls://");
    let settings = ClusterSettings { name: "rolltap".parse().unwrap(), ..settings_at(&urls, 1) };
    connect(&settings).await.unwrap_err();
    let ca_file = authority.file();
    let trusting = ClusterSettings { ca_file: Some(ca_file.path().to_owned()), ..settings };
    connect(&trusting).await.unwrap();
}
