//! Directories as tar archives: packed on this host, unpacked from environments that are not trusted.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use sha2::{Digest, Sha256};

use super::EnvironmentError;

/// Bytes that one download may bring: far above any log, far below a full disk.
pub(super) const DOWNLOAD_BYTES: u64 = 512 * 1024 * 1024;
/// Files, directories and links that one download may bring.
const DOWNLOAD_ENTRIES: u64 = 50_000;
/// Names of skipped entries that are reported.
const SKIPPED_NAMES: usize = 100;

/// What a download brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Downloaded {
    /// Files and links written.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// The first hundred entries left behind: special files, links that point upwards or to absolute paths, names that
    /// lead elsewhere.
    pub skipped: Vec<String>,
}

/// A file, directory or symbolic link below some directory.
#[derive(Debug)]
pub(super) struct Entry {
    /// Relative to that directory.
    pub(super) name: PathBuf,
    pub(super) path: PathBuf,
    pub(super) metadata: fs::Metadata,
}

/// Everything below `dir`, in order of names, directories before what is in them. Links are not followed; sockets,
/// pipes and devices are left out.
pub(super) fn walk(dir: &Path) -> Result<Vec<Entry>, EnvironmentError> {
    let mut entries = Vec::new();
    walk_into(dir, Path::new(""), &mut entries)?;
    Ok(entries)
}

fn walk_into(dir: &Path, prefix: &Path, entries: &mut Vec<Entry>) -> Result<(), EnvironmentError> {
    let unreadable = |source| EnvironmentError::Io { action: "read", path: dir.to_owned(), source };
    let mut listing = dir.read_dir().and_then(Iterator::collect::<io::Result<Vec<_>>>).map_err(unreadable)?;
    listing.sort_by_key(fs::DirEntry::file_name);
    for entry in listing {
        let (name, path) = (prefix.join(entry.file_name()), entry.path());
        let metadata = entry.metadata().map_err(EnvironmentError::io("read", &path))?;
        let kind = metadata.file_type();
        if !(kind.is_dir() || kind.is_file() || kind.is_symlink()) {
            continue;
        }
        entries.push(Entry { name: name.clone(), path: path.clone(), metadata });
        if kind.is_dir() {
            walk_into(&path, &name, entries)?;
        }
    }
    Ok(())
}

/// An archive of `entries`, each name behind `prefix` (or of an empty directory of that name), in an unnamed temporary file that is ready to be read. Modes and
/// times are kept; everything belongs to root.
pub(super) fn pack(entries: &[Entry], prefix: &Path) -> Result<File, EnvironmentError> {
    let temporary = |source| EnvironmentError::Io { action: "write to", path: std::env::temp_dir(), source };
    let mut builder = tar::Builder::new(tempfile::tempfile().map_err(temporary)?);
    if entries.is_empty() && prefix != Path::new("") {
        append_directory(&mut builder, prefix, 0o755, 0).map_err(temporary)?;
    }
    for entry in entries {
        append(&mut builder, entry, prefix).map_err(EnvironmentError::io("pack", &entry.path))?;
    }
    let mut file = builder.into_inner().map_err(temporary)?;
    file.rewind().map_err(temporary)?;
    Ok(file)
}

/// The first 16 hexadecimal digits of a hash over names, kinds, modes and contents.
pub(super) fn content_hash(entries: &[Entry]) -> Result<String, EnvironmentError> {
    let mut hash = Sha256::new();
    let mut field = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    for Entry { name, path, metadata } in entries {
        let unreadable = |source| EnvironmentError::Io { action: "read", path: path.clone(), source };
        field(name.as_os_str().as_encoded_bytes());
        field(&metadata.mode().to_le_bytes());
        if metadata.is_symlink() {
            field(fs::read_link(path).map_err(unreadable)?.as_os_str().as_encoded_bytes());
        } else if metadata.is_file() {
            field(&file_hash(path).map_err(unreadable)?);
        }
    }
    Ok(hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect())
}

fn file_hash(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let (mut hash, mut chunk) = (Sha256::new(), vec![0; 64 * 1024]);
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(hash.finalize().to_vec()),
            length => hash.update(chunk.get(..length).unwrap_or_default()),
        }
    }
}

fn append(builder: &mut tar::Builder<File>, entry: &Entry, prefix: &Path) -> io::Result<()> {
    let Entry { name, path, metadata } = entry;
    let name = prefix.join(name);
    let (mode, time) = (metadata.mode() & 0o7777, u64::try_from(metadata.mtime()).unwrap_or(0));
    let mut header = header(tar::EntryType::Regular, mode, time);
    if metadata.is_dir() {
        append_directory(builder, &name, mode, time)
    } else if metadata.is_symlink() {
        header.set_entry_type(tar::EntryType::Symlink);
        builder.append_link(&mut header, name, fs::read_link(path)?)
    } else {
        header.set_size(metadata.len());
        // A file that changes while it is read still fills its place in the archive exactly.
        let contents = File::open(path)?.chain(io::repeat(0)).take(metadata.len());
        builder.append_data(&mut header, name, contents)
    }
}

/// A directory that belongs to root.
pub(super) fn append_directory(
    builder: &mut tar::Builder<impl Write>,
    name: &Path,
    mode: u32,
    time: u64,
) -> io::Result<()> {
    builder.append_data(&mut header(tar::EntryType::Directory, mode, time), name, io::empty())
}

fn header(kind: tar::EntryType, mode: u32, time: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_mtime(time);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(0);
    header
}

/// Unpacks an archive that came from an environment into `host_dir`. The first component of every name, the directory
/// that was asked for, is dropped.
///
/// Nothing is written outside `host_dir`, whatever the archive says: names with `..` are skipped, no link is followed,
/// and the only links made are relative ones without `..`, after everything else.
pub(super) fn unpack(
    archive: impl Read,
    inside: &str,
    host_dir: &Path,
) -> Result<Downloaded, EnvironmentError> {
    fs::create_dir_all(host_dir).map_err(EnvironmentError::io("create", host_dir))?;
    let broken = |source| EnvironmentError::Io { action: "unpack into", path: host_dir.to_owned(), source };
    let too_large = |limit: String| EnvironmentError::TooLarge { inside: inside.to_owned(), limit };
    let mut downloaded = Downloaded::default();
    let mut links = Vec::new();
    let mut count = 0;
    for entry in tar::Archive::new(archive).entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        count += 1;
        if count > DOWNLOAD_ENTRIES {
            return Err(too_large(format!("{DOWNLOAD_ENTRIES} entries")));
        }
        let name = entry.path().map_err(broken)?.into_owned();
        let Some(relative) = safe_name(&name) else {
            downloaded.skip(&name);
            continue;
        };
        if relative.as_os_str().is_empty() {
            continue;
        }
        let kind = entry.header().entry_type();
        let written = if kind.is_dir() {
            make_directories(host_dir, &relative).map(|()| 0)
        } else if kind.is_symlink() {
            links.push((
                name,
                relative,
                entry.link_name().map_err(broken)?.map(std::borrow::Cow::into_owned),
            ));
            continue;
        } else if kind.is_file() || kind.is_gnu_sparse() || kind.is_contiguous() {
            let room = DOWNLOAD_BYTES.saturating_sub(downloaded.bytes);
            let executable = entry.header().mode().is_ok_and(|mode| mode & 0o111 != 0);
            let written = write_file(host_dir, &relative, executable, &mut (&mut entry).take(room + 1));
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
    for (name, relative, target) in links {
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

    /// Names that this host cannot take are skipped; a full disk and the like is an error.
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

/// The name without its first component, if it leads nowhere but downwards.
fn safe_name(name: &Path) -> Option<PathBuf> {
    let components = name.components().filter(|component| *component != Component::CurDir);
    let normal = components.map(|component| match component {
        Component::Normal(part) => Some(part),
        _ => None,
    });
    Some(normal.collect::<Option<Vec<_>>>()?.into_iter().skip(1).collect())
}

/// Without `..` no chain of links can leave the directory that the first one is in.
fn is_harmless(target: &Path) -> bool {
    target.components().all(|component| matches!(component, Component::Normal(_) | Component::CurDir))
}

/// Like `create_dir_all`, but a link in the way is an error.
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

/// Makes room for a file or link: its directories are there, and nothing but a directory is in its place.
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

fn write_file(
    host_dir: &Path,
    relative: &Path,
    executable: bool,
    contents: &mut impl Read,
) -> io::Result<u64> {
    let path = make_room(host_dir, relative)?;
    let mode = if executable { 0o755 } else { 0o644 };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path)?;
    let written = io::copy(contents, &mut file)?;
    file.flush()?;
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    Ok(written)
}

fn make_link(host_dir: &Path, relative: &Path, target: &Path) -> io::Result<()> {
    symlink(target, make_room(host_dir, relative)?)
}

#[cfg(test)]
#[path = "archive_tests.rs"]
mod tests;
