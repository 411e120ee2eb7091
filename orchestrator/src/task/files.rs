//! The files of a task directory: the version of the task, and the files that change while a job runs.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use sha2::{Digest, Sha256};

/// The files of a task directory at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TaskFiles {
    dir: PathBuf,
    files: BTreeMap<PathBuf, FileVersion>,
    checksum: String,
}

/// The version of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileVersion {
    stamp: Stamp,
    /// The SHA-256 of its content. The content of a symbolic link is its target.
    digest: [u8; 32],
}

/// The attributes that change with every write to a file. No program can set the time of the last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl From<&Metadata> for Stamp {
    fn from(metadata: &Metadata) -> Self {
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        Self { inode: metadata.ino(), size: metadata.size(), changed }
    }
}

impl TaskFiles {
    /// Reads every file below `dir`.
    ///
    /// # Errors
    /// A file or directory cannot be read.
    pub(crate) fn read(dir: &Path) -> io::Result<Self> {
        let (mut files, mut whole) = (BTreeMap::new(), Sha256::new());
        for path in listed(dir)? {
            let stamp = Stamp::from(&path.symlink_metadata()?);
            let content = content(&path)?;
            let name = path.strip_prefix(dir).unwrap_or(&path);
            for part in [name.as_os_str().as_encoded_bytes(), &content] {
                // Without the lengths, a byte could move from a path to a content without a change of the hash.
                whole.update((part.len() as u64).to_le_bytes());
                whole.update(part);
            }
            let digest = Sha256::digest(&content).into();
            files.insert(name.to_owned(), FileVersion { stamp, digest });
        }
        let checksum = whole.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { dir: dir.to_owned(), files, checksum })
    }

    /// The hex SHA-256 over every file, sorted by path: the relative path and the content of each file.
    pub(crate) fn checksum(&self) -> &str {
        &self.checksum
    }

    /// Returns the files that have changed since, each with the kind of the change. Files of `tests` directories are
    /// read again. Other files are read again if their attributes have changed.
    pub(crate) fn changes(&self) -> Vec<String> {
        let entry = |name: &Path, change: &str| format!("{} {change}", name.display());
        let paths = match listed(&self.dir) {
            Ok(paths) => paths,
            Err(error) => return vec![format!("the task directory cannot be read: {error}")],
        };
        let names: Vec<_> =
            paths.iter().map(|path| path.strip_prefix(&self.dir).unwrap_or(path).to_owned()).collect();
        let mut changes = Vec::new();
        for (path, name) in paths.iter().zip(&names) {
            match self.files.get(name) {
                None => changes.push(entry(name, "was added")),
                Some(before) if before.has_changed(path, is_of_tests(name)) => {
                    changes.push(entry(name, "was changed"));
                }
                Some(_) => {}
            }
        }
        let removed = self.files.keys().filter(|name| names.binary_search(name).is_err());
        changes.extend(removed.map(|name| entry(name, "was removed")));
        changes
    }

    /// Returns the links that lead out of the task, each with its target. An environment gets the link, not the file.
    pub(crate) fn links_out(&self) -> Vec<(PathBuf, PathBuf)> {
        let target = |name: &PathBuf| Some((name.clone(), self.dir.join(name).read_link().ok()?));
        let links = self.files.keys().filter_map(target);
        links.filter(|(name, target)| leads_out(name, target)).collect()
    }
}

impl FileVersion {
    fn has_changed(&self, path: &Path, is_read_again: bool) -> bool {
        let same = path.symlink_metadata().is_ok_and(|metadata| Stamp::from(&metadata) == self.stamp);
        if same && !is_read_again {
            return false;
        }
        !content(path).is_ok_and(|content| Sha256::digest(&content)[..] == self.digest[..])
    }
}

fn is_of_tests(name: &Path) -> bool {
    name.iter().any(|part| part == "tests")
}

/// Whether a link at this path of the task, with this target, leads out of the task.
pub(super) fn leads_out(link: &Path, target: &Path) -> bool {
    let mut depth = link.components().count().saturating_sub(1);
    for component in target.components() {
        depth = match component {
            Component::RootDir | Component::Prefix(_) => return true,
            Component::ParentDir if depth == 0 => return true,
            Component::ParentDir => depth - 1,
            Component::CurDir => depth,
            Component::Normal(_) => depth + 1,
        };
    }
    false
}

fn content(path: &Path) -> io::Result<Vec<u8>> {
    if path.is_symlink() {
        return Ok(std::fs::read_link(path)?.into_os_string().into_encoded_bytes());
    }
    std::fs::read(path)
}

/// Returns every file below `dir`, sorted. The order of `read_dir` depends on the file system.
fn listed(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    list(dir, &mut files)?;
    files.sort();
    Ok(files)
}

fn list(dir: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in dir.read_dir()? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            list(&entry.path(), files)?;
        } else if kind.is_file() || kind.is_symlink() {
            // Pipes and sockets are not copied into environments, and reading one could block.
            files.push(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn every_name_and_byte_counts() {
        let dir = tempfile::tempdir().unwrap();
        let of_dir = || TaskFiles::read(dir.path()).unwrap().checksum;
        fs::create_dir(dir.path().join("tests")).unwrap();
        fs::write(dir.path().join("tests/a"), "1").unwrap();
        let first = of_dir();
        assert_eq!(first, of_dir());
        fs::write(dir.path().join("tests/a"), "2").unwrap();
        let changed = of_dir();
        fs::rename(dir.path().join("tests/a"), dir.path().join("tests/b")).unwrap();
        let renamed = of_dir();
        assert!(first != changed && changed != renamed);
        assert_eq!(first.len(), 64);
    }

    #[test]
    fn changes_are_named_and_a_touched_file_is_none() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("tests")).unwrap();
        for name in ["tests/test.sh", "task.toml", "gone", "same"] {
            fs::write(dir.path().join(name), name).unwrap();
        }
        let files = TaskFiles::read(dir.path()).unwrap();
        assert_eq!(files.changes(), Vec::<String>::new());
        fs::write(dir.path().join("same"), "same").unwrap();
        assert_eq!(files.changes(), Vec::<String>::new(), "the content decides");
        fs::write(dir.path().join("tests/test.sh"), "TESTS/test.sh").unwrap();
        fs::write(dir.path().join("tests/new"), "").unwrap();
        fs::remove_file(dir.path().join("gone")).unwrap();
        let expected = ["tests/new was added", "tests/test.sh was changed", "gone was removed"];
        assert_eq!(files.changes(), expected);
        fs::remove_dir_all(dir.path()).unwrap();
        assert!(files.changes()[0].contains("cannot be read"), "{:?}", files.changes());
    }

    #[test]
    fn links_out_of_the_task_are_found() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("tests")).unwrap();
        for (name, target) in [
            ("tests/inside", "../task.toml"),
            ("tests/beside", "other"),
            ("tests/out", "../../secret"),
            ("absolute", "/etc/passwd"),
        ] {
            symlink(target, dir.path().join(name)).unwrap();
        }
        let links = TaskFiles::read(dir.path()).unwrap().links_out();
        let names: Vec<_> = links.iter().map(|(name, _)| name.to_str().unwrap()).collect();
        assert_eq!(names, ["absolute", "tests/out"]);
    }
}
