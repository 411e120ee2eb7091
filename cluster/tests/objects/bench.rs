//! A place for objects, and access to it behind rolltap's back.

use std::path::PathBuf;
use std::time::Duration;

use rolltap_cluster::objects::{ArchiveError, ObjectStorage, S3Settings, SegmentArchive, SegmentObject};
use rolltap_testing::S3Server;
use tempfile::TempDir;

use super::CLUSTER;

/// A place for objects with a folder for files.
pub(super) struct Bench {
    pub(super) storage: ObjectStorage,
    files: TempDir,
    /// `None` if the place is a directory.
    pub(super) server: Option<S3Server>,
}

impl Bench {
    pub(super) fn in_a_directory() -> Self {
        let files = tempfile::tempdir().unwrap();
        let url = format!("file://{}", files.path().join("objects").display()).parse().unwrap();
        std::fs::create_dir(files.path().join("objects")).unwrap();
        let storage = ObjectStorage::open(&url, &S3Settings::of_variables([])).unwrap();
        Self { storage, files, server: None }
    }

    pub(super) fn on_s3() -> Self {
        Self::on(S3Server::start(), S3Server::BUCKET)
    }

    pub(super) fn on(server: S3Server, bucket: &str) -> Self {
        let storage = storage(bucket, server.variables());
        Self { storage, files: tempfile::tempdir().unwrap(), server: Some(server) }
    }

    pub(super) fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    pub(super) async fn archive(&self) -> SegmentArchive {
        SegmentArchive::open(&self.storage, CLUSTER, 0).await.unwrap()
    }

    pub(super) async fn uploaded(
        &self,
        archive: &SegmentArchive,
        number: u32,
        content: &[u8],
    ) -> SegmentObject {
        archive.upload(number, &self.file("upload", content)).await.unwrap()
    }

    /// Replaces an object behind rolltap's back.
    pub(super) async fn overwrite(&self, key: &str, content: &[u8]) {
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

    pub(super) async fn content(
        &self,
        archive: &SegmentArchive,
        number: u32,
    ) -> Result<Vec<u8>, ArchiveError> {
        let segment = archive.manifest().and_then(|manifest| manifest.segment(number)).cloned().unwrap();
        let to = self.path("fetched");
        let mut bytes = 0;
        archive.fetch(&segment, &to, &mut |more| bytes += more).await?;
        assert_eq!(bytes, segment.bytes);
        Ok(std::fs::read(to).unwrap())
    }
}

/// The place on a server that these variables name.
pub(super) fn storage(bucket: &str, variables: [(&'static str, String); 4]) -> ObjectStorage {
    let url = format!("s3://{bucket}/some/runs").parse().unwrap();
    let settings = S3Settings::of_variables(variables).with_timeout(Duration::from_secs(2));
    ObjectStorage::open(&url, &settings).unwrap()
}
