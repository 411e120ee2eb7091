//! `docs/reference/harbor-options.md`, below its introduction: the table of Harbor's options, and that of its commands.

use std::fmt::Write;

use super::markdown::cell;
use crate::command_line::COMMANDS;
use crate::run::{HARBOR_OPTIONS, Here};

pub(super) fn page() -> String {
    let mut text = "## Options\n\n| `harbor run` | `rolltap run` |\n|---|---|\n".to_owned();
    for option in HARBOR_OPTIONS {
        let here = match option.here {
            Here::Same => "the same".to_owned(),
            Here::Differs(how) => format!("the same, with a difference: {how}"),
            Here::Lacks(remedy) => format!("none. {remedy}"),
        };
        let _ = writeln!(text, "| {} | {} |", codes(option.names), cell(&here));
    }
    text.push_str("\n## Commands\n\n| `harbor` | rolltap |\n|---|---|\n");
    for (names, remedy) in COMMANDS {
        let _ = writeln!(text, "| {} | {} |", codes(names), cell(remedy));
    }
    text
}

fn codes(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
