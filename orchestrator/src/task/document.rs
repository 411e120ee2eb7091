//! A TOML document that reports all its errors, and the lines of its keys.

use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, Error};

/// The most errors of one document. Further errors rarely help to correct the document.
const MOST: usize = 50;

/// A parsed document.
pub(super) struct Document<'t> {
    text: &'t str,
    table: Spanned<DeTable<'t>>,
}

/// An error of the syntax or of the type of a value.
pub(super) struct Fault {
    /// The line, from 1.
    pub(super) line: Option<usize>,
    /// The problem, in the words of the parser.
    pub(super) problem: String,
    /// The problem with its position and the faulty line.
    pub(super) excerpt: String,
}

/// The value of a document, or everything that is wrong with it.
pub(super) struct Read<T> {
    pub(super) value: Result<T, Vec<Fault>>,
    /// The keys that the type does not have, as `serde_ignored` writes them.
    pub(super) unknown: Vec<String>,
}

impl<'t> Document<'t> {
    /// Parses a text.
    ///
    /// # Errors
    /// Returns all errors of the syntax.
    pub(super) fn parse(text: &'t str) -> Result<Self, Vec<Fault>> {
        let (table, errors) = DeTable::parse_recoverable(text);
        match errors.is_empty() {
            true => Ok(Self { text, table }),
            false => Err(errors.into_iter().take(MOST).map(|error| fault(text, error)).collect()),
        }
    }

    /// Parses a text, and ignores errors of the syntax.
    pub(super) fn parse_anyway(text: &'t str) -> Self {
        Self { text, table: DeTable::parse_recoverable(text).0 }
    }

    /// Reads the document as a value. After an error, the faulty entry is removed and the rest is read, so that all
    /// errors are found.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Read<T> {
        let mut table = self.table.clone();
        let mut faults = Vec::new();
        let mut removed: Vec<String> = Vec::new();
        loop {
            let mut unknown = Vec::new();
            let deserializer = toml::Deserializer::from(table.clone());
            let read = serde_ignored::deserialize(deserializer, |key| unknown.push(key.to_string()));
            let error: Error = match read {
                Ok(value) if faults.is_empty() => return Read { value: Ok(value), unknown },
                Ok(_) => return Read { value: Err(faults), unknown },
                Err(error) => error,
            };
            let span = error.span();
            // A key that this loop removed is not missing.
            let follows = removed.iter().any(|key| error.message() == format!("missing field `{key}`"));
            if !follows {
                faults.push(fault(self.text, error));
            }
            match span.and_then(|span| remove(table.get_mut(), &span)) {
                Some(key) if faults.len() < MOST => removed.push(key),
                _ => return Read { value: Err(faults), unknown },
            }
        }
    }

    /// Returns the line of a key like `steps.NAME.agent.timeout_sec`, or of the nearest table above it. A step or a
    /// server is named by its `name`.
    pub(super) fn line_of(&self, key: &str) -> Option<usize> {
        let mut found = None;
        let mut rest = key;
        let mut table = self.table.get_ref();
        while let Some((name, after)) = split(rest, |step| table.contains_key(step)) {
            let (key, value) = table.iter().find(|(key, _)| key.get_ref() == name)?;
            found = Some(key.span());
            rest = after;
            match value.get_ref() {
                DeValue::Table(below) => table = below,
                DeValue::Array(items) => {
                    let Some((span, below, after)) = element(items, rest) else { break };
                    found = Some(span);
                    (table, rest) = (below, after);
                }
                _ => break,
            }
        }
        found.map(|span| line_at(self.text, span.start))
    }
}

/// Splits a path after its first step. A key may contain dots, so the shortest beginning that is a key is the step.
fn split(path: &str, is_key: impl Fn(&str) -> bool) -> Option<(&str, &str)> {
    let ends = path.match_indices('.').map(|(at, _)| at).chain([path.len()]);
    let at = ends.into_iter().find(|at| path.get(..*at).is_some_and(&is_key))?;
    Some((path.get(..at)?, path.get(at..)?.trim_start_matches('.')))
}

/// Returns the table of an array that the path names, with its place and the rest of the path. A path without a name is
/// in the first table.
fn element<'a, 't>(
    items: &'a DeArray<'t>,
    path: &'a str,
) -> Option<(Range<usize>, &'a DeTable<'t>, &'a str)> {
    let tables = || items.iter().filter_map(|item| Some((item.span(), item.get_ref().as_table()?)));
    for (span, table) in tables() {
        let name = table.get("name").and_then(|name| name.get_ref().as_str());
        if let Some((_, rest)) = name.and_then(|name| split(path, |step| step == name)) {
            return Some((span, table, rest));
        }
    }
    tables().next().map(|(span, table)| (span, table, path))
}

/// Removes the innermost entry whose value contains the place. Returns its key.
fn remove(table: &mut DeTable<'_>, place: &Range<usize>) -> Option<String> {
    // The span of a table covers its header only, so every table is searched.
    for (_, value) in table.iter_mut() {
        if let Some(key) = remove_below(value, place) {
            return Some(key);
        }
    }
    let holds = |value: &Spanned<DeValue<'_>>| contains(&value.span(), place);
    let key = table.iter().find(|(_, value)| holds(value)).map(|(key, _)| key.get_ref().to_string())?;
    table.remove(key.as_str());
    Some(key)
}

fn remove_below(value: &mut Spanned<DeValue<'_>>, place: &Range<usize>) -> Option<String> {
    match value.get_mut() {
        DeValue::Table(table) => remove(table, place),
        DeValue::Array(items) => {
            if let Some(key) = items.iter_mut().find_map(|item| remove_below(item, place)) {
                return Some(key);
            }
            let index = items.iter().position(|item| contains(&item.span(), place))?;
            let others = std::mem::replace(items, DeArray::new())
                .into_iter()
                .enumerate()
                .filter(|(at, _)| *at != index);
            *items = others.map(|(_, item)| item).collect();
            Some(String::new())
        }
        _ => None,
    }
}

fn contains(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

fn fault(text: &str, mut error: Error) -> Fault {
    let line = error.span().map(|span| line_at(text, span.start));
    let problem = error.message().to_owned();
    // Without the text, the error displays no line.
    error.set_input(Some(text));
    Fault { line, problem, excerpt: error.to_string().trim_end().to_owned() }
}

fn line_at(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::super::TaskConfig;
    use super::*;

    fn lines(text: &str) -> Vec<Option<usize>> {
        let read: Result<TaskConfig, _> = match Document::parse(text) {
            Ok(document) => document.read().value,
            Err(faults) => Err(faults),
        };
        read.err().unwrap_or_default().iter().map(|fault| fault.line).collect()
    }

    const FAULTY: &str = "[agent]\ntimeout_sec = \"soon\"\n\n[task]\nname = 7\n\n[[steps]]\nname = \"a\"\n\
                          [steps.verifier]\ntimeout_sec = true\n[[steps]]\nmin_reward = 1\n\n[verifier]\nenv = 3\n";

    #[test]
    fn every_error_of_a_type_is_found() {
        let mut found = lines(FAULTY);
        found.sort_unstable();
        assert_eq!(found, [2, 5, 10, 11, 15].map(Some), "the second step has no name");
        assert_eq!(lines("[agent]\ntimeout_sec = 1\n"), []);
        assert_eq!(lines("[agent\n[task\n").len(), 2, "every error of the syntax too");
    }

    #[test]
    fn keys_have_lines() {
        let text = "[agent]\nuser = \"x\"\n[[steps]]\nname = \"a.b\"\nmin_reward = 1\n[[steps]]\nname = \"c\"\n\
                    [steps.agent]\ntimeout_sec = 2\n[verifier]\n[[verifier.collect]]\ncommand = \"x\"\ntimeout_sec = 0\n";
        let document = Document::parse_anyway(text);
        for (key, line) in [
            ("agent.user", 2),
            ("agent.timeout_sec", 1),
            ("steps.a.b.min_reward", 5),
            ("steps.c.agent.timeout_sec", 9),
            ("steps.c.verifier.timeout_sec", 6),
            ("verifier.collect.timeout_sec", 13),
        ] {
            assert_eq!(document.line_of(key), Some(line), "{key}");
        }
        assert_eq!(document.line_of("environment.cpus"), None);
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "([\\[\\]{}=\"'.#a-z0-9\n -]|steps|agent|name|timeout_sec){0,30}", key in "[a-z.]{0,20}") {
            let document = Document::parse_anyway(&text);
            let _ = document.line_of(&key);
            let _ = document.read::<TaskConfig>();
        }
    }
}
