//! The content of a file of a definition: text, or a table that is written as JSON or TOML. Values replace places in
//! the strings of a table, so no value can break the syntax of the file.

use serde::Deserialize;
use serde_json::Value as Json;
use toml::{Table, Value};

use super::ConfigFile;
use super::template::{Template, Values, fill};

/// An entry of `[[files]]` in the definition.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    path: Template,
    text: Option<String>,
    json: Option<Table>,
    toml: Option<Table>,
}

impl TryFrom<Written> for ConfigFile {
    type Error = String;

    fn try_from(Written { path, text, json, toml }: Written) -> Result<Self, String> {
        let content = match (text, json, toml) {
            (Some(text), None, None) => FileContent::Text(text),
            (None, Some(table), None) => FileContent::Json(table),
            (None, None, Some(table)) => FileContent::Toml(table),
            _ => return Err(format!("file {:?} needs one of text, json and toml", path.0)),
        };
        Ok(Self { path, content })
    }
}

/// The content of a file.
#[derive(Clone, Debug, PartialEq)]
pub enum FileContent {
    /// The text, with its places filled.
    Text(String),
    /// A table, written as JSON.
    Json(Table),
    /// A table, written as TOML.
    Toml(Table),
}

/// A file to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileText {
    /// The absolute path inside the environment.
    pub(crate) path: String,
    /// The text.
    pub(crate) text: String,
}

impl FileContent {
    /// Returns every string that may contain places.
    pub(super) fn strings(&self) -> Vec<&str> {
        match self {
            Self::Text(text) => vec![text],
            Self::Json(table) | Self::Toml(table) => strings_of(table),
        }
    }

    /// Returns the text of the file. The entries of `extra` are added under its key.
    pub(crate) fn render(&self, values: &Values, extra: Option<(&str, &Table)>) -> String {
        let with_extra = |table: &Table| {
            let mut table = fill_table(table, values);
            if let Some((key, extra)) = extra {
                lay(&mut table, key, extra);
            }
            table
        };
        match self {
            Self::Text(text) => fill(text, |name| values.get(name).cloned()),
            Self::Json(table) => json_text(&with_extra(table)),
            Self::Toml(table) => with_extra(table).to_string(),
        }
    }
}

pub(super) fn strings_of(table: &Table) -> Vec<&str> {
    // Keys may contain places too, at every depth.
    let mut found: Vec<&str> = table.keys().map(String::as_str).collect();
    let mut waiting: Vec<&Value> = table.values().collect();
    while let Some(value) = waiting.pop() {
        match value {
            Value::String(text) => found.push(text.as_str()),
            Value::Array(items) => waiting.extend(items),
            Value::Table(table) => {
                found.extend(table.keys().map(String::as_str));
                waiting.extend(table.values());
            }
            _ => {}
        }
    }
    found
}

pub(super) fn fill_table(table: &Table, values: &Values) -> Table {
    let put = |text: &str| fill(text, |name| values.get(name).cloned());
    table.iter().map(|(key, value)| (put(key), fill_value(value, values))).collect()
}

fn fill_value(value: &Value, values: &Values) -> Value {
    match value {
        Value::String(text) => Value::String(fill(text, |name| values.get(name).cloned())),
        Value::Array(items) => Value::Array(items.iter().map(|item| fill_value(item, values)).collect()),
        Value::Table(table) => Value::Table(fill_table(table, values)),
        other => other.clone(),
    }
}

/// Adds entries to the table under this key.
fn lay(table: &mut Table, key: &str, extra: &Table) {
    let place = table.entry(key).or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(place) = place {
        place.extend(extra.clone());
    }
}

fn json_text(table: &Table) -> String {
    let json = Json::Object(table.iter().map(|(key, value)| (key.clone(), json(value))).collect());
    format!("{json:#}\n")
}

fn json(value: &Value) -> Json {
    match value {
        Value::String(text) => Json::String(text.clone()),
        Value::Integer(number) => Json::from(*number),
        Value::Float(number) => Json::from(*number),
        Value::Boolean(flag) => Json::Bool(*flag),
        // JSON has no type for times.
        Value::Datetime(time) => Json::String(time.to_string()),
        Value::Array(items) => Json::Array(items.iter().map(json).collect()),
        Value::Table(table) => {
            Json::Object(table.iter().map(|(key, value)| (key.clone(), json(value))).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn no_value_breaks_the_syntax(model in "\\PC{0,40}", key in "[\\x00-\\x7f]{0,20}") {
            let table: Table = toml::from_str("model = \"m:${model}\"\n[a.\"${model}\"]\nkeys = [\"${key}\"]").unwrap();
            let values = Values::from([("model", model.clone()), ("key", key.clone())]);
            let text = FileContent::Json(table.clone()).render(&values, None);
            let back: Json = serde_json::from_str(&text).unwrap();
            proptest::prop_assert_eq!(&back["model"], &Json::String(format!("m:{model}")));
            proptest::prop_assert_eq!(&back["a"][&model]["keys"][0], &Json::String(key.clone()));
            let text = FileContent::Toml(table).render(&values, None);
            let back: Table = toml::from_str(&text).unwrap();
            let at = back["a"][&model]["keys"][0].as_str().unwrap().to_owned();
            proptest::prop_assert_eq!(at, key);
        }
    }

    #[test]
    fn more_is_laid_into_a_table_that_may_be_there() {
        let base: Table = toml::from_str("a = 1\n[servers.old]\nurl = 'x'").unwrap();
        let extra: Table = toml::from_str("[new]\nurl = 'y'").unwrap();
        let text = FileContent::Toml(base).render(&Values::new(), Some(("servers", &extra)));
        let back: Table = toml::from_str(&text).unwrap();
        assert_eq!(
            (back["servers"]["old"]["url"].as_str(), back["servers"]["new"]["url"].as_str()),
            (Some("x"), Some("y"))
        );
    }
}
