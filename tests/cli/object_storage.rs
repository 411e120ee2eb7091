//! `rolltap check`, `export` and `view` of captures in object storage.

use std::path::Path;

use rolltap_cluster::objects::{ObjectStorage, S3Settings, SegmentArchive};
use rolltap_testing::{S3Server, TestAuthority, limit};
use serde_json::json;
use uuid::Uuid;

use super::program::{Ended, rolltap};
use super::servers::{post, start};

/// Captures two trials in the directory `data`.
async fn capture(dir: &Path) {
    let (_sim, proxy, _, admin) = start(dir);
    for name in ["one", "two"] {
        let body = json!({"task_id": "hello", "trial_id": name});
        let trial = post(&format!("{admin}/v1/trials"), body).await;
        let url = format!("{}/chat/completions", trial["base_urls"]["openai"].as_str().unwrap());
        let message = json!({"role": "user", "content": "write hello.txt"});
        post(&url, json!({"model": "sim", "messages": [message]})).await;
        post(&format!("{admin}/v1/trials/{name}/seal"), json!({})).await;
        let put = rolltap_testing::http_client().put(format!("{admin}/v1/trials/{name}/reward"));
        let answer = put.json(&json!({"rewards": {"reward": 1.0}})).send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    }
    proxy.signal("TERM");
    assert_eq!(proxy.wait(limit(10)).0, Some(0));
}

/// Uploads the captures as those of a shard.
async fn upload(dir: &Path, url: &str, settings: &S3Settings, shard: u32) {
    let storage = ObjectStorage::open(&url.parse().unwrap(), settings).unwrap();
    let mut archive = SegmentArchive::open(&storage, Uuid::from_u128(7), shard).await.unwrap();
    let segment = archive.upload(1, &dir.join("data/capture-00000001.rolltap")).await.unwrap();
    archive.commit(1, 1, &[segment]).await.unwrap();
}

/// Runs a command with a cache of its own, and without the variables of AWS that the tester has.
fn run(dir: &Path, variables: &[(&'static str, String)], args: &[&str]) -> Ended {
    let mut command = rolltap(dir, args);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("AWS_")) {
        command.env_remove(name);
    }
    command.env("XDG_CACHE_HOME", dir.join("cache"));
    command.envs(variables.iter().map(|(name, value)| (*name, value.as_str())));
    command.output().unwrap().into()
}

/// Compares the results of the three commands with those on the data directory itself.
fn must_read(dir: &Path, variables: &[(&'static str, String)], url: &str) {
    let checked = run(dir, variables, &["check", url]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert!(checked.stderr.ends_with("2 rows checked, 0 breaches\n"), "{checked:?}");

    let export = ["--quiet", "--open-groups", "--format", "jsonl", "-o", "-"];
    let exported = run(dir, variables, &[&["export", url], &export[..]].concat());
    let expected = run(dir, &[], &[&["export", "data"], &export[..]].concat());
    assert_eq!((exported.code, expected.code), (Some(0), Some(0)), "{exported:?}");
    assert_eq!(exported.stdout.lines().count(), 2);
    assert_eq!(exported.stdout, expected.stdout);

    let viewed = run(dir, variables, &["view", url, "--text", "two"]);
    assert_eq!(viewed.code, Some(0), "{viewed:?}");
    assert_eq!(viewed.stdout, run(dir, &[], &["view", "data", "--text", "two"]).stdout);
}

#[tokio::test]
async fn captures_in_a_directory_of_objects_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let objects = dir.path().join("objects");
    std::fs::create_dir(&objects).unwrap();
    let url = format!("file://{}", objects.display());
    let absent = run(dir.path(), &[], &["check", &url]);
    assert_eq!(absent.code, Some(2));
    assert!(absent.stderr.contains("expected shard-0/manifest.json below it, found nothing"), "{absent:?}");

    capture(dir.path()).await;
    let settings = S3Settings::of_variables([]);
    upload(dir.path(), &url, &settings, 0).await;
    must_read(dir.path(), &[], &url);
    upload(dir.path(), &url, &settings, 3).await;
    // Both shards have the same two rows.
    let checked = run(dir.path(), &[], &["check", &url]);
    assert_eq!((checked.code, checked.stderr.as_str()), (Some(0), "4 rows checked, 0 breaches\n"));
    let several = run(dir.path(), &[], &["export", &url, "--format", "jsonl", "-o", "rows.jsonl"]);
    assert_eq!(several.code, Some(2));
    let expected = format!("error: {url} has the shards 0, 3: give one of them, as {url}/shard-0\n");
    assert_eq!(several.stderr, expected);
    must_read(dir.path(), &[], &format!("{url}/shard-3"));
}

#[test]
fn a_wrong_place_is_refused_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |url| {
        let ended = run(dir.path(), &[], &["check", url]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        ended.stderr
    };
    assert_eq!(
        refused("gs://captures"),
        "error: expected s3://BUCKET[/PREFIX] or file:///DIR, found \"gs://captures\": the scheme is neither s3 nor file\n"
    );
    let missing = refused("s3://captures");
    assert!(
        missing.starts_with(
            "error: cannot use s3://captures: the environment variable AWS_ACCESS_KEY_ID is not set"
        ),
        "{missing}"
    );
    assert!(
        refused("file:///absent-directory").contains("cannot list file:///absent-directory: No such file")
    );
}

#[test]
fn a_server_that_is_away_is_a_failure_and_no_wrong_use() {
    let dir = tempfile::tempdir().unwrap();
    let away = S3Server::stopped();
    let ended = run(dir.path(), &away.variables(), &["view", "s3://captures/runs"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("error: cannot list s3://captures/runs: "), "{ended:?}");
    assert!(ended.stderr.ends_with("; check that the server runs, and AWS_ENDPOINT_URL\n"), "{ended:?}");
}

#[tokio::test]
#[ignore = "needs an S3 server: run ./scripts/test"]
async fn captures_on_a_server_are_read() {
    let dir = tempfile::tempdir().unwrap();
    capture(dir.path()).await;
    let server = S3Server::start();
    let url = format!("s3://{}/runs", S3Server::BUCKET);
    upload(dir.path(), &url, &S3Settings::of_variables(server.variables()), 0).await;
    must_read(dir.path(), &server.variables(), &url);
}

#[test]
#[ignore = "needs an S3 server: run ./scripts/test"]
fn a_server_with_tls_is_reached_if_its_authority_is_trusted() {
    let dir = tempfile::tempdir().unwrap();
    let authority = TestAuthority::default();
    let server = S3Server::start_with_tls(&authority.certificate("127.0.0.1"));
    let trusted = authority.file();
    let trust = ("SSL_CERT_FILE", trusted.path().display().to_string());
    let variables = [&server.variables()[..], &[trust]].concat();
    let ended = run(dir.path(), &variables, &["check", "s3://captures/runs"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("NoSuchBucket"), "the server answered: {ended:?}");
    let ended = run(dir.path(), &server.variables(), &["check", "s3://captures/runs"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("certificate"), "{ended:?}");
}
