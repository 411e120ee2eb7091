//! Texts of clap as Markdown and as comments, wrapped at the width of the repository.

use clap::{Arg, ArgAction};

/// The longest line of documentation.
const WIDTH: usize = 120;

/// Wraps a text of clap. clap has one line per paragraph, and a list has one line per item.
pub(super) fn wrapped(text: &str, first: &str, next: &str) -> String {
    let mut lines = Vec::new();
    for paragraph in text.lines() {
        let (mut line, mut is_empty) = (if lines.is_empty() { first } else { next }.to_owned(), true);
        let (indent, paragraph) = match paragraph.strip_prefix("- ") {
            Some(_) => (format!("{next}  "), paragraph),
            None => (next.to_owned(), paragraph),
        };
        for word in paragraph.split_whitespace() {
            if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
                lines.push(std::mem::replace(&mut line, indent.clone()));
                is_empty = true;
            }
            if !is_empty {
                line.push(' ');
            }
            line.push_str(word);
            is_empty = false;
        }
        lines.push(line);
    }
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// The documentation of a flag, variable and key, without the default that its text may name.
pub(super) fn documentation(option: &Arg) -> String {
    let text = option.get_long_help().or(option.get_help()).map(ToString::to_string).unwrap_or_default();
    sentence(&split_default(&text).0)
}

/// The default of an option, as text: the value that clap has, or the text in the documentation.
pub(super) fn default_of(option: &Arg) -> Option<String> {
    // A flag without a value has a default in clap, but only after `Command::build`.
    if matches!(option.get_action(), ArgAction::SetTrue) {
        return Some("false".to_owned());
    }
    let values = option.get_default_values().iter().map(|value| value.to_string_lossy());
    let values = values.collect::<Vec<_>>().join(",");
    if !values.is_empty() {
        return Some(values);
    }
    let text = option.get_long_help().or(option.get_help()).map(ToString::to_string).unwrap_or_default();
    split_default(&text).1
}

/// Whether an option has no value.
pub(super) fn is_switch(option: &Arg) -> bool {
    !option.get_action().takes_values()
}

/// Takes `[default: …]` out of a text.
fn split_default(text: &str) -> (String, Option<String>) {
    let Some((before, rest)) = text.split_once(" [default: ") else { return (text.to_owned(), None) };
    let (default, after) = rest.split_once(']').unwrap_or((rest, ""));
    (format!("{before}{after}"), Some(default.to_owned()))
}

/// Restores the full stop, which clap drops at the end of a short text.
fn sentence(text: &str) -> String {
    if text.is_empty() || text.ends_with(['.', ':']) { text.to_owned() } else { format!("{text}.") }
}

/// `--flag VALUE`, with the short form and the aliases.
pub(super) fn flag(option: &Arg) -> String {
    let names = option.get_short().map(|short| format!("-{short}"));
    let long = option.get_long().into_iter().chain(option.get_visible_aliases().into_iter().flatten());
    let names: Vec<_> = names.into_iter().chain(long.map(|long| format!("--{long}"))).collect();
    let value = match option.get_value_names().unwrap_or_default() {
        [name] if option.get_action().takes_values() => name.to_string(),
        _ => return names.join(", "),
    };
    match (option.is_positional(), option.get_num_args().is_some_and(|number| number.min_values() == 0)) {
        (true, _) => value,
        (false, true) => format!("{} [{value}]", names.join(", ")),
        (false, false) => format!("{} {value}", names.join(", ")),
    }
}

/// Whether an option may be repeated.
pub(super) fn is_repeatable(option: &Arg) -> bool {
    matches!(option.get_action(), ArgAction::Append)
}

/// A cell of a table.
pub(super) fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
