//! Packs directories of this host as tar archives.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::environment::EnvironmentError;

/// A file, directory or symbolic link below a directory.
#[derive(Debug)]
pub(crate) struct ArchiveEntry {
    /// The path relative to that directory.
    pub(crate) name: PathBuf,
    pub(crate) path: PathBuf,
    pub(crate) metadata: fs::Metadata,
}

/// Returns everything below `dir`, sorted by name, each directory before its contents. Does not follow links. Skips
/// sockets, pipes and devices.
pub(crate) fn walk(dir: &Path) -> Result<Vec<ArchiveEntry>, EnvironmentError> {
    let mut entries = Vec::new();
    walk_into(dir, Path::new(""), &mut entries)?;
    Ok(entries)
}

/// Returns the entry of a single file or link, under its own name.
pub(crate) fn entry(path: &Path) -> Result<ArchiveEntry, EnvironmentError> {
    let metadata = fs::symlink_metadata(path).map_err(EnvironmentError::io("read", path))?;
    let name = path.file_name().map(PathBuf::from).unwrap_or_default();
    Ok(ArchiveEntry { name, path: path.to_owned(), metadata })
}

fn walk_into(dir: &Path, prefix: &Path, entries: &mut Vec<ArchiveEntry>) -> Result<(), EnvironmentError> {
    let unreadable = |source| EnvironmentError::Io { action: "read", path: dir.to_owned(), source };
    let mut listing = dir.read_dir().and_then(Iterator::collect::<io::Result<Vec<_>>>).map_err(unreadable)?;
    // The order of a directory listing is arbitrary, and the content hash depends on it.
    listing.sort_by_key(fs::DirEntry::file_name);
    for entry in listing {
        let (name, path) = (prefix.join(entry.file_name()), entry.path());
        let metadata = entry.metadata().map_err(EnvironmentError::io("read", &path))?;
        let kind = metadata.file_type();
        if !(kind.is_dir() || kind.is_file() || kind.is_symlink()) {
            continue;
        }
        entries.push(ArchiveEntry { name: name.clone(), path: path.clone(), metadata });
        if kind.is_dir() {
            walk_into(&path, &name, entries)?;
        }
    }
    Ok(())
}

/// A tar archive under construction, in an unnamed temporary file. Every entry belongs to root.
pub(crate) struct Archive(tar::Builder<File>);

impl Archive {
    pub(crate) fn new() -> Result<Self, EnvironmentError> {
        Ok(Self(tar::Builder::new(tempfile::tempfile().map_err(temporary)?)))
    }

    pub(crate) fn directory(&mut self, name: &Path, mode: u32) -> Result<(), EnvironmentError> {
        append_directory(&mut self.0, name, mode, 0).map_err(temporary)
    }

    /// Appends all entries with their modes and times, each name below `prefix`. Without entries, appends an empty
    /// directory `prefix`.
    pub(crate) fn contents(
        &mut self,
        entries: &[ArchiveEntry],
        prefix: &Path,
    ) -> Result<(), EnvironmentError> {
        if entries.is_empty() && prefix != Path::new("") {
            self.directory(prefix, 0o755)?;
        }
        for entry in entries {
            append(&mut self.0, entry, prefix).map_err(EnvironmentError::io("pack", &entry.path))?;
        }
        Ok(())
    }

    /// Finishes the archive and rewinds it for reading.
    pub(crate) fn finish(self) -> Result<File, EnvironmentError> {
        let mut file = self.0.into_inner().map_err(temporary)?;
        file.rewind().map_err(temporary)?;
        Ok(file)
    }
}

fn temporary(source: io::Error) -> EnvironmentError {
    EnvironmentError::Io { action: "write to", path: std::env::temp_dir(), source }
}

/// Returns an archive of `entries` alone.
pub(crate) fn pack(entries: &[ArchiveEntry], prefix: &Path) -> Result<File, EnvironmentError> {
    let mut archive = Archive::new()?;
    archive.contents(entries, prefix)?;
    archive.finish()
}

/// Returns the first 16 hexadecimal digits of a hash over names, kinds, modes and contents.
pub(crate) fn content_hash(entries: &[ArchiveEntry]) -> Result<String, EnvironmentError> {
    let mut hash = Sha256::new();
    let mut field = |bytes: &[u8]| {
        // The length prefix prevents two different lists of fields from having the same bytes.
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    for ArchiveEntry { name, path, metadata } in entries {
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

fn append(builder: &mut tar::Builder<File>, entry: &ArchiveEntry, prefix: &Path) -> io::Result<()> {
    let ArchiveEntry { name, path, metadata } = entry;
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
        // A file that shrinks or grows while it is read still fills exactly its declared size.
        let contents = File::open(path)?.chain(io::repeat(0)).take(metadata.len());
        builder.append_data(&mut header, name, contents)
    }
}

fn append_directory(builder: &mut tar::Builder<File>, name: &Path, mode: u32, time: u64) -> io::Result<()> {
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
