//! Connections, nodes and logs of the tests.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use rolltap_cluster::lease::{self, Candidacy, HeldLease, LeaseView, Node};
use rolltap_cluster::log::{LogEntry, LogError, ShardLog};
use rolltap_cluster::objects::ObjectStorage;
use rolltap_cluster::publisher::Publisher;
use rolltap_cluster::{Cluster, ClusterSettings, Member};
use rolltap_testing::{NatsServers, limit};
use tokio::sync::watch;

pub(crate) fn settings(servers: &NatsServers, replicas: usize) -> ClusterSettings {
    settings_at(&servers.urls(), replicas)
}

pub(crate) fn settings_at(urls: &str, replicas: usize) -> ClusterSettings {
    ClusterSettings {
        servers: urls.split(',').map(|url| url.parse().unwrap()).collect(),
        name: "tests".parse().unwrap(),
        replicas,
        member: Member::Node { shards: None },
        credentials: None,
        ca_file: None,
    }
}

pub(crate) fn node(number: u128) -> Node {
    let id = uuid::Uuid::from_u128(number);
    Node { id, agent_url: format!("http://agents-{number}"), admin_url: format!("http://admin-{number}") }
}

pub(crate) async fn acquired(cluster: &Cluster, number: u128) -> HeldLease {
    acquired_with(cluster, number, None).await
}

pub(crate) async fn acquired_with(
    cluster: &Cluster,
    number: u128,
    storage: Option<&ObjectStorage>,
) -> HeldLease {
    let view = watch::channel(LeaseView::Unknown).0;
    lease::acquire(cluster, 0, &node(number), &Candidacy::default(), storage, &view).await
}

/// Claims the log. Returns the bytes of all segments, one after the other. Repeats that while NATS elects a leader, as a node
/// does.
pub(crate) async fn claimed(cluster: &Cluster, epoch: u64) -> (Publisher, Vec<u8>) {
    let deadline = Instant::now() + limit(60);
    loop {
        let mut bytes = Vec::new();
        let log = ShardLog::open(cluster, 0).await.unwrap();
        let claim = Publisher::claim::<Infallible>(log, epoch, |_, entry| {
            if let LogEntry::Append { bytes: more, .. } = entry {
                bytes.extend_from_slice(&more);
            }
            Ok(())
        });
        match claim.await {
            Ok(publisher) => return (publisher, bytes),
            Err(LogError::Cluster(_)) if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

pub(crate) async fn stored(publisher: &Publisher, number: u64) {
    let mut through = publisher.stored();
    let waiting = through.wait_for(|through| *through >= number);
    tokio::time::timeout(limit(60), waiting).await.expect("stored in time").unwrap();
}
