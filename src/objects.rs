//! Captures in object storage, as the input of a command.

use std::path::PathBuf;
use std::time::Duration;

use rolltap_orchestrator::source::objects::{self, CopyProgress, ObjectsError};

use crate::terminal;

/// The time before the first note on the progress, and between two of them.
const NOTE: Duration = Duration::from_secs(2);

/// The local path of an input.
pub(crate) enum Input<T> {
    /// Paths to read.
    Local(T),
    /// The object storage failed, which is already printed.
    Failed,
}

/// Returns the path to read for an input: the path itself, or a data directory with copies of captures in object storage.
///
/// # Errors
/// The place in object storage is wrong, or has several shards.
pub(crate) async fn one(input: PathBuf) -> anyhow::Result<Input<PathBuf>> {
    if !objects::is_objects_url(&input) {
        return Ok(Input::Local(input));
    }
    let (url, progress) = (input.to_string_lossy().into_owned(), CopyProgress::default());
    let copied = noting(&url, &progress, objects::copy_one(&url, &progress)).await;
    local(copied.map(|copied| copied.dir))
}

/// Returns the paths to read for several inputs, as [`one`] does. All shards of a place are read.
///
/// # Errors
/// A place in object storage is wrong.
pub(crate) async fn all(inputs: Vec<PathBuf>) -> anyhow::Result<Input<Vec<PathBuf>>> {
    let mut paths = Vec::new();
    for input in inputs {
        if !objects::is_objects_url(&input) {
            paths.push(input);
            continue;
        }
        let (url, progress) = (input.to_string_lossy().into_owned(), CopyProgress::default());
        let copied = noting(&url, &progress, objects::copy(&url, &progress)).await;
        match local(copied)? {
            Input::Local(copied) => paths.extend(copied.into_iter().map(|copied| copied.dir)),
            Input::Failed => return Ok(Input::Failed),
        }
    }
    Ok(Input::Local(paths))
}

/// An error that the user cannot correct is printed, and the exit code is that of a failure.
fn local<T>(copied: Result<T, ObjectsError>) -> anyhow::Result<Input<T>> {
    match copied {
        Ok(copied) => Ok(Input::Local(copied)),
        Err(error) if error.is_transient() => {
            terminal::report(&error.into());
            Ok(Input::Failed)
        }
        Err(error) => Err(error.into()),
    }
}

/// Waits for a copy, with a note on its progress from time to time.
async fn noting<T>(url: &str, progress: &CopyProgress, copying: impl Future<Output = T>) -> T {
    let mut copying = Box::pin(copying);
    loop {
        tokio::select! {
            copied = &mut copying => return copied,
            () = tokio::time::sleep(NOTE) => {
                let (done, all) = progress.bytes();
                terminal::note(format_args!("fetching {url}: {} of {} MB", done >> 20, all >> 20));
            }
        }
    }
}
