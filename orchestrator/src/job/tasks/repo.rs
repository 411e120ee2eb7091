//! The source of a git repository, in the forms that Harbor's `--repo` accepts.

use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A git repository, with the version and the directory that its source names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RepoSource {
    /// The URL for `git`.
    pub(super) url: String,
    /// A branch, a tag or a commit. `None` for the newest commit.
    pub(super) revision: Option<String>,
    /// The directory of the tasks. `None` if the source names none.
    pub(super) directory: Option<PathBuf>,
}

/// The text is not the source of a git repository.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a git repository: {problem}; write it like https://host/org/name, with @REVISION after it for a \
     branch, tag or commit, or like org/name for GitHub"
)]
pub struct InvalidRepo {
    text: String,
    problem: String,
}

const SCHEMES: [&str; 5] = ["https://", "http://", "ssh://", "git://", "file://"];

/// Returns whether the text is a URL that `git` can fetch.
pub(super) fn is_url(text: &str) -> bool {
    SCHEMES.iter().any(|scheme| text.starts_with(scheme)) || text.starts_with("git@")
}

impl RepoSource {
    /// Returns the name of the repository: the last part of its URL, without `.git`.
    pub(super) fn name(&self) -> &str {
        let url = self.url.trim_end_matches('/');
        let last = url.rsplit(['/', ':']).next().unwrap_or(url);
        last.strip_suffix(".git").unwrap_or(last)
    }
}

impl FromStr for RepoSource {
    type Err = InvalidRepo;

    fn from_str(text: &str) -> Result<Self, InvalidRepo> {
        let invalid = |problem: &str| InvalidRepo { text: text.to_owned(), problem: problem.to_owned() };
        let (base, revision) = split_revision(text.trim());
        if revision.is_some_and(|revision| revision.starts_with('-')) {
            return Err(invalid("a revision does not begin with a dash"));
        }
        let plain = |url: String| Self { url, revision: revision.map(str::to_owned), directory: None };
        if base.starts_with(['.', '/', '~', '-']) {
            return Err(invalid("it is a path of this host"));
        }
        if base.starts_with("file://") || base.starts_with("git@") {
            return Ok(plain(base.to_owned()));
        }
        if is_url(base) {
            return of_web_page(base, revision).map_err(|problem| invalid(&problem));
        }
        let parts: Vec<&str> = base.split('/').filter(|part| !part.is_empty()).collect();
        match parts.as_slice() {
            // A first part with a dot is a host.
            [host, _, _, ..] if host.contains('.') => {
                of_web_page(&format!("https://{base}"), revision).map_err(|problem| invalid(&problem))
            }
            [org, name] => {
                let name = name.strip_suffix(".git").unwrap_or(name);
                Ok(plain(format!("https://github.com/{org}/{name}.git")))
            }
            _ => Err(invalid("it has neither a scheme nor the form org/name")),
        }
    }
}

/// Splits the revision after the last `@`. An `@` before a path or a port belongs to the address.
fn split_revision(source: &str) -> (&str, Option<&str>) {
    match source.rsplit_once('@') {
        Some((base, revision))
            if !base.is_empty() && !revision.is_empty() && !revision.contains(['/', ':']) =>
        {
            (base, Some(revision))
        }
        _ => (source, None),
    }
}

/// Takes `/tree/REVISION/DIRECTORY` off a URL, the address of a directory on GitHub's pages. GitLab has `/-/tree/`.
fn of_web_page(url: &str, revision: Option<&str>) -> Result<RepoSource, String> {
    let Some((before, tree)) = url.split_once("/tree/") else {
        let (url, revision) = (url.to_owned(), revision.map(str::to_owned));
        return Ok(RepoSource { url, revision, directory: None });
    };
    let before = before.strip_suffix("/-").unwrap_or(before);
    let (of_tree, directory) = tree.split_once('/').unwrap_or((tree, ""));
    if revision.is_some_and(|revision| revision != of_tree) {
        return Err("it names two revisions, after @ and after /tree/".to_owned());
    }
    let directory = Some(directory.trim_end_matches('/')).filter(|directory| !directory.is_empty());
    let revision = Some(of_tree.to_owned()).filter(|revision| !revision.is_empty());
    Ok(RepoSource {
        url: before.to_owned(),
        revision,
        directory: directory.map(Path::new).map(Path::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_source_gives_url_revision_and_directory() {
        for (text, url, revision, directory) in [
            ("org/name", "https://github.com/org/name.git", None, None),
            ("org/name@v1", "https://github.com/org/name.git", Some("v1"), None),
            ("example.com/org/name.git", "https://example.com/org/name.git", None, None),
            ("https://example.com/org/name@main", "https://example.com/org/name", Some("main"), None),
            ("https://example.com/o/n/tree/v2/a/b/", "https://example.com/o/n", Some("v2"), Some("a/b")),
            ("https://example.com/o/n/-/tree/v2", "https://example.com/o/n", Some("v2"), None),
            ("git@example.com:org/name.git", "git@example.com:org/name.git", None, None),
            ("git@example.com:org/name.git@abc", "git@example.com:org/name.git", Some("abc"), None),
            ("ssh://git@example.com:22/org/name", "ssh://git@example.com:22/org/name", None, None),
            ("file:///srv/tasks.git@main", "file:///srv/tasks.git", Some("main"), None),
        ] {
            let source: RepoSource = text.parse().unwrap();
            let found = (source.url.as_str(), source.revision.as_deref(), source.directory.as_deref());
            assert_eq!(found, (url, revision, directory.map(Path::new)), "{text}");
        }
        assert_eq!("git@example.com:org/tasks.git".parse::<RepoSource>().unwrap().name(), "tasks");
    }

    #[test]
    fn other_texts_are_refused_with_a_reason() {
        for (text, expected) in [
            ("", "neither a scheme"),
            ("name", "neither a scheme"),
            ("a/b/c", "neither a scheme"),
            ("./tasks", "a path of this host"),
            ("org/name@-upload-pack=x", "begin with a dash"),
            ("https://example.com/o/n/tree/v2@v1", "two revisions"),
        ] {
            let error = text.parse::<RepoSource>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_source_or_an_error(text in "\\PC{0,60}") {
            if let Ok(source) = text.parse::<RepoSource>() {
                proptest::prop_assert!(!source.url.starts_with('-'));
                let _ = source.name();
            }
        }
    }
}
