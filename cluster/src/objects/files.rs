//! Files in object storage that are named by their content.

use std::path::Path;

use super::archive_error::ArchiveError;
use super::content::Content;
use super::storage::ObjectStorage;
use super::transfer;

/// Files in a folder of object storage. The name of each is the checksum of its content, so a file is written once and never
/// changes.
#[derive(Clone, Debug)]
pub struct FileStore {
    storage: ObjectStorage,
    folder: String,
}

impl FileStore {
    /// Opens a folder, like `work/tasks`. No request is sent.
    pub fn open(storage: &ObjectStorage, folder: &str) -> Self {
        Self { storage: storage.clone(), folder: folder.to_owned() }
    }

    /// Uploads the content of the file at `path`. An object with the same content is used as it is.
    ///
    /// # Errors
    /// The file cannot be read, the place cannot be used, or an object of this name has another content.
    pub async fn upload(&self, path: &Path) -> Result<Content, ArchiveError> {
        transfer::upload(&self.storage, path, |content| self.key(content)).await
    }

    /// Writes a content to the file at `destination`, which is there with its whole content or not at all.
    ///
    /// # Errors
    /// The object does not exist or has another content, the place cannot be used, or the file cannot be written.
    pub async fn fetch(&self, content: &Content, destination: &Path) -> Result<(), ArchiveError> {
        let key = self.key(content);
        match transfer::fetch(&self.storage, &key, content, destination, &mut |_| ()).await {
            Err(ArchiveError::Missing(url)) => Err(ArchiveError::NoObject(url)),
            fetched => fetched,
        }
    }

    /// Removes a content, if it exists.
    ///
    /// # Errors
    /// The place cannot be used.
    pub async fn remove(&self, content: &Content) -> Result<(), ArchiveError> {
        Ok(self.storage.remove(&self.key(content)).await?)
    }

    fn key(&self, content: &Content) -> String {
        format!("{}/{}", self.folder, content.sha256)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::objects::S3Settings;

    #[tokio::test]
    async fn a_file_returns_as_it_was_and_another_content_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("file://{}/objects", dir.path().display()).parse().unwrap();
        let storage = ObjectStorage::open(&url, &S3Settings::of_variables([])).unwrap();
        let files = FileStore::open(&storage, "work/tasks");
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::write(&from, "content").unwrap();
        let content = files.upload(&from).await.unwrap();
        assert_eq!(files.upload(&from).await.unwrap(), content);
        files.fetch(&content, &to).await.unwrap();
        assert_eq!(fs::read_to_string(&to).unwrap(), "content");

        let object = dir.path().join(format!("objects/work/tasks/{}", content.sha256));
        fs::write(&object, "damaged").unwrap();
        let damaged = files.fetch(&content, &to).await.unwrap_err();
        assert!(matches!(damaged, ArchiveError::Damaged { .. }), "{damaged}");
        files.remove(&content).await.unwrap();
        let gone = files.fetch(&content, &to).await.unwrap_err();
        assert!(matches!(gone, ArchiveError::NoObject(_)), "{gone}");
        assert_eq!(fs::read_to_string(&to).unwrap(), "content", "a failed fetch changes nothing");
    }
}
