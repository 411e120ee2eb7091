//! The XML format: `response` with `analysis`, `plan`, `commands` of `keystrokes`, and optionally `task_complete`.
//!
//! The format only resembles XML. Nothing is escaped, so that a model can write a shell's `<`, `>` and `&` literally.
//! An element ends at its first closing tag.

use super::{Command, DEFAULT_WAIT, Parts, wait_of, warn_of_run_on_lines};

pub(super) fn read(text: &str, warnings: &mut Vec<String>) -> Result<Parts, String> {
    let sections = Sections::of(response(text, warnings)?, warnings);
    let said = |content: Option<&str>| content.unwrap_or_default().trim().to_owned();
    let task_complete =
        sections.task_complete.is_some_and(|content| content.trim().eq_ignore_ascii_case("true"));
    for (name, content) in [("analysis", sections.analysis), ("plan", sections.plan)] {
        if content.is_none() {
            warnings.push(format!("There is no <{name}>."));
        }
    }
    let commands = match sections.commands {
        Some(content) => read_commands(content, warnings),
        // An answer that only declares completion needs no commands.
        None if task_complete => {
            warnings.push("There is no <commands>.".into());
            Vec::new()
        }
        None => return Err("There is no <commands> with a closing </commands>.".into()),
    };
    if commands.is_empty() && !task_complete {
        warnings.push(
            "There are no commands, so nothing was typed. To wait, send empty <keystrokes> with a duration."
                .into(),
        );
    }
    Ok(Parts { analysis: said(sections.analysis), plan: said(sections.plan), commands, task_complete })
}

/// Returns the text up to the end of the first response. `None` if its commands are not closed, or if there is a second
/// response or a second list of commands.
pub(super) fn whole_response(text: &str) -> Option<&str> {
    let commands = text.find("</commands>")?;
    let end = commands + text.get(commands..)?.find(RESPONSE_END)? + RESPONSE_END.len();
    let whole = text.get(..end)?;
    let is_single = ["<response>", "<commands>"].iter().all(|tag| whole.matches(tag).count() == 1);
    is_single.then_some(whole)
}

const RESPONSE: &str = "<response>";
const RESPONSE_END: &str = "</response>";

/// Returns the content of the first response, which ends with the text if it is not closed.
fn response<'a>(text: &'a str, warnings: &mut Vec<String>) -> Result<&'a str, String> {
    let (before, rest) = text.split_once(RESPONSE).ok_or("There is no <response> in the answer.")?;
    if !before.trim().is_empty() {
        warnings.push("There is text before <response>; send the response alone.".into());
    }
    let Some((content, after)) = rest.split_once(RESPONSE_END) else {
        warnings.push("The <response> was not closed; </response> was added at its end.".into());
        return non_empty(rest);
    };
    if !after.trim().is_empty() {
        warnings.push("There is text after </response>; send the response alone.".into());
    }
    // A second response was written without a view of the terminal after the first.
    if after.contains(RESPONSE) {
        warnings.push("There is more than one <response>; only the first was carried out.".into());
    }
    non_empty(content)
}

fn non_empty(content: &str) -> Result<&str, String> {
    if content.trim().is_empty() { Err("The <response> is empty.".into()) } else { Ok(content) }
}

/// The contents of a response's elements, `None` for missing elements.
#[derive(Default)]
struct Sections<'a> {
    analysis: Option<&'a str>,
    plan: Option<&'a str>,
    commands: Option<&'a str>,
    task_complete: Option<&'a str>,
}

/// The elements of a response in their required order.
const SECTIONS: [&str; 4] = ["analysis", "plan", "commands", "task_complete"];

impl<'a> Sections<'a> {
    /// Parses the sections. The content of an element is not searched for other elements, so keystrokes may contain any
    /// tags except the closing tags of the elements around them.
    fn of(content: &'a str, warnings: &mut Vec<String>) -> Self {
        let mut sections = Self::default();
        let mut order = Vec::new();
        let mut rest = content;
        while let Some((tag, after)) = next_tag(rest) {
            rest = after;
            let Some(place) = SECTIONS.iter().position(|name| *name == tag.name) else {
                warnings.push(format!("There is a <{}>, which is no part of a response.", tag.name));
                continue;
            };
            let inside = if tag.is_empty { Some(("", rest)) } else { up_to_end(rest, tag.name) };
            let Some((inside, after)) = inside else {
                warnings.push(format!("The <{}> is not closed.", tag.name));
                continue;
            };
            rest = after;
            order.push(place);
            let section = sections.section(place);
            if section.is_some() {
                warnings.push(format!("There is more than one <{}>; only the first counts.", tag.name));
            }
            section.get_or_insert(inside);
        }
        // The position of `task_complete` does not matter.
        if !order.iter().filter(|place| **place < 3).is_sorted() {
            warnings.push("The elements should come in this order: analysis, plan, commands.".into());
        }
        sections
    }

    /// Returns the section at this index of [`SECTIONS`].
    fn section(&mut self, place: usize) -> &mut Option<&'a str> {
        match place {
            0 => &mut self.analysis,
            1 => &mut self.plan,
            2 => &mut self.commands,
            _ => &mut self.task_complete,
        }
    }
}

/// An opening tag.
struct Tag<'a> {
    name: &'a str,
    attributes: &'a str,
    /// Whether the tag is self-closing.
    is_empty: bool,
}

/// Returns the next opening tag and the text after it. A `<` that does not begin a tag is text.
fn next_tag(text: &str) -> Option<(Tag<'_>, &str)> {
    let mut rest = text;
    loop {
        rest = rest.split_once('<')?.1;
        let end =
            rest.find(|c: char| !(c.is_ascii_alphanumeric() || "_-.:".contains(c))).unwrap_or(rest.len());
        let (name, after) = rest.split_at_checked(end)?;
        let begins_a_tag = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && after.starts_with(|c: char| c.is_whitespace() || c == '>' || c == '/');
        if !begins_a_tag {
            continue;
        }
        let (attributes, after) = after.split_once('>')?;
        let (attributes, is_empty) = match attributes.strip_suffix('/') {
            Some(attributes) => (attributes, true),
            None => (attributes, false),
        };
        return Some((Tag { name, attributes, is_empty }, after));
    }
}

/// Returns the text before an element's closing tag, and the text after it.
fn up_to_end<'a>(text: &'a str, name: &str) -> Option<(&'a str, &'a str)> {
    text.split_once(format!("</{name}>").as_str())
}

fn read_commands(content: &str, warnings: &mut Vec<String>) -> Vec<Command> {
    let mut commands = Vec::new();
    let mut rest = content;
    while let Some((tag, after)) = next_tag(rest) {
        rest = after;
        if tag.name != KEYSTROKES {
            warnings.push(format!("There is a <{}> among the commands, which was ignored.", tag.name));
            continue;
        }
        let number = commands.len() + 1;
        let inside = if tag.is_empty { Some(("", rest)) } else { up_to_end(rest, KEYSTROKES) };
        let Some((keystrokes, after)) = inside else {
            warnings.push(format!("The <keystrokes> of command {number} are not closed and were not typed."));
            // Without a closing tag the end of the keystrokes is unknown, and so is everything after it.
            break;
        };
        rest = after;
        let wait = read_duration(number, tag.attributes, warnings).map_or(DEFAULT_WAIT, wait_of);
        commands.push(Command { keystrokes: keystrokes.to_owned(), wait });
    }
    warn_of_run_on_lines(&commands, warnings);
    warn_of_escapes(&commands, warnings);
    commands
}

const KEYSTROKES: &str = "keystrokes";

/// Returns the seconds in a command's attributes. `None` stands for the default, and a warning explains this.
fn read_duration(number: usize, attributes: &str, warnings: &mut Vec<String>) -> Option<f64> {
    let mut rest = attributes;
    let mut duration = None;
    let mut said = false;
    while let Some((name, after)) = rest.split_once('=') {
        let name = name.trim().rsplit(char::is_whitespace).next().unwrap_or_default();
        let after = after.trim_start();
        let quote = after.chars().next().filter(|c| ['"', '\''].contains(c));
        let value = match quote {
            Some(quote) => after.get(1..).and_then(|value| value.split_once(quote)),
            None => None,
        };
        // Skips an unquoted value, so that the attributes after it are still parsed.
        rest = match value {
            Some((_, after)) => after,
            None => after.find(char::is_whitespace).and_then(|end| after.get(end..)).unwrap_or_default(),
        };
        if name != "duration" {
            warnings.push(format!("Command {number} has an unknown attribute, which was ignored: {name}."));
            continue;
        }
        said = true;
        let Some((value, _)) = value else {
            warnings
                .push(format!("The duration of command {number} should be in quotes; 1.0 seconds was used."));
            continue;
        };
        if quote == Some('\'') {
            warnings.push(format!("The duration of command {number} should be in double quotes."));
        }
        duration = value.trim().parse().ok().filter(|seconds: &f64| !seconds.is_nan());
        if duration.is_none() {
            warnings.push(format!("The duration of command {number} is not a number; 1.0 seconds was used."));
        }
    }
    if !said {
        warnings.push(format!("Command {number} has no duration; 1.0 seconds was used."));
    }
    duration
}

/// Warns of escapes, which models with knowledge of XML may write.
fn warn_of_escapes(commands: &[Command], warnings: &mut Vec<String>) {
    let typed = |text: &str| commands.iter().any(|command| command.keystrokes.contains(text));
    for entity in ["&lt;", "&gt;", "&amp;", "&quot;", "&apos;"] {
        if typed(entity) {
            warnings.push(format!(
                "{entity} was typed as it stands; keystrokes are not unescaped, so write the character itself."
            ));
        }
    }
    if typed("\\r\\n") {
        warnings.push("\\r\\n was typed as it stands; a line break in the keystrokes is enough.".into());
    }
}

#[cfg(test)]
mod tests;
