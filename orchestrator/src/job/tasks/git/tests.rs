//! Fetches from a repository of this host.

use std::process::Command as Program;

use super::*;

struct Origin {
    dir: tempfile::TempDir,
}

impl Origin {
    /// Makes a repository with a task in `tasks/one` and one in its root.
    fn new() -> Self {
        let origin = Self { dir: tempfile::tempdir().unwrap() };
        origin.git(&["init", "--quiet", "--initial-branch=main"]);
        origin.commit("first");
        origin
    }

    fn git(&self, args: &[&str]) -> String {
        let name = ["-c", "user.name=t", "-c", "user.email=t@t"];
        let output = Program::new("git").args(name).args(args).current_dir(self.dir.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn commit(&self, text: &str) -> String {
        let task = self.dir.path().join("tasks/one");
        fs::create_dir_all(&task).unwrap();
        fs::write(task.join("instruction.md"), text).unwrap();
        self.git(&["add", "."]);
        self.git(&["commit", "--quiet", "-m", text]);
        self.git(&["rev-parse", "HEAD"])
    }

    fn url(&self) -> String {
        format!("file://{}", self.dir.path().display())
    }
}

async fn got(
    url: &str,
    commit: Option<&str>,
    path: &str,
    cache: &Path,
) -> Result<(String, String), GitError> {
    let wanted = Wanted { url, commit, path: Path::new(path), cache: Some(cache), anew: false };
    let (dir, origin) = fetch(wanted).await?;
    assert!(
        dir.ends_with(Path::new(path).file_name().unwrap()),
        "the task keeps its name: {}",
        dir.display()
    );
    Ok((fs::read_to_string(dir.join("instruction.md")).unwrap(), origin.commit))
}

#[tokio::test]
async fn a_version_is_fetched_once_and_the_newest_whenever_there_is_one() {
    let (origin, cache) = (Origin::new(), tempfile::tempdir().unwrap());
    let first = origin.git(&["rev-parse", "HEAD"]);
    let newest = got(&origin.url(), None, "tasks/one", cache.path()).await.unwrap();
    assert_eq!(newest, ("first".to_owned(), first.clone()));
    let second = origin.commit("second");
    let newest = got(&origin.url(), None, "./tasks/two/../one", cache.path()).await.unwrap();
    assert_eq!(newest, ("second".to_owned(), second));
    let url = origin.url();
    let shortened = got(&url, first.get(..8), "tasks/one", cache.path()).await.unwrap();
    assert_eq!(shortened, ("first".to_owned(), first.clone()));
    drop(origin);
    let kept = got(&url, Some(&first), "tasks/one", cache.path()).await.unwrap();
    assert_eq!(kept, ("first".to_owned(), first.clone()), "nothing is fetched again");
    let gone = got(&url, Some(&"0".repeat(40)), "tasks/one", cache.path()).await.unwrap_err().to_string();
    assert!(gone.contains("git fetch failed") && gone.contains(&url), "{gone}");
}

#[tokio::test]
async fn many_at_once_fetch_one_after_the_other() {
    let (origin, cache) = (Origin::new(), tempfile::tempdir().unwrap());
    let url = origin.url();
    let each = || got(&url, None, "tasks/one", cache.path());
    let all = tokio::join!(each(), each(), each(), each());
    for one in [all.0, all.1, all.2, all.3] {
        assert_eq!(one.unwrap().0, "first");
    }
    let left = fs::read_dir(fs::read_dir(cache.path()).unwrap().next().unwrap().unwrap().path()).unwrap();
    assert_eq!(left.count(), 3, "the task, its version and the lock");
}

#[tokio::test]
async fn a_path_that_is_not_there_or_leads_out_is_named() {
    let (origin, cache) = (Origin::new(), tempfile::tempdir().unwrap());
    let missing = got(&origin.url(), None, "tasks/none", cache.path()).await.unwrap_err().to_string();
    assert!(missing.contains("has no directory tasks/none: "), "{missing}");
    for path in ["../x", "/etc", "a/../../x"] {
        let error = got(&origin.url(), None, path, cache.path()).await.unwrap_err();
        assert!(matches!(error, GitError::Path { .. }), "{error}");
    }
}
