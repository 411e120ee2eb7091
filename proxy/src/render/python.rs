//! Python's spelling of values: `str`, `repr`, and its definition of white space. Templates print values in that
//! spelling.

use std::fmt::{self, Write};

use minijinja::Value;
use minijinja::value::ValueKind;

/// Writes `str(value)`, as `{{ value }}` prints it.
pub(super) fn write_str(out: &mut impl Write, value: &Value) -> fmt::Result {
    match value.as_str() {
        Some(text) => out.write_str(text),
        None if value.is_undefined() => Ok(()),
        None => write_repr(out, value),
    }
}

/// Returns `str(value)`.
pub(super) fn to_str(value: &Value) -> String {
    let mut text = String::new();
    // Writing into a String cannot fail.
    let _ = write_str(&mut text, value);
    text
}

/// Writes `repr(value)`, as values inside lists and dictionaries are printed.
fn write_repr(out: &mut impl Write, value: &Value) -> fmt::Result {
    match value.kind() {
        ValueKind::Undefined => out.write_str("Undefined"),
        ValueKind::None => out.write_str("None"),
        ValueKind::Bool => out.write_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => write_number(out, value, Special::REPR),
        ValueKind::String => write_quoted(out, value.as_str().unwrap_or_default()),
        ValueKind::Seq if value.is_tuple() => write_items(out, value, ('(', ')')),
        ValueKind::Seq => write_items(out, value, ('[', ']')),
        ValueKind::Map => write_map(out, value),
        _ => write!(out, "{value}"),
    }
}

fn write_items(out: &mut impl Write, list: &Value, (open, close): (char, char)) -> fmt::Result {
    out.write_char(open)?;
    for (index, item) in list.try_iter().into_iter().flatten().enumerate() {
        out.write_str(if index == 0 { "" } else { ", " })?;
        write_repr(out, &item)?;
    }
    // A comma distinguishes a tuple of one item from a value in brackets.
    out.write_str(if open == '(' && list.len() == Some(1) { "," } else { "" })?;
    out.write_char(close)
}

fn write_map(out: &mut impl Write, map: &Value) -> fmt::Result {
    out.write_char('{')?;
    for (index, key) in map.try_iter().into_iter().flatten().enumerate() {
        out.write_str(if index == 0 { "" } else { ", " })?;
        write_repr(out, &key)?;
        out.write_str(": ")?;
        write_repr(out, &map.get_item(&key).unwrap_or_default())?;
    }
    out.write_char('}')
}

/// Writes a text with the quotes and escapes that `repr` chooses.
fn write_quoted(out: &mut impl Write, text: &str) -> fmt::Result {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.write_char(quote)?;
    for char in text.chars() {
        match char {
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            '\\' => out.write_str("\\\\")?,
            char if char == quote => write!(out, "\\{char}")?,
            char if is_printable(char) => out.write_char(char)?,
            char if char <= '\u{ff}' => write!(out, "\\x{:02x}", u32::from(char))?,
            char if char <= '\u{ffff}' => write!(out, "\\u{:04x}", u32::from(char))?,
            char => write!(out, "\\U{:08x}", u32::from(char))?,
        }
    }
    out.write_char(quote)
}

/// Implements `str.isprintable` without a table of all characters: unassigned characters count as printable.
fn is_printable(char: char) -> bool {
    let is_format = matches!(char, '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{180e}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    let is_private = matches!(char, '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..);
    char == ' ' || !(char.is_control() || char.is_whitespace() || is_format || is_private)
}

/// The spelling of values that are not finite numbers.
#[derive(Clone, Copy)]
pub(super) struct Special {
    nan: &'static str,
    infinity: &'static str,
}

impl Special {
    pub(super) const REPR: Self = Self { nan: "nan", infinity: "inf" };
    pub(super) const JSON: Self = Self { nan: "NaN", infinity: "Infinity" };
}

/// Writes a number. Python's floats differ from Rust's in their exponents and in `.0`.
pub(super) fn write_number(out: &mut impl Write, number: &Value, special: Special) -> fmt::Result {
    match f64::try_from(number.clone()) {
        Ok(float) if !number.is_integer() => write_float(out, float, special),
        _ => write!(out, "{number}"),
    }
}

/// Writes `repr(float)`: the shortest digits that read back as the same value, with an exponent below 1e-4 and from
/// 1e16 on.
fn write_float(out: &mut impl Write, float: f64, special: Special) -> fmt::Result {
    if float.is_nan() {
        return out.write_str(special.nan);
    }
    if float.is_infinite() {
        return write!(out, "{}{}", if float < 0.0 { "-" } else { "" }, special.infinity);
    }
    let scientific = format!("{float:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if float == 0.0 || (-4..16).contains(&exponent) {
        let plain = float.to_string();
        return write!(out, "{plain}{}", if plain.contains('.') { "" } else { ".0" });
    }
    write!(out, "{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.unsigned_abs())
}

/// Implements `str.isspace` for one character: Unicode's white space and the four separators of ASCII.
pub(super) fn is_space(char: char) -> bool {
    char.is_whitespace() || matches!(char, '\u{1c}'..='\u{1f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_spelled_as_python_does() {
        let list = |items: &[Value]| Value::from(items.to_vec());
        for (value, spelled) in [
            (Value::from(1.0), "1.0"),
            (Value::from(-0.0), "-0.0"),
            (Value::from(1e15), "1000000000000000.0"),
            (Value::from(1e16), "1e+16"),
            (Value::from(1.5e-7), "1.5e-07"),
            (Value::from(0.0001), "0.0001"),
            (Value::from(1.25e100), "1.25e+100"),
            (Value::from(f64::NEG_INFINITY), "-inf"),
            (Value::from(7), "7"),
            (Value::from(true), "True"),
            (Value::from(()), "None"),
            (Value::UNDEFINED, ""),
            (
                list(&[Value::from("it's"), Value::from("\u{a0}\"\n"), Value::from(2.0)]),
                r#"["it's", '\xa0"\n', 2.0]"#,
            ),
            (
                Value::from_pairs([("a", Value::from(())), ("\u{1f600}", list(&[]))]),
                "{'a': None, '\u{1f600}': []}",
            ),
        ] {
            assert_eq!(to_str(&value), spelled);
        }
    }
}
