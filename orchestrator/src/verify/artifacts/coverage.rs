//! Checks that the artifacts on this host are those that a verifier needs, without the environment that they are from.
//!
//! The rules are Harbor's: each artifact that the task declares must be in the manifest as collected, at the place from
//! which it is uploaded.

use std::io::ErrorKind;
use std::path::Path;

use super::{Artifacts, Collected, Kind, Status, covers, place};
use crate::task::Artifact;

impl Artifacts {
    /// Checks that every artifact was collected.
    ///
    /// # Errors
    /// Returns what is missing, as a predicate of the trial.
    pub(crate) fn are_all_there(&self) -> Result<(), String> {
        let manifest = read(&self.host.join("manifest.json"))?;
        let is_covered =
            |at: usize, entry: &Artifact| self.entries.iter().take(at).any(|earlier| covers(earlier, entry));
        let problems = self.entries.iter().enumerate().filter(|(at, entry)| !is_covered(*at, entry));
        let problems: Vec<_> =
            problems.filter_map(|(_, entry)| problem(entry, &manifest, &self.host).err()).collect();
        if problems.is_empty() { Ok(()) } else { Err(format!("lacks artifacts: {}", problems.join("; "))) }
    }
}

fn read(path: &Path) -> Result<Vec<Collected>, String> {
    match std::fs::read(path) {
        Ok(text) => serde_json::from_slice(&text)
            .map_err(|error| format!("has an unreadable artifacts/manifest.json: {error}")),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err("has no artifacts/manifest.json, so it is unknown what was collected".to_owned())
        }
        Err(error) => Err(format!("has an unreadable artifacts/manifest.json: {error}")),
    }
}

/// Checks one artifact.
fn problem(entry: &Artifact, manifest: &[Collected], host: &Path) -> Result<(), String> {
    let source = &entry.source;
    let is_of_entry = |collected: &&Collected| {
        let service = collected.service.as_deref().unwrap_or(crate::task::MAIN_SERVICE);
        collected.source.trim_end_matches('/') == source.trim_end_matches('/') && service == entry.service()
    };
    let expected = Collected::new(entry, &place(entry), Kind::Directory, Status::Ok);
    let mut candidates = manifest.iter().filter(is_of_entry).peekable();
    let Some(first) = candidates.peek().map(|first| first.destination.clone()) else {
        return Err(format!("{source} was not collected"));
    };
    let found = candidates.rfind(|found| found.destination == expected.destination);
    let Some(found) = found else {
        return Err(format!(
            "{source} was collected to {first}, and the task now has {}",
            expected.destination
        ));
    };
    match found.status {
        Status::Failed => return Err(format!("{source} could not be collected")),
        Status::Skipped => return Err(format!("{source} was skipped, because its place was taken")),
        Status::Ok | Status::Empty => {}
    }
    let patterns = |list: &[String]| -> Vec<String> {
        let mut list = list.to_vec();
        list.sort();
        list
    };
    if let (Kind::Directory, Some(excluded)) = (found.kind, &found.exclude)
        && patterns(excluded) != patterns(&entry.exclude)
    {
        return Err(format!("{source} was collected without other files than the task now excludes"));
    }
    let path = host.join(place(entry));
    match found.kind {
        Kind::File if !path.is_file() => Err(format!("{} is gone", path.display())),
        // An empty directory may have no copy.
        Kind::Directory if path.exists() && !path.is_dir() => {
            Err(format!("{} is no directory", path.display()))
        }
        Kind::File | Kind::Directory => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn checked(declared: &[Artifact], manifest: &Value, files: &[&str]) -> Result<(), String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("manifest.json"), manifest.to_string()).unwrap();
        for file in files {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        Artifacts::new(declared, dir.path().to_owned()).are_all_there()
    }

    fn entry(source: &str, destination: &str, kind: &str, status: &str) -> Value {
        json!({"source": source, "destination": destination, "type": kind, "status": status, "exclude": []})
    }

    #[test]
    fn an_artifact_must_be_collected_at_its_place() {
        let logs = entry("/logs/artifacts", "artifacts/logs/artifacts", "directory", "ok");
        let file = |status| entry("/app/out", "artifacts/app/out", "file", status);
        let out = [Artifact::of("/app/out")];
        assert_eq!(checked(&[], &json!([logs]), &[]), Ok(()));
        assert_eq!(checked(&out, &json!([logs, file("ok")]), &["app/out"]), Ok(()));
        for (manifest, files, expected) in [
            (json!([logs]), &["app/out"][..], "/app/out was not collected"),
            (json!([logs, file("failed")]), &[], "/app/out could not be collected"),
            (json!([logs, file("skipped")]), &["app/out"], "/app/out was skipped"),
            (json!([logs, file("ok")]), &[], "is gone"),
            (
                json!([logs, entry("/app/out", "artifacts/x", "file", "ok")]),
                &[],
                "was collected to artifacts/x",
            ),
            (json!([file("ok")]), &["app/out"], "/logs/artifacts was not collected"),
        ] {
            let error = checked(&out, &manifest, files).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn an_artifact_within_another_needs_no_entry() {
        let logs = entry("/logs/artifacts", "artifacts/logs/artifacts", "directory", "ok");
        let app = entry("/app", "artifacts/app", "directory", "ok");
        let both = [Artifact::of("/app"), Artifact::of("/app/out")];
        assert_eq!(checked(&both, &json!([logs, app]), &["app/out"]), Ok(()));
    }

    #[test]
    fn other_exclusions_are_another_artifact() {
        let logs = entry("/logs/artifacts", "artifacts/logs/artifacts", "directory", "ok");
        let mut app = entry("/app", "artifacts/app", "directory", "ok");
        app["exclude"] = json!(["*.pyc"]);
        assert!(checked(&[Artifact::of("/app")], &json!([logs, app]), &["app/x"]).is_err());
        let same = Artifact { exclude: vec!["*.pyc".to_owned()], ..Artifact::of("/app") };
        assert_eq!(checked(&[same], &json!([logs, app]), &["app/x"]), Ok(()));
    }

    proptest::proptest! {
        #[test]
        fn no_manifest_panics(text in r#"(\[|\]|\{|\}|"(source|destination|type|status|ok|file)"|:|,|1){0,24}"#) {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("manifest.json"), text).unwrap();
            let _ = Artifacts::new(&[Artifact::of("/x")], dir.path().to_owned()).are_all_there();
        }
    }
}
