//! Unpacks archives that come out of environments. Their content is not trusted.

use std::borrow::Cow;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use super::fetch::Exclusions;
use crate::environment::{EnvironmentError, LogDirs};

/// The most bytes of one download: far above any log, and far below a full disk.
pub(crate) const DOWNLOAD_BYTES: u64 = 512 * 1024 * 1024;
/// The most files, directories and links of one download.
const DOWNLOAD_ENTRIES: u64 = 50_000;
/// The most skipped entries that are reported by name.
const SKIPPED_NAMES: usize = 100;

/// The result of a download.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Downloaded {
    /// Number of files and links written.
    pub files: u64,
    /// Number of bytes in them.
    pub bytes: u64,
    /// The first 100 skipped entries: special files, links that point upwards or to absolute paths, and names that lead
    /// elsewhere.
    pub skipped: Vec<String>,
}

/// The directories of this host into which an archive is unpacked, by the directory in the archive.
pub(crate) struct Destinations<'a> {
    places: Vec<(&'static str, &'a Path)>,
    /// Patterns whose matches below this directory of the archive are not unpacked.
    exclude: Option<(&'static str, Cow<'a, Exclusions>)>,
}

impl<'a> Destinations<'a> {
    /// Returns the destination that puts everything into one directory.
    pub(crate) fn one(host_dir: &'a Path) -> Self {
        Self { places: vec![("", host_dir)], exclude: None }
    }

    /// Returns the destinations of `/logs`: each log directory has its own. Other entries are skipped.
    pub(crate) fn of_logs(to: &'a LogDirs) -> Self {
        let places = vec![("agent", &*to.agent), ("verifier", &*to.verifier), ("artifacts", &*to.artifacts)];
        // Only the artifacts have exclusions. The same name in other logs is unpacked.
        Self { places, exclude: Some(("artifacts", Cow::Owned(Exclusions::new(&to.exclude)))) }
    }

    /// Adds patterns whose matches are not unpacked.
    pub(crate) fn without(self, exclude: &'a Exclusions) -> Self {
        Self { exclude: Some(("", Cow::Borrowed(exclude))), ..self }
    }

    fn leaves_out(&self, name: &Path) -> bool {
        let Some((inside, exclude)) = &self.exclude else { return false };
        name.strip_prefix(inside).is_ok_and(|below| exclude.cover(below))
    }

    fn place<'n>(&self, name: &'n Path) -> Option<(&'a Path, &'n Path)> {
        self.places.iter().find_map(|(inside, host_dir)| Some((*host_dir, name.strip_prefix(inside).ok()?)))
    }

    fn make(&self) -> Result<(), EnvironmentError> {
        let made =
            |(_, dir): &(_, &Path)| fs::create_dir_all(dir).map_err(EnvironmentError::io("create", dir));
        self.places.iter().try_for_each(made)
    }
}

/// Unpacks an archive that came from an environment. Removes the first component of every name, which is the requested
/// directory.
///
/// Writes nothing outside the destinations, whatever the archive contains. Skips names with `..`, follows no link, and
/// creates only relative links without `..`, after everything else.
///
/// # Errors
/// The archive is invalid or too large, or a file cannot be written for another reason than its name.
pub(crate) fn unpack(
    archive: impl Read,
    inside: &str,
    to: &Destinations<'_>,
) -> Result<Downloaded, EnvironmentError> {
    to.make()?;
    let broken = |source| EnvironmentError::Io { action: "unpack", path: inside.into(), source };
    let too_large = |limit: String| EnvironmentError::TooLarge { inside: inside.to_owned(), limit };
    let mut downloaded = Downloaded::default();
    let mut links = Vec::new();
    let mut count = 0;
    for entry in tar::Archive::new(archive).entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        count += 1;
        // Also limits entries without content, which cost an inode each.
        if count > DOWNLOAD_ENTRIES {
            return Err(too_large(format!("{DOWNLOAD_ENTRIES} entries")));
        }
        let name = entry.path().map_err(broken)?.into_owned();
        let Some(below) = safe_name(&name) else {
            downloaded.skip(&name);
            continue;
        };
        if below.as_os_str().is_empty() || to.leaves_out(&below) {
            continue;
        }
        let Some((host_dir, relative)) = to.place(&below) else {
            downloaded.skip(&name);
            continue;
        };
        let kind = entry.header().entry_type();
        let written = if kind.is_dir() {
            make_directories(host_dir, relative).map(|()| 0)
        } else if kind.is_symlink() {
            let target = entry.link_name().map_err(broken)?.map(std::borrow::Cow::into_owned);
            // Links are created last, so that no later entry is written through one.
            links.push((name, host_dir, relative.to_owned(), target));
            continue;
        } else if kind.is_file() || kind.is_gnu_sparse() || kind.is_contiguous() {
            let room = DOWNLOAD_BYTES.saturating_sub(downloaded.bytes);
            let executable = entry.header().mode().is_ok_and(|mode| mode & 0o111 != 0);
            // One byte more than allowed is read, so that an entry that is too large is noticed.
            let written = write_file(host_dir, relative, executable, &mut (&mut entry).take(room + 1));
            if written.as_ref().is_ok_and(|bytes| *bytes > room) {
                return Err(too_large(format!("{DOWNLOAD_BYTES} bytes")));
            }
            downloaded.files += u64::from(written.is_ok());
            written
        } else {
            downloaded.skip(&name);
            continue;
        };
        downloaded.count(&name, written, host_dir)?;
    }
    for (name, host_dir, relative, target) in links {
        let made = match target.filter(|target| is_harmless(target)) {
            Some(target) => make_link(host_dir, &relative, &target),
            None => Err(ErrorKind::InvalidFilename.into()),
        };
        downloaded.files += u64::from(made.is_ok());
        downloaded.count(&name, made.map(|()| 0), host_dir)?;
    }
    Ok(downloaded)
}

impl Downloaded {
    fn skip(&mut self, name: &Path) {
        if self.skipped.len() < SKIPPED_NAMES {
            self.skipped.push(name.to_string_lossy().into_owned());
        }
    }

    /// Counts a written entry. An entry whose name this host does not accept is skipped. Other errors, such as a full
    /// disk, are returned.
    fn count(
        &mut self,
        name: &Path,
        written: io::Result<u64>,
        host_dir: &Path,
    ) -> Result<(), EnvironmentError> {
        match written {
            Ok(bytes) => self.bytes += bytes,
            Err(error) if is_about_the_name(&error) => self.skip(name),
            Err(source) => {
                return Err(EnvironmentError::Io {
                    action: "unpack into",
                    path: host_dir.join(name),
                    source,
                });
            }
        }
        Ok(())
    }
}

fn is_about_the_name(error: &io::Error) -> bool {
    use ErrorKind::{AlreadyExists, InvalidFilename, InvalidInput, IsADirectory, NotADirectory};
    matches!(error.kind(), AlreadyExists | InvalidFilename | InvalidInput | IsADirectory | NotADirectory)
}

/// Returns the name without its first component, or `None` if it contains `..` or is absolute.
fn safe_name(name: &Path) -> Option<PathBuf> {
    let components = name.components().filter(|component| *component != Component::CurDir);
    let normal = components.map(|component| match component {
        Component::Normal(part) => Some(part),
        _ => None,
    });
    Some(normal.collect::<Option<Vec<_>>>()?.into_iter().skip(1).collect())
}

/// Whether a link's target is relative and has no `..`, so that no chain of links can leave the directory.
fn is_harmless(target: &Path) -> bool {
    target.components().all(|component| matches!(component, Component::Normal(_) | Component::CurDir))
}

/// Creates directories like `create_dir_all`, but a link in the path is an error.
fn make_directories(host_dir: &Path, relative: &Path) -> io::Result<()> {
    let mut path = host_dir.to_owned();
    for component in relative {
        path.push(component);
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => return Err(ErrorKind::NotADirectory.into()),
            Err(error) if error.kind() == ErrorKind::NotFound => fs::create_dir(&path)?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Creates the parent directories of a file or link, and removes a file or link in its place.
fn make_room(host_dir: &Path, relative: &Path) -> io::Result<PathBuf> {
    make_directories(host_dir, relative.parent().unwrap_or(Path::new("")))?;
    let path = host_dir.join(relative);
    match fs::symlink_metadata(&path) {
        Ok(metadata) if !metadata.is_dir() => fs::remove_file(&path)?,
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    Ok(path)
}

/// Writes a new file in place of an existing file or link. Returns the number of bytes.
pub(crate) fn write_file(
    host_dir: &Path,
    relative: &Path,
    executable: bool,
    contents: &mut impl Read,
) -> io::Result<u64> {
    let path = make_room(host_dir, relative)?;
    let mode = if executable { 0o755 } else { 0o644 };
    // `create_new` does not follow a link.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path)?;
    let written = io::copy(contents, &mut file)?;
    file.flush()?;
    // The mode of `open` is reduced by the umask.
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    Ok(written)
}

fn make_link(host_dir: &Path, relative: &Path, target: &Path) -> io::Result<()> {
    symlink(target, make_room(host_dir, relative)?)
}

#[cfg(test)]
mod tests;
