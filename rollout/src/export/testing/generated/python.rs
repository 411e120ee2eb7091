//! Python's `TypedDict`s, made of JSON schemas.

use serde_json::{Map, Value};

/// The Rust types that become Python's, in the order in which the file has them: name, Python's name, and the type that
/// it extends.
const TYPES: [(&str, &str, Option<&str>); 4] = [
    ("CallSpan", "CallSpan", None),
    ("RolloutRow", "Row", None),
    ("PreparedRow", "PreparedRow", Some("RolloutRow")),
    ("PreparedTrial", "Prepared", None),
];

const HEADER: &str = r#""""The shapes of rows, generated from the Rust types by `just docs`. Do not edit."""

from __future__ import annotations

from typing import TypedDict
"#;

/// Columns of a line of documentation.
const WIDTH: usize = 100;

/// The text of the module, from schemas that contain all [`TYPES`].
pub(super) fn types(schemas: &[Value]) -> String {
    let mut text = HEADER.to_owned();
    for (name, python_name, base) in TYPES {
        let inherited = base.map(|base| properties(find(schemas, base)).clone()).unwrap_or_default();
        let base_name = base.map_or("TypedDict", python_name_of);
        text += &format!("\n\nclass {python_name}({base_name}):\n");
        text += &class(find(schemas, name), &inherited);
    }
    text
}

/// The schema of a type: a root, or a definition of one.
fn find<'a>(schemas: &'a [Value], name: &str) -> &'a Value {
    let of_schema = |schema: &'a Value| {
        let is_root = schema["title"] == name;
        if is_root { Some(schema) } else { schema["$defs"].get(name) }
    };
    schemas.iter().find_map(of_schema).unwrap_or_else(|| panic!("no schema of {name}"))
}

fn properties(schema: &Value) -> &Map<String, Value> {
    schema["properties"].as_object().unwrap()
}

fn class(schema: &Value, inherited: &Map<String, Value>) -> String {
    let mut text = documentation(schema);
    for (name, member) in properties(schema).iter().filter(|(name, _)| !inherited.contains_key(*name)) {
        text += &format!("\n    {name}: {}\n{}", python_type(member), documentation(member));
    }
    text
}

/// The Python type of values of this schema.
fn python_type(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/")) {
        return python_name_of(name).to_owned();
    }
    let names = match &schema["type"] {
        Value::String(name) => vec![name.as_str()],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => panic!("a schema without a type: {schema}"),
    };
    let python = names.into_iter().map(|name| match name {
        "boolean" => "bool".to_owned(),
        "integer" => "int".to_owned(),
        "number" => "float".to_owned(),
        "string" => "str".to_owned(),
        "null" => "None".to_owned(),
        "array" => format!("list[{}]", python_type(&schema["items"])),
        "object" => format!("dict[str, {}]", python_type(&schema["additionalProperties"])),
        other => panic!("no type of Python for {other}"),
    });
    python.collect::<Vec<_>>().join(" | ")
}

fn python_name_of(name: &str) -> &'static str {
    let known = TYPES.iter().find(|(rust_name, ..)| *rust_name == name);
    known.map_or_else(|| panic!("{name} is not in TYPES"), |(_, python_name, _)| python_name)
}

/// The description as a string literal below what it describes; empty if there is none.
fn documentation(schema: &Value) -> String {
    let Some(description) = schema["description"].as_str() else { return String::new() };
    let paragraphs: Vec<_> = description.split("\n\n").map(wrapped).collect();
    let text = paragraphs.join("\n\n");
    // The closing quotes of several lines stand alone.
    let end = if text.contains('\n') { "\n    " } else { "" };
    let lines = format!("    \"\"\"{}{end}\"\"\"\n", text.trim_start());
    lines.replace('\\', "\\\\")
}

fn wrapped(paragraph: &str) -> String {
    let mut lines = vec![String::new()];
    for word in paragraph.split_whitespace() {
        let line = lines.last_mut().unwrap();
        if line.is_empty() {
            *line = format!("    {word}");
        } else if line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(format!("    {word}"));
        } else {
            *line = format!("{line} {word}");
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_kind_of_member_has_its_type() {
        let cases = [
            (json!({"type": ["number", "null"]}), "float | None"),
            (json!({"type": "array", "items": {"type": "integer"}}), "list[int]"),
            (json!({"type": "object", "additionalProperties": {"type": "string"}}), "dict[str, str]"),
            (json!({"type": "array", "items": {"$ref": "#/$defs/CallSpan"}}), "list[CallSpan]"),
        ];
        for (schema, expected) in cases {
            assert_eq!(python_type(&schema), expected);
        }
    }

    #[test]
    fn long_documentation_is_wrapped() {
        let word = "word ".repeat(30);
        let text = documentation(&json!({"description": word}));
        assert!(text.lines().all(|line| line.len() <= WIDTH + 3), "{text}");
        assert!(text.starts_with("    \"\"\"word") && text.ends_with("    \"\"\"\n"), "{text}");
        assert_eq!(documentation(&json!({"description": "One."})), "    \"\"\"One.\"\"\"\n");
    }
}
