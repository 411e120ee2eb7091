//! Segments in object storage: in a directory, and on a real server with the S3 protocol.

#![expect(clippy::unwrap_used, reason = "a test that fails panics")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rolltap_cluster::objects::{
    ArchiveError, Manifest, ObjectStorage, S3Settings, SegmentArchive, SegmentObject, Sha256,
};
use rolltap_testing::{S3Server, limit};
use tempfile::TempDir;
use uuid::Uuid;

const CLUSTER: Uuid = Uuid::from_u128(1);

/// A place for objects with a folder for files.
struct Bench {
    storage: ObjectStorage,
    files: TempDir,
    /// `None` if the place is a directory.
    server: Option<S3Server>,
}

impl Bench {
    fn in_a_directory() -> Self {
        let files = tempfile::tempdir().unwrap();
        let url = format!("file://{}", files.path().join("objects").display()).parse().unwrap();
        std::fs::create_dir(files.path().join("objects")).unwrap();
        let storage = ObjectStorage::open(&url, &S3Settings::of_variables([])).unwrap();
        Self { storage, files, server: None }
    }

    fn on_s3() -> Self {
        Self::on(S3Server::start(), S3Server::BUCKET)
    }

    fn on(server: S3Server, bucket: &str) -> Self {
        let url = format!("s3://{bucket}/some/runs").parse().unwrap();
        let settings = S3Settings::of_variables(server.variables()).with_timeout(Duration::from_secs(2));
        let storage = ObjectStorage::open(&url, &settings).unwrap();
        Self { storage, files: tempfile::tempdir().unwrap(), server: Some(server) }
    }

    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    async fn archive(&self) -> SegmentArchive {
        SegmentArchive::open(&self.storage, CLUSTER, 0).await.unwrap()
    }

    async fn uploaded(&self, archive: &SegmentArchive, number: u32, content: &[u8]) -> SegmentObject {
        archive.upload(number, &self.file("upload", content)).await.unwrap()
    }

    /// Replaces an object behind rolltap's back.
    async fn overwrite(&self, key: &str, content: &[u8]) {
        if let Some(path) = self.storage.url().directory() {
            std::fs::write(path.join(key), content).unwrap();
            return;
        }
        // The server requires a signature and does not check it.
        let signature = "AWS4-HMAC-SHA256 Credential=tests/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0";
        let variables = self.server.as_ref().unwrap().variables();
        let [.., (_, endpoint)] = &variables;
        let url = format!("{endpoint}/{}/some/runs/{key}", S3Server::BUCKET);
        let request = rolltap_testing::http_client().put(url).header("authorization", signature);
        let sent = request.body(content.to_vec()).send().await.unwrap();
        assert!(sent.status().is_success(), "{}", sent.status());
    }

    async fn content(&self, archive: &SegmentArchive, number: u32) -> Result<Vec<u8>, ArchiveError> {
        let segment = archive.manifest().and_then(|manifest| manifest.segment(number)).cloned().unwrap();
        let to = self.path("fetched");
        let mut bytes = 0;
        archive.fetch(&segment, &to, &mut |more| bytes += more).await?;
        assert_eq!(bytes, segment.bytes);
        Ok(std::fs::read(to).unwrap())
    }
}

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

#[tokio::test]
#[ignore = "needs an S3 server: run ./scripts/test"]
async fn a_server_that_is_away_gives_an_error_in_time_and_is_used_when_it_returns() {
    let mut bench = Bench::on(S3Server::stopped(), S3Server::BUCKET);
    let began = Instant::now();
    let refused = SegmentArchive::open(&bench.storage, CLUSTER, 0).await.unwrap_err();
    assert!(began.elapsed() < limit(20), "{:?}", began.elapsed());
    assert!(refused.is_transient());
    let text = refused.to_string();
    assert!(text.starts_with("cannot read s3://captures/some/runs/shard-0/manifest.json: "), "{text}");
    assert!(text.ends_with("; check that the server runs, and AWS_ENDPOINT_URL"), "{text}");

    bench.server.as_mut().unwrap().restart();
    let mut archive = bench.archive().await;
    archive.claim(1).await.unwrap();
    // A server that accepts connections and does not answer.
    let id = bench.server.as_ref().and_then(S3Server::id).unwrap();
    signal(id, "STOP");
    let began = Instant::now();
    let upload = archive.upload(1, &bench.file("upload", b"content")).await;
    let elapsed = began.elapsed();
    signal(id, "CONT");
    assert!(upload.unwrap_err().is_transient());
    assert!(elapsed < limit(20), "{elapsed:?}");
    let segment = bench.uploaded(&archive, 1, b"content").await;
    archive.commit(1, 1, &[segment]).await.unwrap();
    assert_eq!(bench.content(&archive, 1).await.unwrap(), b"content");
}

fn signal(id: u32, name: &str) {
    let sent = std::process::Command::new("kill").args([format!("-{name}"), id.to_string()]).status();
    assert!(sent.unwrap().success());
}

#[tokio::test]
#[ignore = "needs an S3 server: run ./scripts/test"]
async fn a_bucket_that_does_not_exist_is_named() {
    let bench = Bench::on(S3Server::start(), "no-such-bucket");
    let expected = "; create the bucket, or correct its name";
    let opened = SegmentArchive::open(&bench.storage, CLUSTER, 0).await.unwrap_err();
    assert!(opened.to_string().ends_with(expected), "{opened}");
    let listed = SegmentArchive::all(&bench.storage).await.unwrap_err();
    assert!(listed.to_string().ends_with(expected), "{listed}");
    assert!(!listed.is_transient());
}
