//! Unpacks a file or a directory of an environment, whichever the archive contains.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use super::unpack::{DOWNLOAD_BYTES, Destinations, unpack, write_file};
use crate::environment::EnvironmentError;
use crate::task::glob::matches_text;

/// The kind of a fetched path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// One file.
    File,
    /// A directory with its contents.
    Directory,
}

/// Unpacks the archive of one path to `to`, by the rules of [`unpack`].
pub(crate) fn unpack_path(
    mut archive: File,
    inside: &str,
    to: &Path,
    exclude: &Exclusions,
) -> Result<Fetched, EnvironmentError> {
    let broken = |source| EnvironmentError::Io { action: "unpack", path: inside.into(), source };
    let no_such = || EnvironmentError::NoSuchPath(inside.to_owned());
    {
        let mut reader = tar::Archive::new(&mut archive);
        let mut first = reader.entries().map_err(broken)?.next().ok_or_else(no_such)?.map_err(broken)?;
        let kind = first.header().entry_type();
        if kind.is_file() || kind.is_gnu_sparse() || kind.is_contiguous() {
            let (parent, name) = to.parent().zip(to.file_name()).ok_or_else(no_such)?;
            fs::create_dir_all(parent).map_err(EnvironmentError::io("create", parent))?;
            let executable = first.header().mode().is_ok_and(|mode| mode & 0o111 != 0);
            let written = write_limited(parent, Path::new(name), executable, &mut first, DOWNLOAD_BYTES);
            return match written.map_err(EnvironmentError::io("write", to))? {
                Some(_) => Ok(Fetched::File),
                None => Err(EnvironmentError::TooLarge {
                    inside: inside.to_owned(),
                    limit: format!("{DOWNLOAD_BYTES} bytes"),
                }),
            };
        }
        // Links and special files are not fetched.
        if !kind.is_dir() {
            return Err(no_such());
        }
    }
    // `unpack` reads the archive from its start, including the directory's own entry.
    archive.seek(SeekFrom::Start(0)).map_err(broken)?;
    unpack(archive, inside, &Destinations::one(to).without(exclude))?;
    Ok(Fetched::Directory)
}

/// Writes a file of at most `limit` bytes. Returns the number of bytes. If there are more, removes the file and returns
/// `None`.
fn write_limited(
    parent: &Path,
    name: &Path,
    executable: bool,
    contents: &mut impl Read,
    limit: u64,
) -> io::Result<Option<u64>> {
    // One byte more than allowed is read, so that a file that is too large is noticed.
    let written = write_file(parent, name, executable, &mut contents.take(limit + 1))?;
    if written <= limit {
        return Ok(Some(written));
    }
    fs::remove_file(parent.join(name))?;
    Ok(None)
}

/// Name patterns that are excluded from a directory, by the rules of `tar --exclude`. A pattern may begin at any
/// component, `*` also matches slashes, and a directory is excluded with its contents.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exclusions(Vec<String>);

impl Exclusions {
    pub(crate) fn new(patterns: &[String]) -> Self {
        Self(patterns.iter().map(|pattern| pattern.trim_end_matches('/').to_owned()).collect())
    }

    /// Whether this path, relative to the directory, is excluded.
    pub(crate) fn cover(&self, path: &Path) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let parts: Vec<_> = path.components().map(|part| part.as_os_str().to_string_lossy()).collect();
        (0..parts.len()).any(|start| {
            let tails = (start + 1..=parts.len()).filter_map(|end| Some(parts.get(start..end)?.join("/")));
            tails.into_iter().any(|tail| {
                self.0.iter().any(|pattern| {
                    matches_text(pattern, &tail)
                        || (start == 0 && pattern.strip_prefix("./").is_some_and(|p| matches_text(p, &tail)))
                })
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_beyond_the_limit_is_not_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        for (length, expected) in [(9, Some(9)), (10, Some(10)), (11, None), (5000, None)] {
            let name = Path::new("file");
            let written = write_limited(dir.path(), name, false, &mut io::repeat(7).take(length), 10);
            assert_eq!(written.unwrap(), expected, "{length}");
            assert_eq!(dir.path().join(name).exists(), expected.is_some(), "{length}");
        }
    }

    #[test]
    fn names_are_left_out_as_by_tar() {
        for (pattern, path, covered) in [
            ("*.log", "a.log", true),
            ("*.log", "deep/a.log", true),
            ("*.log", "deep/a.log.txt", false),
            ("cache", "deep/cache/x", true),
            ("cache/", "cache/x", true),
            ("deep/cache", "deep/cache", true),
            ("deep/cache", "more/deep/cache/x", true),
            ("deep*x", "deep/cache/x", true),
            ("./cache", "cache/x", true),
            ("./cache", "deep/cache/x", false),
            ("ache", "cache", false),
        ] {
            let exclusions = Exclusions::new(&[pattern.to_owned()]);
            assert_eq!(exclusions.cover(Path::new(path)), covered, "{pattern} {path}");
        }
        assert!(!Exclusions::default().cover(Path::new("a")));
    }
}
