//! `rolltap --version`, and the build script that finds the commit for it.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::program::{repository, run};

fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

fn git(dir: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command.arg("-C").arg(dir).args(["-c", "user.name=t", "-c", "user.email=t@localhost"]).args(arguments);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null");
    // A date at which the day depends on the time zone.
    command.env("GIT_COMMITTER_DATE", "2026-11-24T23:30:00-05:00");
    succeed(&mut command).trim().to_owned()
}

/// The build script, compiled by itself.
struct BuildScript(PathBuf);

impl BuildScript {
    fn compiled(dir: &Path) -> Self {
        let script = Self(dir.join("build-script"));
        let mut rustc = Command::new("rustc");
        rustc.args(["--edition", "2024", "-o"]).arg(&script.0).arg(repository("build.rs"));
        succeed(rustc.env("CARGO_PKG_VERSION", "1.2.3"));
        script
    }

    /// Returns the version for a package in this folder, and the files whose changes repeat the script.
    fn run(&self, package: &Path, given: Option<&str>) -> (String, Vec<String>) {
        let mut command = Command::new(&self.0);
        command.current_dir(package).env_remove("ROLLTAP_COMMIT");
        let said = succeed(command.envs(given.map(|commit| ("ROLLTAP_COMMIT", commit))));
        let after =
            |prefix| said.lines().filter_map(move |line| line.strip_prefix(prefix)).map(str::to_owned);
        let versions: Vec<_> = after("cargo::rustc-env=VERSION_WITH_COMMIT=").collect();
        let [version] = versions.as_slice() else { panic!("{said}") };
        let files = after("cargo::rerun-if-changed=").filter(|file| file != "build.rs");
        (version.clone(), files.collect())
    }
}

/// Makes a repository with one commit, and returns the nine digits of its commit.
fn repository_at(dir: &Path) -> String {
    std::fs::create_dir_all(dir).unwrap();
    git(dir, &["init", "--quiet", "--initial-branch=main"]);
    commit(dir)
}

fn commit(dir: &Path) -> String {
    git(dir, &["commit", "--quiet", "--allow-empty", "--message=x"]);
    git(dir, &["rev-parse", "HEAD"])[..9].to_owned()
}

#[test]
fn the_program_has_its_version_and_commit() {
    let dir = tempfile::tempdir().unwrap();
    let ended = run(dir.path(), &["--version"]);
    assert_eq!((ended.code, ended.stdout), (Some(0), format!("rolltap {}\n", env!("VERSION_WITH_COMMIT"))));
    assert!(env!("VERSION_WITH_COMMIT").starts_with(env!("CARGO_PKG_VERSION")));
}

#[test]
fn the_commit_is_that_of_the_clone_or_worktree_and_each_commit_repeats_the_script() {
    let dir = tempfile::tempdir().unwrap();
    let script = BuildScript::compiled(dir.path());
    let clone = dir.path().join("clone");
    let first = repository_at(&clone);
    let (version, files) = script.run(&clone, None);
    assert_eq!(version, format!("1.2.3 ({first} 2026-11-25)"));

    let contents = |files: &[String]| -> Vec<_> {
        files.iter().map(|file| std::fs::read(clone.join(file)).unwrap()).collect()
    };
    let before = contents(&files);
    let second = commit(&clone);
    assert_ne!(contents(&files), before, "{files:?}");
    assert_eq!(script.run(&clone, None).0, format!("1.2.3 ({second} 2026-11-25)"));

    let worktree = dir.path().join("worktree");
    git(&clone, &["worktree", "add", "--quiet", "--detach", worktree.to_str().unwrap(), &first]);
    let (version, files) = script.run(&worktree, None);
    assert_eq!(version, format!("1.2.3 ({first} 2026-11-25)"));
    let [log] = files.as_slice() else { panic!("{files:?}") };
    assert!(log.contains("worktrees/worktree/"), "{log}");
}

#[test]
fn without_a_log_of_head_the_script_watches_only_files_that_exist() {
    let dir = tempfile::tempdir().unwrap();
    let script = BuildScript::compiled(dir.path());
    let clone = dir.path().join("clone");
    repository_at(&clone);
    std::fs::remove_dir_all(clone.join(".git/logs")).unwrap();
    assert_eq!(script.run(&clone, None).1, ["./.git/HEAD", "./.git/refs/heads/main"]);
    git(&clone, &["pack-refs", "--all"]);
    assert_eq!(script.run(&clone, None).1, ["./.git/HEAD", "./.git/packed-refs"]);
}

#[test]
fn sources_without_a_clone_have_the_version_alone_or_the_given_commit() {
    let dir = tempfile::tempdir().unwrap();
    let script = BuildScript::compiled(dir.path());
    // The clone of another project has the unpacked sources inside.
    repository_at(dir.path());
    let sources = dir.path().join("rolltap-1.2.3");
    std::fs::create_dir(&sources).unwrap();
    assert_eq!(script.run(&sources, None), ("1.2.3".to_owned(), Vec::new()));
    assert_eq!(script.run(&sources, Some("")).0, "1.2.3");
    assert_eq!(script.run(&sources, Some("abcdef123 2026-11-24")).0, "1.2.3 (abcdef123 2026-11-24)");
}
