//! Folders as compressed archives, on their way between hosts.

use std::fs::File;
use std::io;
use std::path::Path;

use super::EnvironmentError;
use super::transfer::archive::{pack, walk};
use super::transfer::fetch::Exclusions;
use super::transfer::unpack::{Destinations, unpack};

/// The name of the folder in its archive.
const INSIDE: &str = "folder";
/// The level of zstd that is its own default.
const LEVEL: i32 = 3;

/// Packs everything in the folder `dir` into the file `to`, as a tar archive with zstd. Does not follow links.
///
/// # Errors
/// A file cannot be read or written.
pub(crate) fn pack_folder(dir: &Path, to: &Path) -> Result<(), EnvironmentError> {
    let archive = pack(&walk(dir)?, Path::new(INSIDE))?;
    let packed = File::create(to).and_then(|file| zstd::stream::copy_encode(archive, file, LEVEL));
    packed.map_err(EnvironmentError::io("write", to))
}

/// Unpacks such a file into the folder `dir`, by the rules of [`unpack`], without the files of these names.
///
/// # Errors
/// The archive is damaged or too large, or a file cannot be written.
pub(crate) fn unpack_folder(from: &Path, dir: &Path, without: &[&str]) -> Result<(), EnvironmentError> {
    let damaged = |source: io::Error| EnvironmentError::Io { action: "read", path: from.to_owned(), source };
    let archive = File::open(from).and_then(zstd::Decoder::new).map_err(damaged)?;
    let without: Vec<String> = without.iter().map(|name| (*name).to_owned()).collect();
    unpack(archive, INSIDE, &Destinations::one(dir).without(&Exclusions::new(&without))).map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_folder_returns_with_its_modes_and_links() {
        let temporary = tempfile::tempdir().unwrap();
        let (from, to, packed) =
            (temporary.path().join("from"), temporary.path().join("to"), temporary.path().join("packed"));
        fs::create_dir_all(from.join("tests/empty")).unwrap();
        fs::write(from.join("tests/test.sh"), "true").unwrap();
        fs::set_permissions(from.join("tests/test.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(from.join("config.json"), "{}").unwrap();
        symlink("test.sh", from.join("tests/link")).unwrap();
        pack_folder(&from, &packed).unwrap();
        unpack_folder(&packed, &to, &["./config.json"]).unwrap();
        assert!(to.join("tests/empty").is_dir());
        assert_eq!(fs::metadata(to.join("tests/test.sh")).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::read_link(to.join("tests/link")).unwrap(), Path::new("test.sh"));
        assert!(!to.join("config.json").exists());
    }

    proptest::proptest! {
        #[test]
        fn no_content_panics(content in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let temporary = tempfile::tempdir().unwrap();
            let packed = temporary.path().join("packed");
            fs::write(&packed, content).unwrap();
            let _ = unpack_folder(&packed, &temporary.path().join("to"), &[]);
        }
    }
}
