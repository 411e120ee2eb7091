//! Leases and logs on real NATS servers.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use rolltap_cluster::lease::{self, HeldLease, LeaseState, LeaseView, Node};
use rolltap_cluster::log::{LogEntry, LogError, ShardLog};
use rolltap_cluster::publisher::{Publisher, Replicated};
use rolltap_cluster::{Cluster, ClusterError, ClusterSettings, connect};
use rolltap_testing::{NatsServers, limit};
use tokio::sync::watch;

fn settings(servers: &NatsServers, replicas: usize) -> ClusterSettings {
    ClusterSettings {
        servers: servers.urls().split(',').map(|url| url.parse().unwrap()).collect(),
        name: "tests".parse().unwrap(),
        replicas,
        credentials: None,
        ca_file: None,
    }
}

fn node(number: u128) -> Node {
    let id = uuid::Uuid::from_u128(number);
    Node { id, agent_url: format!("http://agents-{number}"), admin_url: format!("http://admin-{number}") }
}

async fn acquired(cluster: &Cluster, number: u128) -> HeldLease {
    lease::acquire(cluster, 0, &node(number), &watch::channel(LeaseView::Unknown).0).await
}

/// Claims the log. Returns the bytes of all segments, one after the other.
async fn claimed(cluster: &Cluster, epoch: u64) -> (Publisher, Vec<u8>) {
    let mut bytes = Vec::new();
    let log = ShardLog::open(cluster, 0).await.unwrap();
    let publisher = log.claim::<Infallible>(epoch, |entry| {
        if let LogEntry::Append { bytes: more, .. } = entry {
            bytes.extend_from_slice(&more);
        }
        Ok(())
    });
    (publisher.await.unwrap(), bytes)
}

async fn stored(publisher: &Publisher, number: u64) {
    let mut state = publisher.state();
    let waiting = state.wait_for(|state| state.through() >= number);
    tokio::time::timeout(limit(60), waiting).await.expect("stored in time").unwrap();
}

#[tokio::test]
#[ignore = "needs NATS: run ./scripts/test"]
async fn who_holds_a_lease_keeps_it_and_another_takes_it_when_it_expires_or_is_released() {
    let servers = NatsServers::start(1);
    let (one, two) =
        (connect(&settings(&servers, 1)).await.unwrap(), connect(&settings(&servers, 1)).await.unwrap());
    assert_eq!(one.id(), two.id());
    let first = acquired(&one, 1).await;
    assert_eq!(first.epoch(), 1);
    let (view, mut seen) = watch::channel(LeaseView::Unknown);
    let waiting = tokio::spawn(async move { lease::acquire(&two, 0, &node(2), &view).await });
    let is_first =
        |view: &LeaseView| matches!(view, LeaseView::Seen(Some(record)) if record.holder == Some(node(1)));
    seen.wait_for(is_first).await.unwrap();
    tokio::time::sleep(lease::TTL + Duration::from_secs(1)).await;
    assert!(!waiting.is_finished(), "a lease that is renewed does not expire");
    let began = Instant::now();
    first.release().await;
    let second = waiting.await.unwrap();
    assert_eq!(second.epoch(), 2);
    assert!(began.elapsed() < lease::TTL, "a released lease needs no wait");

    // A node that no longer renews, but still runs.
    let state = second.state();
    drop(second);
    let began = Instant::now();
    let third = acquired(&one, 3).await;
    assert_eq!(third.epoch(), 3);
    assert!(began.elapsed() >= lease::TTL - Duration::from_secs(1), "{:?}", began.elapsed());
    drop(state);
}

#[tokio::test]
#[ignore = "needs NATS: run ./scripts/test"]
async fn a_holder_without_nats_stops_in_time_and_continues_when_nobody_took_the_lease() {
    let mut servers = NatsServers::start(1);
    let cluster = connect(&settings(&servers, 1)).await.unwrap();
    let held = acquired(&cluster, 1).await;
    let mut state = held.state();
    servers.kill(0);
    let began = Instant::now();
    state.wait_for(|state| *state == LeaseState::Unconfirmed).await.unwrap();
    assert!(began.elapsed() < lease::TTL, "before another node may take it");
    servers.restart(0);
    state.wait_for(|state| *state == LeaseState::Held).await.unwrap();
    assert_eq!(held.epoch(), 1);
}

#[tokio::test]
#[ignore = "needs NATS: run ./scripts/test"]
async fn a_log_keeps_its_order_on_three_servers_while_each_of_them_is_killed() {
    let mut servers = NatsServers::start(3);
    let cluster = connect(&settings(&servers, 3)).await.unwrap();
    let (mut publisher, found) = claimed(&cluster, 1).await;
    assert!(found.is_empty());
    let mut expected = Vec::new();
    let mut number = 0;
    for round in 0..6_u32 {
        let server = round as usize % 3;
        servers.kill(server);
        for message in 0..50_u32 {
            let bytes = format!("{round}/{message};").repeat(20).into_bytes();
            number = publisher.append(1, expected.len() as u64, &bytes);
            expected.extend(bytes);
        }
        stored(&publisher, number).await;
        servers.restart(server);
    }
    // A message larger than the server accepts is divided.
    let large = vec![7; 3 << 20];
    number = publisher.append(1, expected.len() as u64, &large);
    expected.extend(large);
    stored(&publisher, number).await;
    drop(publisher);
    let (_, found) = claimed(&cluster, 2).await;
    assert!(found == expected, "{} of {} bytes", found.len(), expected.len());
}

#[tokio::test]
#[ignore = "needs NATS: run ./scripts/test"]
async fn an_earlier_writer_stores_nothing_after_the_next_one_has_claimed_the_log() {
    let servers = NatsServers::start(1);
    let (one, two) =
        (connect(&settings(&servers, 1)).await.unwrap(), connect(&settings(&servers, 1)).await.unwrap());
    let (mut first, _) = claimed(&one, 1).await;
    let number = first.append(1, 0, b"first");
    stored(&first, number).await;
    let (mut second, found) = claimed(&two, 2).await;
    assert_eq!(found, b"first");
    let number = second.append(1, 5, b" second");
    first.append(1, 5, b" late");
    let mut state = first.state();
    state.wait_for(|state| matches!(state, Replicated::Fenced { through: 1 })).await.unwrap();
    stored(&second, number).await;
    let (_, found) = claimed(&one, 3).await;
    assert_eq!(found, b"first second");
}

#[tokio::test]
#[ignore = "needs NATS: run ./scripts/test"]
async fn a_log_that_cannot_be_written_fails_and_continues_later() {
    let mut servers = NatsServers::start(1);
    let cluster = connect(&settings(&servers, 1)).await.unwrap();
    let (mut publisher, _) = claimed(&cluster, 1).await;
    servers.kill(0);
    let number = publisher.append(1, 0, b"waits");
    let mut state = publisher.state();
    state.wait_for(|state| matches!(state, Replicated::Failing { through: 0, .. })).await.unwrap();
    servers.restart(0);
    stored(&publisher, number).await;
    assert_eq!(*publisher.state().borrow(), Replicated::Through(number));
}

#[tokio::test]
#[ignore = "needs NATS: run ./scripts/test"]
async fn what_is_foreign_or_impossible_is_an_error_with_its_remedy() {
    let unreachable = ClusterSettings {
        servers: vec!["nats://user:secret@127.0.0.1:1".parse().unwrap()],
        name: "tests".parse().unwrap(),
        replicas: 1,
        credentials: None,
        ca_file: None,
    };
    let error = connect(&unreachable).await.unwrap_err().to_string();
    assert!(error.contains("cannot connect to NATS at 127.0.0.1:1") && !error.contains("secret"), "{error}");

    let servers = NatsServers::start(1);
    let error = connect(&settings(&servers, 3)).await.unwrap_err().to_string();
    assert!(error.contains("--cluster-replicas 1"), "{error}");

    let cluster = connect(&settings(&servers, 1)).await.unwrap();
    let client = async_nats::connect(servers.urls()).await.unwrap();
    let log = ShardLog::open(&cluster, 0).await.unwrap();
    let stream = async_nats::jetstream::new(client);
    stream.publish("rolltap.tests.shard.0", "something else".into()).await.unwrap().await.unwrap();
    let error = log.claim::<Infallible>(1, |_| Ok(())).await.unwrap_err();
    assert!(matches!(error, LogError::Foreign { sequence: 1, .. }), "{error}");

    let bucket = stream.get_key_value("rolltap-tests").await.unwrap();
    bucket
        .put("cluster", r#"{"format": 2, "id": "0199a000-0000-7000-8000-000000000000", "shards": 1}"#.into())
        .await
        .unwrap();
    let error = connect(&settings(&servers, 1)).await.unwrap_err();
    assert!(matches!(error, ClusterError::Foreign { .. }), "{error}");
}
