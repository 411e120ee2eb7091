//! The examples in the documentation of the code. `scripts/test` runs those of the crate `rolltap-rollout` alone.

use std::fs;
use std::path::Path;

use super::layers::rust_files;

/// The crate whose examples run.
const WITH_EXAMPLES: &str = "rollout";

/// The languages of blocks that rustdoc does not run.
const NOT_RUN: [&str; 3] = ["text", "toml", "json"];

#[test]
fn no_crate_has_examples_that_would_not_run() {
    let workspace: toml::Value = toml::from_str(include_str!("../../Cargo.toml")).unwrap();
    let members = workspace["workspace"]["members"].as_array().unwrap();
    let members = members.iter().map(|member| member.as_str().unwrap());
    assert!(members.clone().any(|member| member == WITH_EXAMPLES));
    let mut found = Vec::new();
    for member in members.filter(|member| *member != WITH_EXAMPLES).chain(["."]) {
        let files = rust_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(member).join("src"));
        assert!(!files.is_empty(), "{member} has no files");
        for file in files {
            let examples = examples(&fs::read_to_string(&file).unwrap());
            found.extend(examples.into_iter().map(|line| format!("{}:{line}", file.display())));
        }
    }
    assert!(found.is_empty(), "make these blocks `text`, and test their content:\n{}", found.join("\n"));
}

#[test]
fn a_block_without_a_language_is_an_example() {
    let source =
        "/// ```text\n/// a\n/// ```\n//! ```\n//! b();\n//! ```\n    /// ```no_run\n    /// ```\n// ```\n";
    assert_eq!(examples(source), [4, 7]);
}

/// Returns the numbers of the lines that begin an example in a doc comment.
fn examples(source: &str) -> Vec<usize> {
    let (mut found, mut is_open) = (Vec::new(), false);
    for (at, line) in source.lines().enumerate() {
        let line = line.trim_start();
        let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        let Some(language) = comment.and_then(|text| text.trim_start().strip_prefix("```")) else { continue };
        if !is_open && !NOT_RUN.contains(&language.trim()) {
            found.push(at + 1);
        }
        is_open = !is_open;
    }
    found
}
