//! The text files of a trial's directory in a job: logs, the verifier's output, artifacts.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// The maximum number of files in the list of a trial.
const FILES: usize = 500;
/// The maximum depth of folders in a trial's directory.
const DEPTH: usize = 6;
/// The maximum number of bytes that are read of a file.
const MOST_READ: u64 = 200_000;

/// The directory of a trial. Agents and tests write most of its files, so nothing in it is trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrialFiles {
    dir: Option<PathBuf>,
}

/// A file in the directory of a trial.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TrialFile {
    /// The path in the trial's directory.
    pub name: String,
    /// The length in bytes.
    pub length: u64,
    path: PathBuf,
}

/// A part of a file, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextFile {
    /// The part, with U+FFFD in the place of invalid UTF-8.
    pub text: String,
    /// The number of bytes before the part.
    pub skipped: u64,
    /// The length of the file in bytes.
    pub length: u64,
}

impl TrialFiles {
    pub(super) fn at(dir: &Path) -> Self {
        Self { dir: Some(dir.to_owned()).filter(|dir| dir.is_dir()) }
    }

    /// Returns the files, sorted by name. Links are left out, because they may lead out of the directory.
    pub fn list(&self) -> Vec<TrialFile> {
        let mut found = Vec::new();
        if let Some(dir) = &self.dir {
            list_below(dir, "", DEPTH, &mut found);
        }
        found.sort();
        found.truncate(FILES);
        found
    }

    /// Returns the file of this name in the list. No link, no `..` and no absolute path is among the names.
    pub fn find(&self, name: &str) -> Option<TrialFile> {
        self.list().into_iter().find(|file| file.name == name)
    }
}

impl TrialFile {
    /// Reads the beginning of the file, at most `most` bytes.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn read_start(&self, most: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(&self.path)?.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads the end of the file, at most 200 kB. `None` if it cannot be read.
    pub fn read(&self) -> Option<TextFile> {
        read_end(&self.path, MOST_READ).ok()
    }
}

fn list_below(dir: &Path, prefix: &str, depth: usize, found: &mut Vec<TrialFile>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.filter_map(Result::ok) {
        let (Ok(name), Ok(kind)) = (entry.file_name().into_string(), entry.file_type()) else { continue };
        let name = format!("{prefix}{name}");
        if kind.is_dir() && depth > 0 {
            list_below(&entry.path(), &format!("{name}/"), depth - 1, found);
        } else if kind.is_file()
            && let Ok(metadata) = entry.metadata()
        {
            found.push(TrialFile { name, length: metadata.len(), path: entry.path() });
        }
        // An agent can make millions of files.
        if found.len() > 2 * FILES {
            return;
        }
    }
}

fn read_end(path: &Path, most: u64) -> io::Result<TextFile> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let skipped = length.saturating_sub(most);
    file.seek(SeekFrom::Start(skipped))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(TextFile { text: String::from_utf8_lossy(&bytes).into_owned(), skipped, length })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_directory_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let trial = dir.path().join("trial");
        std::fs::create_dir_all(trial.join("agent")).unwrap();
        std::fs::write(dir.path().join("secret"), "s").unwrap();
        std::fs::write(trial.join("agent/log.txt"), "0123456789").unwrap();
        std::os::unix::fs::symlink(dir.path().join("secret"), trial.join("agent/link")).unwrap();
        std::os::unix::fs::symlink(dir.path(), trial.join("out")).unwrap();
        let files = TrialFiles::at(&trial);
        let names: Vec<_> = files.list().into_iter().map(|file| (file.name, file.length)).collect();
        assert_eq!(names, [("agent/log.txt".to_owned(), 10)]);
        for name in ["agent/link", "../secret", "out/secret", "/etc/passwd", "agent/../../secret"] {
            assert_eq!(files.find(name), None, "{name}");
        }
        assert_eq!(files.find("agent/log.txt").unwrap().read().unwrap().text, "0123456789");
        let end = read_end(&trial.join("agent/log.txt"), 4).unwrap();
        assert_eq!((end.text.as_str(), end.skipped, end.length), ("6789", 6, 10));
    }
}
