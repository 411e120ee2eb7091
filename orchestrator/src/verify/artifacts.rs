//! Collects files and directories of an environment: those that the task names, and `/logs/artifacts`. A manifest lists
//! the result for each.
//!
//! The rules are Harbor's. Everything in `/logs/artifacts` is collected. If two entries would overlap on this host, the
//! first is collected. A missing artifact is no failure. A task with artifacts of another service than the agent's is
//! refused.

mod coverage;

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::prepare_dirs::{Emptied, make_empty};
use crate::environment::{Environment, EnvironmentError, Fetched, LogDirs};
use crate::task::Artifact;

/// The directory that is collected without being named.
const CONVENTION: &str = "/logs/artifacts";

/// An entry of `artifacts/manifest.json`, in Harbor's format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Collected {
    source: String,
    destination: String,
    #[serde(rename = "type")]
    kind: Kind,
    status: Status,
    #[serde(default)]
    service: Option<String>,
    /// `None` in manifests of old versions of Harbor.
    #[serde(default)]
    exclude: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    File,
    Directory,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    /// An empty directory, in Harbor's manifests.
    Empty,
    Failed,
    Skipped,
}

/// The artifacts of a task with the conventional directory, and their destination on this host.
pub(crate) struct Artifacts {
    entries: Vec<Artifact>,
    host: PathBuf,
}

impl Artifacts {
    pub(crate) fn new(named: &[Artifact], host: PathBuf) -> Self {
        let mut entries = named.to_vec();
        if !entries.iter().any(is_convention) {
            // It is first, because the first of two overlapping entries is collected.
            entries.insert(0, Artifact::of(CONVENTION));
        }
        Self { entries, host }
    }

    /// Adds the exclusions of the conventional directory to the download of the logs, with which it comes.
    pub(crate) fn of_logs(&self, logs: LogDirs) -> LogDirs {
        let convention = self.entries.iter().find(|entry| comes_with_the_logs(entry));
        LogDirs { exclude: convention.map(|entry| entry.exclude.clone()).unwrap_or_default(), ..logs }
    }

    /// Returns whether there are artifacts other than those that come with the logs.
    pub(super) fn are_named(&self) -> bool {
        self.entries.iter().any(|entry| !comes_with_the_logs(entry))
    }

    /// Returns the manifest if all artifacts come with the logs.
    pub(super) fn come_with_the_logs(&self) -> Vec<Collected> {
        let come = |entry| Collected::new(entry, &place(entry), Kind::Directory, Status::Ok);
        self.entries.iter().map(come).collect()
    }

    /// Fetches all artifacts except those that come with the logs. Passes each problem to the callback.
    pub(super) async fn fetch(&self, environment: &Environment, say: impl Fn(String)) -> Vec<Collected> {
        let mut claims: Vec<(PathBuf, &Artifact)> = Vec::new();
        let mut collected = Vec::new();
        for entry in &self.entries {
            let place = place(entry);
            if let Some((_, claimant)) = claims.iter().find(|claim| conflicts(claim, &place, entry)) {
                // A later entry that the earlier one covers is no problem: its files are collected already.
                if !covers(claimant, entry) {
                    say(format!(
                        "artifact {:?} skipped: its place is taken by {:?}",
                        entry.source, claimant.source
                    ));
                }
                collected.push(skipped(entry, &place));
                continue;
            }
            claims.push((place.clone(), entry));
            let status = if comes_with_the_logs(entry) {
                (Kind::Directory, Status::Ok)
            } else {
                self.fetch_one(environment, entry, &place, &say).await
            };
            collected.push(Collected::new(entry, &place, status.0, status.1));
        }
        collected
    }

    async fn fetch_one(
        &self,
        environment: &Environment,
        entry: &Artifact,
        place: &Path,
        say: &impl Fn(String),
    ) -> (Kind, Status) {
        let source = format!("/{}", entry.source.trim_start_matches('/'));
        match environment.fetch(&source, &self.host.join(place), &entry.exclude).await {
            Ok(Fetched::File) => (Kind::File, Status::Ok),
            Ok(Fetched::Directory) => (Kind::Directory, Status::Ok),
            Err(error) => {
                say(format!("artifact {:?} not collected: {}", entry.source, crate::failure::chain(&error)));
                (Kind::File, Status::Failed)
            }
        }
    }

    /// Writes the manifest, once it is known whether the logs were downloaded.
    pub(crate) fn write_manifest(
        &self,
        mut collected: Vec<Collected>,
        logs_came: bool,
    ) -> std::io::Result<()> {
        for (entry, collected) in self.entries.iter().zip(&mut collected) {
            if comes_with_the_logs(entry) && !logs_came {
                (collected.kind, collected.status) = (Kind::File, Status::Failed);
            }
        }
        std::fs::create_dir_all(&self.host)?;
        crate::job_dir::write_json(&self.host.join("manifest.json"), &collected)
    }

    /// Uploads the collected artifacts to their original paths in an environment in which only tests run.
    pub(super) async fn hand_over(&self, environment: &Environment) -> Result<(), EnvironmentError> {
        for entry in &self.entries {
            let host = self.host.join(place(entry));
            let inside = format!("/{}", entry.source.trim_matches('/'));
            if host.is_dir() {
                // Files of the image at this path are not the agent's work.
                make_empty(environment, &[Emptied { dir: &inside, is_open: true }]).await?;
                environment.upload(&host, &inside).await?;
            } else if host.is_file() {
                let staging = tempfile::tempdir().map_err(staging_failed)?;
                let (parent, name) = inside.rsplit_once('/').unwrap_or(("", &inside));
                std::fs::copy(&host, staging.path().join(name)).map_err(staging_failed)?;
                let parent = if parent.is_empty() { "/" } else { parent };
                environment.upload(staging.path(), parent).await?;
            }
        }
        Ok(())
    }
}

fn staging_failed(source: std::io::Error) -> EnvironmentError {
    EnvironmentError::Io { action: "copy an artifact to", path: std::env::temp_dir(), source }
}

impl Collected {
    fn new(entry: &Artifact, place: &Path, kind: Kind, status: Status) -> Self {
        let destination = match place.to_string_lossy() {
            place if place.is_empty() => "artifacts".to_owned(),
            place => format!("artifacts/{place}"),
        };
        Self {
            source: entry.source.clone(),
            destination,
            kind,
            status,
            service: entry.service.clone(),
            // A file has nothing to exclude.
            exclude: Some(if kind == Kind::Directory { entry.exclude.clone() } else { Vec::new() }),
        }
    }
}

fn skipped(entry: &Artifact, place: &Path) -> Collected {
    // The kind is unknown without a fetch, so the extension decides.
    let kind = if Path::new(&entry.source).extension().is_some() { Kind::File } else { Kind::Directory };
    Collected::new(entry, place, kind, Status::Skipped)
}

fn is_convention(entry: &Artifact) -> bool {
    entry.source.trim_end_matches('/') == CONVENTION
}

/// Returns whether the entry is the conventional directory at its usual place. Such an entry is downloaded with the
/// logs.
fn comes_with_the_logs(entry: &Artifact) -> bool {
    is_convention(entry) && entry.destination.is_none()
}

/// Returns the path of an entry below `artifacts/`. Only normal components count, so the path cannot leave that
/// directory.
fn place(entry: &Artifact) -> PathBuf {
    let path = Path::new(entry.destination.as_ref().unwrap_or(&entry.source));
    path.components().filter(|part| matches!(part, Component::Normal(_))).collect()
}

fn conflicts((claimed, by): &(PathBuf, &Artifact), place: &Path, entry: &Artifact) -> bool {
    // The same entry again is harmless.
    let again = by.source == entry.source && covers(by, entry);
    !again && (claimed.starts_with(place) || place.starts_with(claimed))
}

/// Returns whether an earlier entry collects the files of a later entry to the same place.
fn covers(prior: &Artifact, entry: &Artifact) -> bool {
    let (before, after) = (Path::new(&prior.source), Path::new(&entry.source));
    let Ok(below) = after.strip_prefix(before) else { return false };
    if prior.service() != entry.service() {
        return false;
    }
    if before == after && place(prior) == place(entry) {
        return prior.exclude == entry.exclude;
    }
    prior.exclude.is_empty() && place(entry) == place(prior).join(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(source: &str, destination: Option<&str>) -> Artifact {
        Artifact { destination: destination.map(str::to_owned), ..Artifact::of(source) }
    }

    #[test]
    fn places_follow_from_sources_and_never_lead_out() {
        for (source, destination, expected) in [
            ("/var/log/x", None, "var/log/x"),
            ("relative", None, "relative"),
            ("/a/./b/", None, "a/b"),
            ("/a", Some("./b/"), "b"),
            ("/", None, ""),
        ] {
            assert_eq!(place(&entry(source, destination)), Path::new(expected), "{source}");
        }
    }

    #[test]
    fn of_entries_in_one_another_the_first_is_kept() {
        let clash =
            |first: &Artifact, second: &Artifact| conflicts(&(place(first), first), &place(second), second);
        assert!(clash(&entry("/a", None), &entry("/a/b", None)));
        assert!(clash(&entry("/a/b", None), &entry("/a", None)));
        assert!(clash(&entry("/x", Some("a")), &entry("/a", None)));
        assert!(!clash(&entry("/a", None), &entry("/ab", None)));
        assert!(!clash(&entry("/a", None), &entry("/a", None)), "the same again overwrites itself");
        assert!(covers(&entry("/a", None), &entry("/a/b", None)), "nothing is lost by skipping it");
        assert!(!covers(&entry("/x", Some("a")), &entry("/a", None)));
    }

    #[test]
    fn the_convention_is_first_unless_it_is_named() {
        let sources = |named: &[Artifact]| {
            let artifacts = Artifacts::new(named, PathBuf::new());
            artifacts.entries.into_iter().map(|entry| entry.source).collect::<Vec<_>>()
        };
        assert_eq!(sources(&[]), [CONVENTION]);
        assert_eq!(sources(&[entry("/a", None)]), [CONVENTION, "/a"]);
        assert_eq!(
            sources(&[entry("/a", None), entry("/logs/artifacts/", None)]),
            ["/a", "/logs/artifacts/"]
        );
    }

    #[test]
    fn what_comes_with_the_logs_is_excluded_from_them() {
        let tmp = |entry| Artifact { exclude: vec!["*.tmp".to_owned()], ..entry };
        let excluded = |named: &[Artifact]| {
            let artifacts = Artifacts::new(named, PathBuf::new());
            artifacts.of_logs(LogDirs::below(Path::new("/"))).exclude
        };
        assert_eq!(excluded(&[tmp(entry(CONVENTION, None)), tmp(entry("/a", None))]), ["*.tmp"]);
        assert!(excluded(&[tmp(entry(CONVENTION, Some("there"))), tmp(entry("/a", None))]).is_empty());
        assert!(excluded(&[]).is_empty());
    }

    proptest::proptest! {
        #[test]
        fn no_source_leads_out_of_the_folder(source in "[a-z./\\\\]{0,16}") {
            let place = place(&entry(&source, None));
            proptest::prop_assert!(place.components().all(|part| matches!(part, Component::Normal(_))));
        }
    }
}
