//! Hostile archives are harmless, and honest ones are unpacked unchanged.

use std::os::unix::fs::MetadataExt;

use proptest::prelude::*;
use tar::EntryType;

use super::*;
use crate::environment::transfer::archive::{pack, walk};

/// Returns an archive entry with raw bytes as its name. The tar crate's own builder refuses to write an attacker's
/// names.
fn raw(kind: EntryType, name: &str, link: &str, contents: &[u8]) -> (tar::Header, Vec<u8>) {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o6777);
    header.set_size(contents.len() as u64);
    let old = header.as_old_mut();
    old.name[..name.len()].copy_from_slice(name.as_bytes());
    old.linkname[..link.len()].copy_from_slice(link.as_bytes());
    header.set_cksum();
    (header, contents.to_vec())
}

fn archive(entries: &[(tar::Header, Vec<u8>)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (header, contents) in entries {
        builder.append(header, contents.as_slice()).unwrap();
    }
    builder.into_inner().unwrap()
}

struct Scene {
    outer: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let outer = tempfile::tempdir().unwrap();
        fs::create_dir(outer.path().join("host")).unwrap();
        fs::write(outer.path().join("victim"), "untouched").unwrap();
        Self { outer }
    }

    fn unpack(&self, entries: &[(tar::Header, Vec<u8>)]) -> Result<Downloaded, EnvironmentError> {
        unpack(archive(entries).as_slice(), "/logs", &Destinations::one(&self.outer.path().join("host")))
    }

    fn host(&self, name: &str) -> PathBuf {
        self.outer.path().join("host").join(name)
    }

    fn assert_unharmed(&self) {
        let names: Vec<_> = walk(self.outer.path()).unwrap().into_iter().map(|entry| entry.name).collect();
        let outside: Vec<_> = names.iter().filter(|name| !name.starts_with("host")).collect();
        assert_eq!(outside, [Path::new("victim")]);
        assert_eq!(fs::read_to_string(self.outer.path().join("victim")).unwrap(), "untouched");
    }
}

#[test]
fn names_that_lead_elsewhere_are_skipped() {
    let scene = Scene::new();
    let names =
        ["logs/../../victim", "/logs/../victim", "../victim", "logs/a/../../../victim", "/etc/victim", ".."];
    let entries: Vec<_> = names.iter().map(|name| raw(EntryType::Regular, name, "", b"harm")).collect();
    let downloaded = scene.unpack(&entries).unwrap();
    assert_eq!((downloaded.files, downloaded.skipped), (0, names.map(str::to_owned).to_vec()));
    scene.assert_unharmed();
}

#[test]
fn links_cannot_be_written_through() {
    let scene = Scene::new();
    let downloaded = scene
        .unpack(&[
            raw(EntryType::Symlink, "logs/up", "..", b""),
            raw(EntryType::Symlink, "logs/abs", "/tmp", b""),
            raw(EntryType::Symlink, "logs/chain", "here/here/../..", b""),
            raw(EntryType::Symlink, "logs/here", ".", b""),
            raw(EntryType::Regular, "logs/up/victim", "", b"harm"),
            raw(EntryType::Link, "logs/hard", "../victim", b""),
            raw(EntryType::Link, "logs/hard2", "/etc/passwd", b""),
        ])
        .unwrap();
    assert_eq!(downloaded.skipped, ["logs/hard", "logs/hard2", "logs/up", "logs/abs", "logs/chain"]);
    assert_eq!(fs::read_link(scene.host("here")).unwrap(), Path::new("."));
    scene.assert_unharmed();
}

#[test]
fn links_of_an_earlier_download_are_not_followed() {
    let scene = Scene::new();
    symlink(scene.outer.path(), scene.host("out")).unwrap();
    symlink("../victim", scene.host("file")).unwrap();
    let downloaded = scene
        .unpack(&[
            raw(EntryType::Regular, "logs/out/victim", "", b"harm"),
            raw(EntryType::Directory, "logs/out/made", "", b""),
            raw(EntryType::Regular, "logs/file", "", b"mine"),
        ])
        .unwrap();
    assert_eq!(downloaded.skipped, ["logs/out/victim", "logs/out/made"]);
    assert_eq!(fs::read(scene.host("file")).unwrap(), b"mine");
    scene.assert_unharmed();
}

#[test]
fn special_files_and_bits_stay_behind() {
    let scene = Scene::new();
    let downloaded = scene
        .unpack(&[
            raw(EntryType::Fifo, "logs/pipe", "", b""),
            raw(EntryType::Char, "logs/zero", "", b""),
            raw(EntryType::Regular, "logs/run", "", b"#!/bin/sh\n"),
        ])
        .unwrap();
    assert_eq!(downloaded.skipped, ["logs/pipe", "logs/zero"]);
    assert_eq!(fs::metadata(scene.host("run")).unwrap().mode() & 0o7777, 0o755);
}

#[test]
fn a_name_that_this_host_cannot_take_costs_that_entry_alone() {
    let scene = Scene::new();
    let downloaded = scene
        .unpack(&[
            raw(EntryType::Regular, "logs/a", "", b"file"),
            raw(EntryType::Regular, "logs/a/b", "", b"below a file"),
            raw(EntryType::Directory, "logs/d/", "", b""),
            raw(EntryType::Regular, "logs/d", "", b"over a directory"),
            raw(EntryType::Regular, "logs/c", "", b"fine"),
        ])
        .unwrap();
    assert_eq!(downloaded.skipped, ["logs/a/b", "logs/d"]);
    assert_eq!((downloaded.files, downloaded.bytes), (2, 8));
}

#[test]
fn too_many_entries_are_an_error() {
    let scene = Scene::new();
    let entry = raw(EntryType::Directory, "logs/d", "", b"");
    let error = scene.unpack(&vec![entry; DOWNLOAD_ENTRIES as usize + 1]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "/logs in the environment is over the limit for a download (50000 entries); the rest of it was left behind"
    );
}

#[test]
fn what_is_packed_comes_out_again() {
    let source = tempfile::tempdir().unwrap();
    fs::create_dir_all(source.path().join("deep/er")).unwrap();
    let long = "n".repeat(200);
    fs::write(source.path().join("deep/er").join(&long), "text").unwrap();
    fs::write(source.path().join("run.sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(source.path().join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("run.sh", source.path().join("link")).unwrap();
    let packed = pack(&walk(source.path()).unwrap(), Path::new("some")).unwrap();
    let target = tempfile::tempdir().unwrap();
    let downloaded = unpack(packed, "/some", &Destinations::one(target.path())).unwrap();
    assert_eq!(downloaded, Downloaded { files: 3, bytes: 14, skipped: Vec::new() });
    assert_eq!(fs::read_to_string(target.path().join("deep/er").join(&long)).unwrap(), "text");
    assert_eq!(fs::metadata(target.path().join("link")).unwrap().mode() & 0o777, 0o755);
}

proptest! {
    #[test]
    fn no_archive_reaches_outside(
        entries in proptest::collection::vec(
            (0..4_usize, "(logs|/|\\.\\.)(/(a|b|\\.|\\.\\.)){0,4}/?", "(/|\\.\\./|a|b|\\.)(/(a|\\.\\.)){0,3}", 0..20_usize),
            0..8,
        )
    ) {
        let scene = Scene::new();
        let kinds = [EntryType::Regular, EntryType::Directory, EntryType::Symlink, EntryType::Link];
        let entries: Vec<_> = entries
            .iter()
            .map(|(kind, name, link, length)| {
                let length = if *kind == 0 { *length } else { 0 };
                raw(kinds[*kind], name, link, &vec![b'x'; length])
            })
            .collect();
        let _ = scene.unpack(&entries);
        let _ = scene.unpack(&entries);
        scene.assert_unharmed();
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
        let target = tempfile::tempdir().unwrap();
        let _ = unpack(bytes.as_slice(), "/logs", &Destinations::one(target.path()));
    }
}

#[test]
fn of_logs_each_directory_has_its_own_place_and_what_lies_beside_is_left() {
    let target = tempfile::tempdir().unwrap();
    let to = LogDirs::below(target.path());
    let entries = [
        raw(EntryType::Regular, "logs/agent/a/b", "", b"1"),
        raw(EntryType::Regular, "logs/verifier/reward.txt", "", b"2"),
        raw(EntryType::Regular, "logs/artifacts/c", "", b"3"),
        raw(EntryType::Regular, "logs/agents/x", "", b"4"),
        raw(EntryType::Regular, "logs/agent/../verifier/y", "", b"5"),
    ];
    let downloaded = unpack(archive(&entries).as_slice(), "/logs", &Destinations::of_logs(&to)).unwrap();
    let read = |path: PathBuf| fs::read_to_string(path).unwrap();
    assert_eq!(
        read(to.agent.join("a/b")) + &read(to.verifier.join("reward.txt")) + &read(to.artifacts.join("c")),
        "123"
    );
    assert_eq!((downloaded.files, downloaded.skipped.len()), (3, 2));
}
