//! Files that are generated from code and committed: a test compares each with the text that the code makes.

use std::path::Path;

/// The environment variable with which [`is_current`] writes files instead of comparing them.
const UPDATE: &str = "ROLLTAP_UPDATE_DOCS";

/// Compares the committed file at `path`, from the root of the repository, with `text`. With `ROLLTAP_UPDATE_DOCS=1` it
/// writes the file instead.
///
/// # Errors
/// The file differs, with the first different line and the remedy, or it cannot be written.
pub fn is_current(path: &str, text: &str) -> Result<(), String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    if std::env::var_os(UPDATE).is_some_and(|value| value == "1") {
        return std::fs::write(&file, text).map_err(|error| format!("cannot write {path}: {error}"));
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    if committed == text {
        return Ok(());
    }
    let (mut old, mut new) = (committed.lines(), text.lines());
    let different = (1..).map(|line| (line, old.next(), new.next())).find(|(_, old, new)| {
        // Two files may differ in their last line break alone.
        old != new || old.is_none()
    });
    let (line, old, new) = different.unwrap_or_default();
    let of = |line: Option<&str>| line.unwrap_or("(end)").to_owned();
    Err(format!(
        "{path} is out of date: run `just docs` and commit the result\nline {line} of the file: {}\nline {line} of the \
         code: {}",
        of(old),
        of(new)
    ))
}
