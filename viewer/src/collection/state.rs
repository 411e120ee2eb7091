//! The state of the files of a job, which shows whether they have changed since they were read.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The length and the time of the last change of some files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FilesState(Vec<(PathBuf, u64, Option<SystemTime>)>);

impl FilesState {
    /// Looks at a file, or at the files in a directory. Files that do not exist are absent from the state.
    pub(super) fn of<'p>(paths: impl IntoIterator<Item = &'p Path>) -> Self {
        let mut state = Vec::new();
        for path in paths {
            let files = match std::fs::read_dir(path) {
                Ok(entries) => entries.filter_map(|entry| Some(entry.ok()?.path())).collect(),
                Err(_) => vec![path.to_owned()],
            };
            state.extend(files.into_iter().filter_map(|file| {
                let metadata = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
                Some((file, metadata.len(), metadata.modified().ok()))
            }));
        }
        state.sort();
        Self(state)
    }

    /// The bytes of all files together.
    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().map(|(_, length, _)| length).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_appended_line_changes_the_state() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("rows.jsonl");
        std::fs::write(&file, "a\n").unwrap();
        let before = FilesState::of([dir.path()]);
        assert_eq!(FilesState::of([dir.path()]), before);
        std::fs::write(&file, "a\nb\n").unwrap();
        assert_ne!(FilesState::of([dir.path()]), before);
        assert_eq!(FilesState::of([dir.path()]).bytes(), 4);
    }
}
