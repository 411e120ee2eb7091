//! The numbers of policy versions.

use rolltap_cluster::versions::{NamedBy, VersionNumbers};
use rolltap_cluster::{ClusterError, ClusterSettings, Member, connect};
use rolltap_testing::NatsServers;

use super::harness::settings;

#[tokio::test]
#[ignore = "needs NATS: run ./scripts/test"]
async fn a_label_has_one_number_whoever_asks_first() {
    let servers = NatsServers::start(1);
    let mut shards = Vec::new();
    for _ in 0..3 {
        shards.push(VersionNumbers::new(connect(&settings(&servers, 1)).await.unwrap()));
    }
    assert_eq!(shards[0].number("default", NamedBy::Replica).await.unwrap(), 0);
    // Each shard sees the labels in another order.
    let labels = ["a", "b", "c", "d", "e"];
    let number_all = |shard: usize| {
        let numbers = shards[shard].clone();
        async move {
            let mut found = [0; 5];
            for step in 0..labels.len() {
                let place = (step + 2 * shard) % labels.len();
                found[place] = numbers.number(labels[place], NamedBy::Replica).await.unwrap();
            }
            found
        }
    };
    let (one, two, three) = tokio::join!(number_all(0), number_all(1), number_all(2));
    assert_eq!((one, two), (two, three));
    let mut sorted = one;
    sorted.sort_unstable();
    assert_eq!(sorted, [1, 2, 3, 4, 5]);
}

#[tokio::test]
#[ignore = "needs NATS: run ./scripts/test"]
async fn the_first_node_decides_the_number_of_shards() {
    let servers = NatsServers::start(1);
    let as_member = |member| ClusterSettings { member, ..settings(&servers, 1) };
    let node = |shards| as_member(Member::Node { shards });
    assert_eq!(connect(&as_member(Member::Client)).await.unwrap().shards(), 1, "a worker may come first");
    let first = connect(&node(Some(3))).await.unwrap();
    assert_eq!((first.shards(), connect(&node(None)).await.unwrap().shards()), (3, 3));
    assert_eq!(connect(&as_member(Member::Client)).await.unwrap().id(), first.id());
    let error = connect(&node(Some(2))).await.unwrap_err();
    assert!(matches!(error, ClusterError::Shards { shards: 3, given: 2, .. }), "{error}");
}
