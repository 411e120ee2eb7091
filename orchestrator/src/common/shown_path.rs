//! Paths for people.

use std::path::{Path, PathBuf};

/// Returns the path relative to the working directory if the working directory contains it.
pub(crate) fn shown(path: &Path) -> PathBuf {
    match std::env::current_dir() {
        Ok(here) => below(path, &here).to_owned(),
        Err(_) => path.to_owned(),
    }
}

/// Returns the path relative to the directory `here` if `here` contains it.
pub(crate) fn below<'p>(path: &'p Path, here: &Path) -> &'p Path {
    let below = path.strip_prefix(here).ok().filter(|below| !below.as_os_str().is_empty());
    below.unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_below_the_working_directory_is_relative() {
        let of = |path| below(Path::new(path), Path::new("/work"));
        assert_eq!(of("/work/jobs/a"), Path::new("jobs/a"));
        assert_eq!(of("/other/a"), Path::new("/other/a"));
        assert_eq!(of("/work"), Path::new("/work"));
    }
}
