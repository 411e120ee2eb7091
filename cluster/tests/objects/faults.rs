//! Servers that are away, and answers that are lost.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use rolltap_cluster::objects::{ObjectStorage, SegmentArchive};
use rolltap_testing::{S3Server, limit};

use super::CLUSTER;
use super::bench::{Bench, storage};

/// Forwards connections to a server, and cuts some of them when the answer arrives.
struct Forwarder {
    url: String,
    /// The number of answers to lose.
    lose: Arc<AtomicUsize>,
}

impl Forwarder {
    fn start(server: &S3Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let to = server.endpoint().replace("http://", "");
        let lose = Arc::new(AtomicUsize::new(0));
        let shared = Arc::clone(&lose);
        // The thread ends with the process of the test.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&to) else { continue };
                forward(client, server, &shared);
            }
        });
        Self { url, lose }
    }

    fn storage(&self, server: &S3Server) -> ObjectStorage {
        let variables = server.variables().map(|(name, value)| match name {
            "AWS_ENDPOINT_URL" => (name, self.url.clone()),
            _ => (name, value),
        });
        storage(S3Server::BUCKET, variables)
    }
}

fn forward(mut client: TcpStream, mut server: TcpStream, lose: &Arc<AtomicUsize>) {
    let (mut requests, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    thread::spawn(move || {
        let _ = std::io::copy(&mut requests, &mut to_server);
        let _ = to_server.shutdown(Shutdown::Write);
    });
    let lose = Arc::clone(lose);
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = server.read(&mut buffer) {
            let part = buffer.get(..read).unwrap_or_default();
            let one_less = |left: usize| left.checked_sub(1);
            let is_lost = lose.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok();
            if is_lost || client.write_all(part).is_err() {
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Both);
    });
}

#[tokio::test]
#[ignore = "needs an S3 server: run ./scripts/test"]
async fn a_write_whose_answer_is_lost_counts_once() {
    let bench = Bench::on_s3();
    let server = bench.server.as_ref().unwrap();
    let forwarder = Forwarder::start(server);
    let mut archive = SegmentArchive::open(&forwarder.storage(server), CLUSTER, 0).await.unwrap();
    for (number, revision) in [(1, 1), (2, 2), (3, 3)] {
        let path = bench.file("upload", &[7]);
        forwarder.lose.store(1, Ordering::Relaxed);
        let segment = archive.upload(number, &path).await.unwrap();
        assert_eq!(forwarder.lose.swap(1, Ordering::Relaxed), 0);
        archive.commit(1, u64::from(number), &[segment]).await.unwrap();
        assert_eq!(forwarder.lose.load(Ordering::Relaxed), 0);
        assert_eq!(archive.manifest().map(|manifest| manifest.revision), Some(revision));
    }
    assert_eq!(bench.archive().await.manifest(), archive.manifest());
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
