//! The version of a file, which shows a change without reading the file.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The facts about a file that change when the file changes. A replaced file has another inode, and changed
/// permissions another `ctime`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileVersion {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) size: u64,
    pub(crate) modified: (i64, i64),
    pub(crate) changed: (i64, i64),
}

impl FileVersion {
    /// Returns the version of a file. `None` if the file cannot be examined.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().as_ref().map(Self::from)
    }
}

impl From<&Metadata> for FileVersion {
    fn from(file: &Metadata) -> Self {
        Self {
            device: file.dev(),
            inode: file.ino(),
            size: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }
}
