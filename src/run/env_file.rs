//! `--env-file`: variables of a file for this process and its children, as in Harbor.

use std::path::Path;

use anyhow::{Context, bail};

/// Sets the variables of a file, in place of those that are set. The process may have no other thread yet.
///
/// # Errors
/// Fails if the file cannot be read, and at the first line that Harbor would read differently. No message has a value.
pub(crate) fn load(path: &Path) -> anyhow::Result<()> {
    let cannot = || format!("cannot read --env-file {}", path.display());
    let text = std::fs::read_to_string(path).with_context(cannot)?;
    if let Some(line) = ambiguous_line(&text) {
        bail!(
            "--env-file {}: line {line}: `$` begins a variable here, but not in Harbor: put the value into single \
             quotes, or write ${{NAME}} for the value of another variable",
            path.display()
        );
    }
    if let Some(before) = first_error(&text) {
        let before =
            before.map_or_else(|| "at its beginning".to_owned(), |name| format!("after the variable {name}"));
        bail!("--env-file {}: {before}: expected a line NAME=VALUE", path.display());
    }
    dotenvy::from_read_override(text.as_bytes()).with_context(cannot)
}

/// Returns the number of the first line with a `$` that the parser replaces, and Harbor does not.
fn ambiguous_line(text: &str) -> Option<usize> {
    let is_ambiguous = |line: &str| {
        let line = line.trim_start();
        let value = line.split_once('=').map_or(line, |(_, value)| value.trim_start());
        let is_plain = line.starts_with('#') || value.starts_with('\'');
        let has_default = value.contains(":-");
        let mut dollars = value.match_indices('$').map(|(at, _)| value.get(at + 1..).unwrap_or_default());
        !is_plain && dollars.any(|rest| !rest.starts_with('{') || has_default)
    };
    text.lines().position(is_ambiguous).map(|at| at + 1)
}

/// Returns the variable before the first error of the file, which may be none. `None` if the file has no error.
fn first_error(text: &str) -> Option<Option<String>> {
    let mut before = None;
    for line in dotenvy::from_read_iter(text.as_bytes()) {
        match line {
            Ok((name, _)) => before = Some(name),
            Err(_) => return Some(before),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dollar_that_harbor_reads_differently_is_found() {
        let line = |text| ambiguous_line(text);
        assert_eq!(line("A=1\n# $5\nB='a$b'\nC=${A}\nexport D=\"${A}x\"\n"), None);
        assert_eq!(line("A=1\nB=a$b\n"), Some(2));
        assert_eq!(line("B=\"$A\"\n"), Some(1));
        assert_eq!(line("B=${A:-x}\n"), Some(1));
    }

    #[test]
    fn a_wrong_line_is_named_by_the_variable_before_it() {
        assert_eq!(first_error("A=1\nB='x y' # note\n"), None);
        assert_eq!(first_error("A=1\n=2\n"), Some(Some("A".to_owned())));
        assert_eq!(first_error("not a line\n"), Some(None));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "([A-C=$ '\"{}:#\\\\\n-]|ö){0,60}") {
            let _ = (ambiguous_line(&text), first_error(&text));
        }
    }
}
