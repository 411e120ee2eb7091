//! Errors of a cluster, each with its remedy.

use std::convert::Infallible;

use rolltap_cluster::log::{LogError, ShardLog};
use rolltap_cluster::publisher::Publisher;
use rolltap_cluster::{ClusterError, ClusterSettings, Member, connect};
use rolltap_testing::NatsServers;

use super::harness::settings;

#[tokio::test]
#[ignore = "needs NATS: run ./scripts/test"]
async fn what_is_foreign_or_impossible_is_an_error_with_its_remedy() {
    let unreachable = ClusterSettings {
        servers: vec!["nats://user:secret@127.0.0.1:1".parse().unwrap()],
        name: "tests".parse().unwrap(),
        replicas: 1,
        member: Member::Node { shards: None },
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
    let error = Publisher::claim::<Infallible>(log, 1, |_, _| Ok(())).await.unwrap_err();
    assert!(matches!(error, LogError::Foreign { sequence: 1, .. }), "{error}");

    let bucket = stream.get_key_value("rolltap-tests").await.unwrap();
    bucket
        .put("cluster", r#"{"format": 2, "id": "0199a000-0000-7000-8000-000000000000", "shards": 1}"#.into())
        .await
        .unwrap();
    let error = connect(&settings(&servers, 1)).await.unwrap_err();
    assert!(matches!(error, ClusterError::Foreign { .. }), "{error}");
}
