//! The lease of a shard.

use std::time::{Duration, Instant};

use rolltap_cluster::connect;
use rolltap_cluster::lease::{self, Candidacy, LeaseState, LeaseView};
use rolltap_cluster::objects::{ObjectStorage, S3Settings, SegmentArchive};
use rolltap_testing::NatsServers;
use tokio::sync::watch;

use super::harness::{acquired, acquired_with, node, settings};

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
    let waiting =
        tokio::spawn(
            async move { lease::acquire(&two, 0, &node(2), &Candidacy::default(), None, &view).await },
        );
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
async fn a_lease_whose_entry_nats_has_lost_continues_behind_the_epoch_in_object_storage() {
    let servers = NatsServers::start(1);
    let cluster = connect(&settings(&servers, 1)).await.unwrap();
    let place = tempfile::tempdir().unwrap();
    let url = format!("file://{}", place.path().display()).parse().unwrap();
    let storage = ObjectStorage::open(&url, &S3Settings::of_variables([])).unwrap();
    let mut archive = SegmentArchive::open(&storage, cluster.id(), 0).await.unwrap();
    archive.claim(29).await.unwrap();
    let held = acquired_with(&cluster, 1, Some(&storage)).await;
    assert_eq!(held.epoch(), 30);
    archive.claim(held.epoch()).await.unwrap();
    held.release().await;
    assert_eq!(acquired_with(&cluster, 2, Some(&storage)).await.epoch(), 31);
}
