//! The file of the audit log: appends lines, and follows a rotation.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

/// The largest size of lines that wait for a disk that fails, in bytes.
const MOST_WAITING: usize = 1 << 20;

/// A file that lines are appended to, with the lines that are not written yet.
#[derive(Debug)]
pub(super) struct AuditFile {
    path: PathBuf,
    file: File,
    /// The device and the inode of `file`.
    identity: (u64, u64),
    waiting: VecDeque<Vec<u8>>,
    waiting_bytes: usize,
    /// The bytes of the first waiting line that `file` has already.
    written: usize,
}

/// There is no room for a line, because the disk has failed for long.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoRoom;

impl AuditFile {
    /// Opens the file, and creates it for its owner alone (0600).
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let (file, identity) = opened(&path)?;
        Ok(Self { path, file, identity, waiting: VecDeque::new(), waiting_bytes: 0, written: 0 })
    }

    /// Adds a line, which [`Self::flush`] writes. The line includes its end.
    pub(super) fn add(&mut self, line: Vec<u8>) -> Result<(), NoRoom> {
        if self.waiting_bytes + line.len() > MOST_WAITING {
            return Err(NoRoom);
        }
        self.waiting_bytes += line.len();
        self.waiting.push_back(line);
        Ok(())
    }

    /// Writes the waiting lines. After an error they still wait.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.follow_rotation()?;
        while let Some(line) = self.waiting.front() {
            // A full disk may take a part of a line. The next attempt continues that line, so no line is torn.
            match self.file.write(line.get(self.written..).unwrap_or_default()) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) if self.written + count < line.len() => self.written += count,
                Ok(_) => {
                    self.waiting_bytes -= line.len();
                    self.written = 0;
                    self.waiting.pop_front();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Opens the path again if it names another file, as after a rotation.
    fn follow_rotation(&mut self) -> io::Result<()> {
        let is_same =
            std::fs::metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.identity);
        if !is_same {
            (self.file, self.identity) = opened(&self.path)?;
            // The new file gets the whole line, of which the old one may have a part.
            self.written = 0;
        }
        Ok(())
    }
}

fn opened(path: &PathBuf) -> io::Result<(File, (u64, u64))> {
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    let metadata = file.metadata()?;
    Ok((file, (metadata.dev(), metadata.ino())))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn add(file: &mut AuditFile, line: &str) -> io::Result<()> {
        file.add(line.as_bytes().to_vec()).unwrap();
        file.flush()
    }

    #[test]
    fn a_rotated_file_is_left_and_a_new_one_begins() {
        let dir = tempfile::tempdir().unwrap();
        let (path, old) = (dir.path().join("audit"), dir.path().join("audit.1"));
        let mut file = AuditFile::open(path.clone()).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        add(&mut file, "one\n").unwrap();
        std::fs::rename(&path, &old).unwrap();
        add(&mut file, "two\n").unwrap();
        std::fs::remove_file(&path).unwrap();
        add(&mut file, "three\n").unwrap();
        // As `copytruncate` of logrotate does.
        std::fs::write(&path, "").unwrap();
        add(&mut file, "four\n").unwrap();
        let read = |path| std::fs::read_to_string(path).unwrap();
        assert_eq!((read(&old), read(&path)), ("one\n".to_owned(), "four\n".to_owned()));
    }

    #[test]
    fn lines_wait_for_a_full_disk_and_have_a_bound() {
        let dir = tempfile::tempdir().unwrap();
        let (path, good) = (dir.path().join("audit"), dir.path().join("good"));
        symlink("/dev/full", &path).unwrap();
        let mut file = AuditFile::open(path.clone()).unwrap();
        assert_eq!(add(&mut file, "one\n").unwrap_err().kind(), ErrorKind::StorageFull);
        assert_eq!(add(&mut file, "two\n").unwrap_err().kind(), ErrorKind::StorageFull);
        assert_eq!(file.add(vec![b'x'; MOST_WAITING]), Err(NoRoom));
        std::fs::remove_file(&path).unwrap();
        symlink(&good, &path).unwrap();
        file.flush().unwrap();
        assert_eq!(std::fs::read_to_string(&good).unwrap(), "one\ntwo\n");
        file.add(vec![b'x'; MOST_WAITING]).unwrap();
    }
}
