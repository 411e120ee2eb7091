//! The log of a shard.

use std::convert::Infallible;

use rolltap_cluster::connect;
use rolltap_cluster::log::{LogEntry, LogError, ShardLog};
use rolltap_cluster::publisher::{LogCondition, Publisher};
use rolltap_testing::{Cut, NatsServers, Relay, limit};

use super::harness::{claimed, settings, settings_at, stored};

#[tokio::test]
#[ignore = "needs NATS: run ./scripts/test"]
async fn a_log_keeps_its_order_on_three_servers_while_each_of_them_is_killed() {
    let mut servers = NatsServers::start(3);
    let cluster = connect(&settings(&servers, 3)).await.unwrap();
    let (mut publisher, found) = claimed(&cluster, 1).await;
    assert!(found.is_empty());
    let mut expected = Vec::new();
    let mut number = 0;
    for round in 0..3_u32 {
        let server = round as usize;
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
    first.condition().wait_for(|condition| *condition == LogCondition::Fenced).await.unwrap();
    assert_eq!(*first.stored().borrow(), 1);
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
    let mut condition = publisher.condition();
    condition.wait_for(|condition| matches!(condition, LogCondition::Failing(_))).await.unwrap();
    assert_eq!(*publisher.stored().borrow(), 0);
    servers.restart(0);
    stored(&publisher, number).await;
    assert_eq!((*publisher.stored().borrow(), &*condition.borrow()), (number, &LogCondition::Well));
}

#[tokio::test]
#[ignore = "needs NATS: run ./scripts/test"]
async fn a_trimmed_log_continues_after_its_beginning_and_nowhere_else() {
    let servers = NatsServers::start(1);
    let cluster = connect(&settings(&servers, 1)).await.unwrap();
    let (mut publisher, _) = claimed(&cluster, 1).await;
    publisher.append(1, 0, b"closed");
    let mark = publisher.mark();
    let number = publisher.append(2, 0, b"open");
    let through = mark.await.unwrap();
    stored(&publisher, number).await;
    publisher.trimmer().trim(through).await.unwrap();

    let log = ShardLog::open(&cluster, 0).await.unwrap();
    let old = Publisher::claim::<Infallible>(log.after(0), 2, |_, _| Ok(())).await.unwrap_err();
    assert!(matches!(old, LogError::Missing { expected: 1, .. }), "{old}");
    let log = ShardLog::open(&cluster, 0).await.unwrap();
    let other = Publisher::claim::<Infallible>(log.after(1_000), 2, |_, _| Ok(())).await.unwrap_err();
    assert!(matches!(other, LogError::Missing { .. }), "{other}");

    let mut found = Vec::new();
    let log = ShardLog::open(&cluster, 0).await.unwrap();
    let claim = Publisher::claim::<Infallible>(log.after(through), 2, |_, entry| {
        found.push(entry);
        Ok(())
    });
    claim.await.unwrap();
    assert_eq!(found, [LogEntry::Append { segment: 2, offset: 0, bytes: "open".into() }]);
}

#[tokio::test]
#[ignore = "needs NATS: run ./scripts/test"]
async fn a_reader_whose_messages_stay_out_gives_up_and_another_one_reads_them() {
    let servers = NatsServers::start(1);
    let cluster = connect(&settings(&servers, 1)).await.unwrap();
    let (mut publisher, _) = claimed(&cluster, 1).await;
    // More than the sockets on the way can hold.
    let large = vec![7; 40 << 20];
    let number = publisher.append(1, 0, &large);
    stored(&publisher, number).await;

    let relay = Relay::to(servers.ports()[0]);
    let far = connect(&settings_at(&format!("nats://127.0.0.1:{}", relay.port()), 1)).await.unwrap();
    let log = ShardLog::open(&far, 0).await.unwrap();
    let claim = Publisher::claim::<Infallible>(log, 2, |_, entry| {
        if matches!(entry, LogEntry::Append { .. }) {
            relay.cut(Cut::Answers);
        }
        Ok(())
    });
    let stalled = tokio::time::timeout(limit(60), claim).await.expect("the reader gives up").unwrap_err();
    assert!(matches!(stalled, LogError::Cluster(_)), "{stalled}");
    relay.heal();
    let (_, found) = claimed(&far, 2).await;
    assert!(found == large, "{} of {} bytes", found.len(), large.len());
}
