//! The `tojson` filter of chat templates: Python's `json.dumps` with the defaults of transformers. Unlike the filter
//! for web templates, it escapes nothing for HTML.

use std::fmt::Write;

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, Value};

use super::python::{Special, write_number};

/// Implements `value|tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false)`.
pub(super) fn tojson(value: &Value, positional: Rest<Value>, named: Kwargs) -> Result<String, Error> {
    let layout = Layout::of(&positional, &named)?;
    named.assert_all_used()?;
    let mut text = String::new();
    layout.write(&mut text, value, 0)?;
    Ok(text)
}

/// The arguments of `json.dumps` that a template can give.
struct Layout {
    ensure_ascii: bool,
    /// The indentation of one level, or `None` to write a single line.
    indent: Option<String>,
    between_items: String,
    after_key: String,
    sort_keys: bool,
}

impl Layout {
    fn of(positional: &[Value], named: &Kwargs) -> Result<Self, Error> {
        let argument = |index: usize, name: &str| -> Result<Value, Error> {
            let named: Option<Value> = named.get(name)?;
            Ok(positional.get(index).cloned().or(named).unwrap_or(Value::from(())))
        };
        let indent = match argument(1, "indent")? {
            none if none.is_none() => None,
            text if text.as_str().is_some() => text.as_str().map(str::to_owned),
            // The limit bounds the text of a broken template.
            count => Some(" ".repeat(i64::try_from(count)?.clamp(0, 64) as usize)),
        };
        let separators = argument(2, "separators")?;
        let (between_items, after_key) = if separators.is_none() {
            // Python writes no space before a line break.
            (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned())
        } else {
            (separators.get_item_by_index(0)?.to_string(), separators.get_item_by_index(1)?.to_string())
        };
        let is_on = |value: Value| value.is_true();
        Ok(Self {
            ensure_ascii: is_on(argument(0, "ensure_ascii")?),
            indent,
            between_items,
            after_key,
            sort_keys: is_on(argument(3, "sort_keys")?),
        })
    }

    fn write(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => write_number(out, value, Special::JSON).map_err(formatting)?,
            ValueKind::String => self.write_text(out, value.as_str().unwrap_or_default())?,
            ValueKind::Seq => self.write_list(out, value, depth)?,
            ValueKind::Map => self.write_map(out, value, depth)?,
            kind => return Err(not_serializable(kind)),
        }
        Ok(())
    }

    fn write_list(&self, out: &mut String, list: &Value, depth: usize) -> Result<(), Error> {
        out.push('[');
        let mut is_empty = true;
        for item in list.try_iter()? {
            self.begin_item(out, is_empty, depth + 1);
            is_empty = false;
            self.write(out, &item, depth + 1)?;
        }
        self.end(out, is_empty, depth, ']');
        Ok(())
    }

    fn write_map(&self, out: &mut String, map: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<Value> = map.try_iter()?.collect();
        if self.sort_keys {
            keys.sort();
        }
        out.push('{');
        for (index, key) in keys.iter().enumerate() {
            self.begin_item(out, index == 0, depth + 1);
            match key.as_str() {
                Some(key) => self.write_text(out, key)?,
                // JSON has only keys of text. Python converts the other kinds of keys to text.
                None => {
                    let mut spelled = String::new();
                    self.write(&mut spelled, key, depth)?;
                    self.write_text(out, &spelled)?;
                }
            }
            out.push_str(&self.after_key);
            self.write(out, &map.get_item(key)?, depth + 1)?;
        }
        self.end(out, keys.is_empty(), depth, '}');
        Ok(())
    }

    fn begin_item(&self, out: &mut String, is_first: bool, depth: usize) {
        if !is_first {
            out.push_str(&self.between_items);
        }
        self.new_line(out, depth);
    }

    fn end(&self, out: &mut String, is_empty: bool, depth: usize, bracket: char) {
        if !is_empty {
            self.new_line(out, depth);
        }
        out.push(bracket);
    }

    fn new_line(&self, out: &mut String, depth: usize) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
    }

    fn write_text(&self, out: &mut String, text: &str) -> Result<(), Error> {
        out.push('"');
        // Most of a text needs no escape and is copied in one piece.
        let mut rest = text;
        while let Some(at) = rest.find(|char| self.is_escaped(char)) {
            let (plain, from) = rest.split_at(at);
            out.push_str(plain);
            let mut chars = from.chars();
            if let Some(char) = chars.next() {
                write_escaped(out, char).map_err(formatting)?;
            }
            rest = chars.as_str();
        }
        out.push_str(rest);
        out.push('"');
        Ok(())
    }

    fn is_escaped(&self, char: char) -> bool {
        // Like Python, `ensure_ascii` also escapes U+007F.
        matches!(char, '"' | '\\' | '\u{0}'..='\u{1f}') || (self.ensure_ascii && char > '~')
    }
}

fn write_escaped(out: &mut String, char: char) -> std::fmt::Result {
    match char {
        '"' => out.write_str("\\\""),
        '\\' => out.write_str("\\\\"),
        '\n' => out.write_str("\\n"),
        '\r' => out.write_str("\\r"),
        '\t' => out.write_str("\\t"),
        '\u{8}' => out.write_str("\\b"),
        '\u{c}' => out.write_str("\\f"),
        char => char.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(out, "\\u{unit:04x}")),
    }
}

fn formatting(_: std::fmt::Error) -> Error {
    Error::from(ErrorKind::WriteFailure)
}

fn not_serializable(kind: ValueKind) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("Object of type {kind} is not JSON serializable"))
}
