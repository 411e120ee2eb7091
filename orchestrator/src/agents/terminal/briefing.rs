//! The text that the terminal agent gets: the task's instruction, its MCP servers, and the skills in the environment.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Deserialize;

use super::super::Assignment;
use super::super::definition::in_words;
use crate::common::shell::quoted;
use crate::environment::{EnvironmentError, Exec};

/// The time limit of the search for skills, as in Terminus-2.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The end of each skill in the output of the search: a form feed, which text files do not contain.
const END: &str = "\u{c}\n";

/// Returns the whole text.
pub(super) async fn of(assignment: &Assignment<'_>) -> Result<String, EnvironmentError> {
    let mut told = assignment.environment.instruction(&assignment.task.instruction);
    if !assignment.mcp_servers.is_empty() {
        told.push_str(&in_words(assignment.mcp_servers));
    }
    if let Some(dir) = assignment.skills_dir {
        let exec = Exec {
            command: assignment.environment.instruction(&search(dir)),
            user: assignment.task.config.agent.user.clone(),
            timeout: Some(TIMEOUT),
            ..Exec::default()
        };
        let found = assignment.environment.exec(exec).await?;
        told.push_str(&skills_in_words(&skills(&String::from_utf8_lossy(&found.stdout))));
    }
    Ok(told)
}

/// Returns a command that prints each skill's path and the first 16 KiB of its text.
fn search(dir: &str) -> String {
    format!(
        "find {} -mindepth 2 -maxdepth 2 -name SKILL.md -type f 2>/dev/null | sort | while read -r file; do \
         printf '%s\\n' \"$file\"; head -c 16384 \"$file\"; printf '\\f\\n'; done",
        quoted(dir)
    )
}

#[derive(Debug, PartialEq)]
struct Skill<'a> {
    path: &'a str,
    head: Head,
}

/// The head of a skill's text, between lines of `---`.
#[derive(Debug, PartialEq, Deserialize)]
struct Head {
    name: String,
    description: String,
}

/// Parses the output of the search. Files without a valid head are skipped.
fn skills(printed: &str) -> Vec<Skill<'_>> {
    let read = |printed| {
        let (path, text): (&str, &str) = str::split_once(printed, '\n')?;
        let (head, _) = text.strip_prefix("---\n")?.split_once("\n---")?;
        Some(Skill { path, head: serde_saphyr::from_str(head).ok()? })
    };
    printed.split(END).filter_map(read).collect()
}

fn skills_in_words(skills: &[Skill<'_>]) -> String {
    let mut words = String::new();
    if !skills.is_empty() {
        words.push_str(
            "\n\nFor some work there are instructions. Read the file (`cat`) before you do what it is for:\n",
        );
    }
    for Skill { path, head: Head { name, description } } in skills {
        let _ = write!(words, "\n- {name}: {} ({path})", description.trim());
    }
    words
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn skills_are_found_by_their_heads() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("b", "---\nname: beta\ndescription: 'Does: b'\nlicense: MIT\n---\nHow"),
            ("a", "---\nname: alpha\ndescription: >\n  Does\n  a\n---\n"),
            ("c", "no head"),
            ("d", "---\nname: [delta]\n---\n"),
        ] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            std::fs::write(dir.path().join(name).join("SKILL.md"), text).unwrap();
        }
        let root = dir.path().display().to_string();
        let found = std::process::Command::new("sh").args(["-c", &search(&root)]).output().unwrap();
        let words = skills_in_words(&skills(&String::from_utf8(found.stdout).unwrap()));
        let expected = format!("\n- alpha: Does a ({root}/a/SKILL.md)\n- beta: Does: b ({root}/b/SKILL.md)");
        assert!(words.ends_with(&expected), "{words}");
        assert_eq!(skills_in_words(&[]), "");
    }

    proptest! {
        #[test]
        fn any_print_is_read_without_panic(text in "([a-z/]{0,4}\n|---\n|name: |description: |\u{c}\n|[\\[{:'\n]){0,30}") {
            let _read = skills(&text).len();
        }
    }
}
