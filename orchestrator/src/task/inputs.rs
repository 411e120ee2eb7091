//! The directories of a task that are copied into an environment, without the files that `.harborignore` excludes.
//!
//! Harbor's rule: such a file is read in `tests/` and `solution/` of the task and of its steps, and in directories
//! below them. Its patterns are those of `.gitignore`. A deeper file overrides those above it. The file itself is never
//! copied.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use super::TaskError;
use crate::task::Pattern;

const NAME: &str = ".harborignore";

/// A directory of a task.
#[derive(Clone, Debug)]
pub(super) struct Input {
    place: PathBuf,
    /// A copy without the excluded files. `None` if the directory has no `.harborignore`.
    filtered: Option<Arc<TempDir>>,
}

impl Input {
    /// Returns the directory to copy into the environment.
    pub(super) fn path(&self) -> &Path {
        self.filtered.as_ref().map_or(&self.place, |copy| copy.path())
    }

    /// Returns the directory in the task.
    pub(super) fn place(&self) -> &Path {
        &self.place
    }
}

/// The directories of a task that are copied into environments.
pub(super) struct InputDirs {
    task: PathBuf,
}

impl InputDirs {
    pub(super) fn of(task: &Path) -> Self {
        Self { task: task.to_owned() }
    }

    /// Returns the directory of this name in the task. It need not exist.
    pub(super) fn input(&self, name: &Path) -> Result<Input, TaskError> {
        let place = self.task.join(name);
        let unreadable = |source| TaskError::Read { path: place.clone(), source };
        if !place.is_dir() || !contains_rules(&place).map_err(unreadable)? {
            return Ok(Input { place, filtered: None });
        }
        let copy = TempDir::with_prefix("rolltap-task-").map_err(unreadable)?;
        copy_selected(&place, copy.path(), &mut Vec::new()).map_err(unreadable)?;
        Ok(Input { place, filtered: Some(Arc::new(copy)) })
    }
}

fn contains_rules(dir: &Path) -> io::Result<bool> {
    for entry in dir.read_dir()? {
        let entry = entry?;
        if entry.file_name() == NAME || (entry.file_type()?.is_dir() && contains_rules(&entry.path())?) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Copies `from` without the excluded files. `rules` holds the rules of the directories above, outermost first. Each
/// has the path from its own directory to `from`.
fn copy_selected(from: &Path, to: &Path, rules: &mut Vec<(PathBuf, Rules)>) -> io::Result<()> {
    let own = match fs::read_to_string(from.join(NAME)) {
        Ok(text) => Rules::parse(&text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Rules::default(),
        Err(error) => return Err(error),
    };
    rules.push((PathBuf::new(), own));
    for entry in from.read_dir()? {
        let entry = entry?;
        let (name, kind) = (entry.file_name(), entry.file_type()?);
        // A deeper file overrides those above it, so the innermost rules are read first.
        let mut verdicts =
            rules.iter().rev().filter_map(|(way, rules)| rules.verdict(&way.join(&name), kind.is_dir()));
        if name == NAME || verdicts.next() == Some(Verdict::Out) {
            continue;
        }
        let (source, target) = (entry.path(), to.join(&name));
        if kind.is_dir() {
            fs::create_dir(&target)?;
            let mut deeper: Vec<_> =
                rules.iter().map(|(way, rules)| (way.join(&name), rules.clone())).collect();
            copy_selected(&source, &target, &mut deeper)?;
            // The mode is set last: a read-only directory would reject its own files.
            fs::set_permissions(&target, entry.metadata()?.permissions())?;
        } else if kind.is_symlink() {
            // The link itself is copied, since its target may exist only in the environment.
            std::os::unix::fs::symlink(fs::read_link(&source)?, &target)?;
        } else if kind.is_file() {
            fs::copy(&source, &target)?;
        }
    }
    Ok(())
}

/// The lines of one `.harborignore`.
#[derive(Clone, Debug, Default)]
struct Rules(Vec<Rule>);

#[derive(Clone, Debug)]
struct Rule {
    pattern: Pattern,
    directories_only: bool,
    verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    In,
    Out,
}

impl Rules {
    fn parse(text: &str) -> Self {
        Self(text.lines().filter_map(Rule::parse).collect())
    }

    /// Returns the verdict of the last rule that matches a path relative to the rules' directory.
    fn verdict(&self, path: &Path, is_directory: bool) -> Option<Verdict> {
        let path = path.to_string_lossy();
        let fits = |rule: &&Rule| (is_directory || !rule.directories_only) && rule.pattern.matches(&path);
        self.0.iter().rev().find(fits).map(|rule| rule.verdict)
    }
}

impl Rule {
    /// Parses a line. `None` if it is a comment or blank.
    fn parse(line: &str) -> Option<Self> {
        let line = line.trim_end_matches('\r');
        let bare = line.trim_end_matches(' ');
        // An escaped trailing space is part of the name.
        let line =
            if bare.ends_with('\\') && bare.len() < line.len() { line.get(..=bare.len())? } else { bare };
        if line.starts_with('#') {
            return None;
        }
        let (verdict, line) = match line.strip_prefix('!') {
            Some(line) => (Verdict::In, line),
            None => (Verdict::Out, line),
        };
        let directories_only = line.ends_with('/');
        let name = line.trim_end_matches('/');
        if name.is_empty() {
            return None;
        }
        // As in `.gitignore`, a pattern without a slash matches at every depth.
        let pattern =
            if name.contains('/') { Pattern::new(name) } else { Pattern::new(&format!("**/{name}")) };
        Some(Self { pattern, directories_only, verdict })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Returns the files that remain of these files of `tests/`, each given with its content.
    fn left(files: &[(&str, &str)]) -> BTreeSet<String> {
        let task = tempfile::tempdir().unwrap();
        for (name, contents) in files {
            let path = task.path().join("tests").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, contents).unwrap();
        }
        let input = InputDirs::of(task.path()).input("tests".as_ref()).unwrap();
        let there = files.iter().filter(|(name, _)| input.path().join(name).exists());
        there.map(|(name, _)| (*name).to_owned()).collect()
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn files_are_left_out_by_gitignores_rules() {
        let files = |rules| {
            [(".harborignore", rules), ("test.sh", ""), ("a.log", ""), ("deep/a.log", ""), ("deep/out/x", "")]
        };
        for (rules, expected) in [
            ("", &["test.sh", "a.log", "deep/a.log", "deep/out/x"][..]),
            ("# *.log\n\n*.log", &["test.sh", "deep/out/x"]),
            ("/*.log", &["test.sh", "deep/a.log", "deep/out/x"]),
            ("*.log\n!deep/a.log", &["test.sh", "deep/a.log", "deep/out/x"]),
            ("out/", &["test.sh", "a.log", "deep/a.log"]),
            ("test.sh/", &["test.sh", "a.log", "deep/a.log", "deep/out/x"]),
            ("deep/**/x  \r", &["test.sh", "a.log", "deep/a.log"]),
            ("deep\n!deep/a.log", &["test.sh", "a.log"]),
            ("\\!x\n\\#y", &["test.sh", "a.log", "deep/a.log", "deep/out/x"]),
        ] {
            assert_eq!(left(&files(rules)), names(expected), "{rules:?}");
        }
    }

    #[test]
    fn deeper_rules_have_the_last_word() {
        let files = [
            (".harborignore", "*.log\n"),
            ("a.log", ""),
            ("deep/.harborignore", "!a.log\nb\n"),
            ("deep/a.log", ""),
            ("deep/b", ""),
            ("b", ""),
        ];
        assert_eq!(left(&files), names(&["deep/a.log", "b"]));
    }

    #[test]
    fn without_rules_nothing_is_copied() {
        let task = tempfile::tempdir().unwrap();
        fs::create_dir(task.path().join("tests")).unwrap();
        fs::write(task.path().join(NAME), "*").unwrap();
        let input = InputDirs::of(task.path()).input("tests".as_ref()).unwrap();
        assert_eq!(input.path(), task.path().join("tests"), "rules beside tests/ are none of its");
    }

    proptest::proptest! {
        #[test]
        fn no_rules_make_it_panic(text in "([!#/\\\\* a-c\\[\\]?-]{0,8}\r?\n){0,4}", path in "[a-c/ ]{0,8}") {
            let rules = Rules::parse(&text);
            let _ = rules.verdict(Path::new(&path), true);
        }
    }
}
