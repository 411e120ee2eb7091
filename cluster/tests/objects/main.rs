//! Segments in object storage: in a directory, and on a real server with the S3 protocol.

#![expect(clippy::unwrap_used, reason = "a test that fails panics")]

mod bench;
mod faults;

use rolltap_cluster::objects::{ArchiveError, Manifest, ObjectStorage, S3Settings, SegmentArchive, Sha256};
use uuid::Uuid;

use self::bench::Bench;

const CLUSTER: Uuid = Uuid::from_u128(1);

fn numbers(manifest: &Manifest) -> Vec<u32> {
    manifest.segments.iter().map(|segment| segment.number).collect()
}

async fn segments_survive_a_round_trip(bench: &Bench) {
    let mut archive = bench.archive().await;
    assert_eq!(archive.manifest(), None);
    let large: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_be_bytes).collect();
    let one = bench.uploaded(&archive, 1, &large).await;
    assert_eq!((one.bytes, one.sha256), (12_000_000, Sha256::of(&large)));
    let two = bench.uploaded(&archive, 2, b"").await;
    assert_eq!(bench.archive().await.manifest(), None, "an uploaded segment does not count yet");
    archive.commit(1, 70, &[two.clone(), one.clone()]).await.unwrap();

    let mut reader = bench.archive().await;
    let manifest = reader.manifest().unwrap();
    assert_eq!((manifest.epoch, manifest.revision, manifest.log_sequence), (1, 1, 70));
    assert_eq!(manifest.segments, [one.clone(), two]);
    assert_eq!(bench.content(&reader, 1).await.unwrap(), large);
    assert_eq!(bench.content(&reader, 2).await.unwrap(), b"");
    archive.commit(1, 60, std::slice::from_ref(&one)).await.unwrap();
    assert_eq!(archive.manifest().unwrap().revision, 1, "nothing changed");

    archive.remove(1, std::slice::from_ref(&one)).await.unwrap();
    archive.remove(1, std::slice::from_ref(&one)).await.unwrap();
    let gone = bench.content(&reader, 1).await.unwrap_err();
    assert!(matches!(gone, ArchiveError::Missing(_)), "{gone}");
    assert_eq!(numbers(reader.refresh().await.unwrap().unwrap()), [2]);
    let all = SegmentArchive::all(&bench.storage).await.unwrap();
    let shards: Vec<_> = all.iter().map(|archive| (archive.shard(), archive.manifest())).collect();
    assert_eq!(shards, [(0, reader.manifest())]);
}

async fn a_segment_is_written_once(bench: &Bench) {
    let mut archive = bench.archive().await;
    let first = bench.uploaded(&archive, 1, b"content").await;
    assert_eq!(bench.uploaded(&archive, 1, b"content").await, first, "the same content is no error");
    archive.commit(1, 1, std::slice::from_ref(&first)).await.unwrap();
    let other = bench.uploaded(&archive, 1, b"another").await;
    let refused = archive.commit(1, 1, &[other]).await.unwrap_err();
    assert!(matches!(refused, ArchiveError::Conflict { number: 1, .. }), "{refused}");
    // The same name with another content.
    bench.overwrite(&format!("shard-0/{}", first.key()), b"damaged").await;
    let refused = archive.upload(1, &bench.file("upload", b"content")).await.unwrap_err();
    assert!(matches!(refused, ArchiveError::Damaged { .. }), "{refused}");
}

async fn a_holder_of_an_older_epoch_is_refused(bench: &Bench) {
    let (mut old, mut new) = (bench.archive().await, bench.archive().await);
    let one = bench.uploaded(&old, 1, b"one").await;
    old.commit(4, 10, std::slice::from_ref(&one)).await.unwrap();
    // The new holder does not know the manifest of the old one yet.
    assert_eq!(numbers(new.claim(5).await.unwrap()), [1]);
    let two = bench.uploaded(&old, 2, b"two").await;
    let refused = old.commit(4, 20, std::slice::from_ref(&two)).await.unwrap_err();
    assert!(matches!(refused, ArchiveError::Superseded { stored: 5, own: 4, .. }), "{refused}");
    let refused = old.remove(4, &[one]).await.unwrap_err();
    assert!(matches!(refused, ArchiveError::Superseded { stored: 5, own: 4, .. }), "{refused}");
    new.commit(5, 30, &[two]).await.unwrap();
    let manifest = bench.archive().await.manifest().cloned().unwrap();
    assert_eq!((numbers(&manifest), manifest.epoch, manifest.log_sequence), (vec![1, 2], 5, 30));
    assert_eq!(bench.content(&new, 1).await.unwrap(), b"one", "the refused holder removed nothing");
}

async fn the_manifest_of_another_cluster_is_refused(bench: &Bench) {
    bench.archive().await.claim(1).await.unwrap();
    let other = Uuid::from_u128(2);
    let refused = SegmentArchive::open(&bench.storage, other, 0).await.unwrap_err().to_string();
    assert!(refused.starts_with("two clusters write to this place: "), "{refused}");
    assert!(refused.contains(&CLUSTER.to_string()) && refused.contains(&other.to_string()), "{refused}");
    // Both are in doubt if only the second shard is of another cluster.
    SegmentArchive::open(&bench.storage, other, 1).await.unwrap().claim(1).await.unwrap();
    let refused = SegmentArchive::all(&bench.storage).await.unwrap_err();
    assert!(matches!(refused, ArchiveError::ForeignCluster { .. }), "{refused}");
}

async fn a_damaged_object_is_recognized(bench: &Bench) {
    let mut archive = bench.archive().await;
    let segment = bench.uploaded(&archive, 1, b"content").await;
    let key = format!("shard-0/{}", segment.key());
    archive.commit(1, 1, &[segment]).await.unwrap();
    for damage in [&b"c0ntent"[..], b"conten", b"contents"] {
        bench.overwrite(&key, damage).await;
        let refused = bench.content(&archive, 1).await.unwrap_err();
        assert!(matches!(refused, ArchiveError::Damaged { expected_bytes: 7, .. }), "{refused}");
        assert!(!bench.path("fetched").exists(), "no part of the content is used");
    }
    bench.overwrite(&key, b"content").await;
    assert_eq!(bench.content(&archive, 1).await.unwrap(), b"content");
}

async fn an_old_manifest_is_not_used(bench: &Bench) {
    let mut archive = bench.archive().await;
    let old = archive.claim(1).await.map(encoded).unwrap();
    let segment = bench.uploaded(&archive, 1, b"content").await;
    archive.commit(1, 9, &[segment]).await.unwrap();
    let current = archive.manifest().map(encoded).unwrap();
    bench.overwrite("shard-0/manifest.json", &old).await;
    let refused = archive.refresh().await.unwrap_err();
    assert!(matches!(refused, ArchiveError::OldManifest { seen: 2, found: 1, .. }), "{refused}");
    assert!(refused.is_transient());
    assert_eq!(archive.manifest().unwrap().revision, 2, "the newer one remains in use");
    let refused = archive.claim(2).await.unwrap_err();
    assert!(matches!(refused, ArchiveError::OldManifest { .. }), "{refused}");
    bench.overwrite("shard-0/manifest.json", &current).await;
    assert_eq!(archive.refresh().await.unwrap().unwrap().revision, 2);
    archive.claim(2).await.unwrap();
}

fn encoded(manifest: &Manifest) -> Vec<u8> {
    serde_json::to_vec(manifest).unwrap()
}

async fn a_foreign_manifest_is_named(bench: &Bench) {
    bench.archive().await.claim(1).await.unwrap();
    bench.overwrite("shard-0/manifest.json", br#"{"format":2}"#).await;
    let refused = SegmentArchive::open(&bench.storage, CLUSTER, 0).await.unwrap_err().to_string();
    let expected = "/shard-0/manifest.json cannot be used: expected format 1, found format 2: use the newer rolltap \
                    that wrote it";
    assert!(refused.ends_with(expected), "{refused}");
}

macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod directory {
            $(#[tokio::test]
            async fn $name() {
                super::$name(&super::Bench::in_a_directory()).await;
            })*
        }

        mod s3 {
            $(#[tokio::test]
            #[ignore = "needs an S3 server: run ./scripts/test"]
            async fn $name() {
                super::$name(&super::Bench::on_s3()).await;
            })*
        }
    };
}

on_both!(
    segments_survive_a_round_trip,
    a_segment_is_written_once,
    a_holder_of_an_older_epoch_is_refused,
    the_manifest_of_another_cluster_is_refused,
    a_damaged_object_is_recognized,
    an_old_manifest_is_not_used,
    a_foreign_manifest_is_named,
);

#[tokio::test]
async fn writers_of_one_epoch_lose_no_segment() {
    let bench = Bench::in_a_directory();
    let mut writers = tokio::task::JoinSet::new();
    for number in 1..=6 {
        let mut archive = bench.archive().await;
        let path = bench.file(&number.to_string(), &[0]);
        writers.spawn(async move {
            let segment = archive.upload(number, &path).await.unwrap();
            // The bound on the attempts of one call is meant for two holders, not for six.
            while let Err(error) = archive.commit(1, 1, std::slice::from_ref(&segment)).await {
                assert!(matches!(error, ArchiveError::Contended(_)), "{error}");
            }
        });
    }
    writers.join_all().await;
    assert_eq!(numbers(bench.archive().await.manifest().unwrap()), [1, 2, 3, 4, 5, 6]);
}

#[tokio::test]
async fn a_place_without_captures_says_what_was_expected() {
    let bench = Bench::in_a_directory();
    let refused = SegmentArchive::all(&bench.storage).await.unwrap_err().to_string();
    assert!(refused.contains("has no captures of a cluster: expected shard-0/manifest.json"), "{refused}");
    let url = "file:///absent-directory-of-a-test".parse().unwrap();
    let storage = ObjectStorage::open(&url, &S3Settings::of_variables([])).unwrap();
    let refused = SegmentArchive::all(&storage).await.unwrap_err().to_string();
    assert!(refused.starts_with("cannot list file:///absent-directory-of-a-test: No such file"), "{refused}");
}

#[test]
fn missing_credentials_are_named() {
    let url = "s3://captures".parse().unwrap();
    let refused = ObjectStorage::open(&url, &S3Settings::of_variables([])).unwrap_err().to_string();
    assert!(
        refused.starts_with("cannot use s3://captures: the environment variable AWS_ACCESS_KEY_ID"),
        "{refused}"
    );
}
