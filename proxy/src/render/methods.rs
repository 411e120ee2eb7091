//! Python's methods that templates call on values, where minijinja's own collection lacks a method or differs.

use minijinja::value::{Kwargs, Rest, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::python::is_space;

/// Calls a method that a value lacks. minijinja uses this function as its callback.
pub(super) fn call(
    state: &mut State<'_, '_>,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let own = match (value.kind(), value.as_str()) {
        (ValueKind::String, Some(text)) => text_method(text, name, args)?,
        (ValueKind::Map, _) if name == "copy" => Some(value.clone()),
        _ => None,
    };
    match own {
        Some(result) => Ok(result),
        None => unknown_method_callback(state, value, name, args),
    }
}

/// Calls a method of a text. Returns `None` if minijinja's collection has the method.
fn text_method(text: &str, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    Ok(Some(match name {
        "strip" => strip(text, args, true, true)?,
        "lstrip" => strip(text, args, true, false)?,
        "rstrip" => strip(text, args, false, true)?,
        "split" => split(text, args, From::Left)?,
        "rsplit" => split(text, args, From::Right)?,
        "partition" => partition(text, args, str::split_once, From::Left)?,
        "rpartition" => partition(text, args, str::rsplit_once, From::Right)?,
        "splitlines" => split_lines(text, args)?,
        "removeprefix" => one_text(args, |prefix| text.strip_prefix(prefix).unwrap_or(text))?,
        "removesuffix" => one_text(args, |suffix| text.strip_suffix(suffix).unwrap_or(text))?,
        "isspace" => Value::from(!text.is_empty() && text.chars().all(is_space)),
        "index" => found(text, args, str::find)?,
        "rindex" => found(text, args, str::rfind)?,
        "zfill" | "ljust" | "rjust" => pad(text, name, args)?,
        _ => return Ok(None),
    }))
}

/// The end from which splits are counted.
#[derive(Clone, Copy, PartialEq)]
enum From {
    Left,
    Right,
}

/// Implements `strip`, `lstrip` and `rstrip` as methods, and the filter `trim`. Removes Python's white space unless the
/// arguments name characters.
pub(super) fn strip(text: &str, args: &[Value], left: bool, right: bool) -> Result<Value, Error> {
    let (chars,): (Option<&str>,) = from_args(args)?;
    let goes = |char: char| chars.map_or_else(|| is_space(char), |chars| chars.contains(char));
    let text = if left { text.trim_start_matches(goes) } else { text };
    let text = if right { text.trim_end_matches(goes) } else { text };
    Ok(Value::from(text))
}

/// Implements `split` and `rsplit`, with `sep` and `maxsplit` by position or by name.
fn split(text: &str, args: &[Value], from: From) -> Result<Value, Error> {
    let (positional, named): (Rest<Value>, Kwargs) = from_args(args)?;
    let argument = |index: usize, name: &str| -> Result<Option<Value>, Error> {
        let named: Option<Value> = named.get(name)?;
        Ok(positional.get(index).cloned().or(named).filter(|value| !value.is_none()))
    };
    let separator = argument(0, "sep")?;
    let limit = match argument(1, "maxsplit")? {
        // Python treats a negative `maxsplit` as no limit.
        Some(limit) => usize::try_from(i64::try_from(limit)?).ok(),
        None => None,
    };
    named.assert_all_used()?;
    let mut parts: Vec<&str> = match separator.as_ref().map(Value::as_str) {
        Some(Some("")) => return Err(value_error("empty separator")),
        Some(Some(separator)) => match (limit.and_then(|limit| limit.checked_add(1)), from) {
            (None, _) => text.split(separator).collect(),
            (Some(pieces), From::Left) => text.splitn(pieces, separator).collect(),
            (Some(pieces), From::Right) => text.rsplitn(pieces, separator).collect(),
        },
        Some(None) => return Err(value_error("a separator must be a text")),
        None => return Ok(split_at_space(text, limit, from).into_iter().collect()),
    };
    // `rsplitn` yields the pieces from the right.
    if limit.is_some() && from == From::Right {
        parts.reverse();
    }
    Ok(parts.into_iter().collect())
}

/// Splits without a separator: runs of white space separate words, and no word is empty.
fn split_at_space(text: &str, limit: Option<usize>, from: From) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text.trim_matches(is_space);
    while !rest.is_empty() {
        let cut = if limit.is_some_and(|limit| words.len() == limit) {
            None
        } else if from == From::Left {
            rest.split_once(is_space)
        } else {
            rest.rsplit_once(is_space).map(|(left, word)| (word, left))
        };
        // The rest of the text is the last word, including its inner white space.
        let Some((word, left_over)) = cut else {
            words.push(rest);
            break;
        };
        words.push(word);
        rest = left_over.trim_matches(is_space);
    }
    if from == From::Right {
        words.reverse();
    }
    words
}

/// Implements `partition` and `rpartition`: the text before the separator, the separator, and the text after it. If the
/// separator is absent, the whole text is the first piece (`partition`) or the last (`rpartition`).
fn partition<'t>(
    text: &'t str,
    args: &'t [Value],
    cut: impl Fn(&'t str, &'t str) -> Option<(&'t str, &'t str)>,
    from: From,
) -> Result<Value, Error> {
    let (separator,): (&str,) = from_args(args)?;
    let pieces = match (cut(text, separator), from) {
        (Some((before, after)), _) => [before, separator, after],
        (None, From::Left) => [text, "", ""],
        (None, From::Right) => ["", "", text],
    };
    Ok(pieces.into_iter().collect())
}

/// Implements `splitlines`. Lines end at every boundary that Python knows, not only at newlines.
fn split_lines(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (keep_ends,): (Option<bool>,) = from_args(args)?;
    let is_end = |char: char| {
        matches!(
            char,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let line = rest.find(is_end).map_or(rest, |at| rest.split_at(at).0);
        let from_end = rest.strip_prefix(line).unwrap_or_default();
        let after =
            from_end.strip_prefix("\r\n").or_else(|| from_end.strip_prefix(is_end)).unwrap_or_default();
        let with_end = rest.strip_suffix(after).unwrap_or(rest);
        lines.push(if keep_ends.unwrap_or(false) { with_end } else { line });
        rest = after;
    }
    Ok(lines.into_iter().collect())
}

fn one_text<'a>(args: &'a [Value], result: impl Fn(&'a str) -> &'a str) -> Result<Value, Error> {
    let (text,): (&str,) = from_args(args)?;
    Ok(Value::from(result(text)))
}

/// Implements `index` and `rindex`: the position of a text in characters. Unlike `find`, they fail if the text is
/// absent.
fn found<'t>(
    text: &'t str,
    args: &'t [Value],
    find: impl Fn(&'t str, &'t str) -> Option<usize>,
) -> Result<Value, Error> {
    let (what,): (&str,) = from_args(args)?;
    let at = find(text, what).ok_or_else(|| value_error("substring not found"))?;
    Ok(Value::from(text.get(..at).unwrap_or_default().chars().count()))
}

/// Implements `zfill`, `ljust` and `rjust`: pads to a width, with zeros after the sign or with a character at either
/// end.
fn pad(text: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    let (width, fill): (usize, Option<&str>) = from_args(args)?;
    let fill = if name == "zfill" { "0" } else { fill.unwrap_or(" ") };
    let missing = fill.repeat(width.min(MAX_WIDTH).saturating_sub(text.chars().count()));
    let sign = if name == "zfill" { text.len() - text.trim_start_matches(['+', '-']).len() } else { 0 };
    let (sign, digits) = text.split_at(sign.min(1));
    Ok(Value::from(if name == "ljust" {
        format!("{text}{missing}")
    } else {
        format!("{sign}{missing}{digits}")
    }))
}

/// The maximum width. A template that asks for more is broken, and must not exhaust the memory.
const MAX_WIDTH: usize = 10_000;

fn value_error(why: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}
