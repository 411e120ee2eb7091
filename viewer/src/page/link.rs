//! The addresses of pages. Names are percent-encoded, because tasks and groups contain slashes.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The bytes that a name keeps in an address.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

fn encoded(name: &str) -> String {
    // A browser takes `.` and `..` as steps of the path, also if they are encoded.
    match name {
        "." | ".." => name.replace('.', "%2E"),
        name => utf8_percent_encode(name, ENCODED).to_string(),
    }
}

pub(crate) fn job(job: &str) -> String {
    format!("/jobs/{}", encoded(job))
}

pub(crate) fn group(job: &str, group: &str) -> String {
    format!("/jobs/{}/groups/{}", encoded(job), encoded(group))
}

pub(crate) fn trial(job: &str, trial: &str) -> String {
    format!("/jobs/{}/trials/{}", encoded(job), encoded(trial))
}

pub(crate) fn file(job: &str, of: &str, name: &str) -> String {
    format!("{}/files/{}", trial(job, of), encoded(name))
}

pub(crate) fn branch(job: &str, of: &str, branch: usize) -> String {
    format!("{}/branches/{branch}", trial(job, of))
}

pub(crate) fn tokens(job: &str, of: &str, index: usize, from: usize) -> String {
    format!("{}/tokens?from={from}", branch(job, of, index))
}

pub(crate) fn changes(job: &str) -> String {
    format!("/jobs/{}/changes", encoded(job))
}
