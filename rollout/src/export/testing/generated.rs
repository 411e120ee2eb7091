//! The files that are generated from this crate: JSON schemas of rows, the types of the Python package, and the table of
//! formats. `just docs` writes them.

mod formats;
mod python;

use std::path::Path;

use rolltap_testing::is_current;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::export::pipeline::prepare::PreparedTrial;
use crate::row::RolloutRow;

/// The schema of what rolltap writes: members that it always writes are required, also if a reader accepts files
/// without them.
fn schema<T: JsonSchema>() -> Value {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    plain(&mut schema);
    let mut members = std::mem::take(schema.as_object_mut().unwrap());
    // People read what a file is before what it holds.
    let first = ["$schema", "title", "description"];
    let first = first.map(|name| (name.to_owned(), members.shift_remove(name).unwrap()));
    first.into_iter().chain(members).collect()
}

/// Removes the marks of Rust's documentation from descriptions: links, and the paths of modules.
fn plain(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::String(text)) = members.get_mut("description") {
                *text = text.replace("[`", "`").replace("`]", "`");
                for path in ["crate::branch_cause::", "crate::origin::", "crate::"] {
                    *text = text.replace(path, "");
                }
            }
            members.values_mut().for_each(plain);
        }
        Value::Array(items) => items.iter_mut().for_each(plain),
        _ => {}
    }
}

fn text(schema: &Value) -> String {
    format!("{}\n", serde_json::to_string_pretty(schema).unwrap())
}

fn compare(path: &str, text: &str) {
    if let Err(problem) = is_current(path, text) {
        panic!("{problem}");
    }
}

#[test]
fn generated_schema_of_rows() {
    compare("docs/reference/rollout-1.schema.json", &text(&schema::<RolloutRow>()));
}

#[test]
fn generated_schema_of_prepared_trials() {
    compare("docs/reference/prepared-trial.schema.json", &text(&schema::<PreparedTrial>()));
}

#[test]
fn generated_types_of_the_python_package() {
    let made = python::types(&[schema::<RolloutRow>(), schema::<PreparedTrial>()]);
    compare("python/rolltap/_rollout_types.py", &made);
}

#[test]
fn generated_table_of_formats() {
    const PAGE: &str = "docs/reference/export-formats.md";
    const BEGIN: &str = "<!-- `just docs` generates this table. -->\n\n";
    const END: &str = "\n<!-- End of the generated table. -->\n";
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(PAGE)).unwrap();
    let parts = page.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = parts.expect("the page marks the place of the table");
    compare(PAGE, &[before, BEGIN, &formats::table(), END, after].concat());
}

/// Compares the schema with a real row: a member that one of them lacks fails the test.
#[test]
fn the_schema_has_every_member_of_a_row() {
    let schema = schema::<RolloutRow>();
    let row = serde_json::to_value(&super::fixture::straight().rows[0]).unwrap();
    let members = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(members(&schema["properties"]), members(&row));
    assert_eq!(schema["required"].as_array().unwrap().len(), members(&row).len());
    assert_eq!(members(&schema["$defs"]["CallSpan"]["properties"]), members(&row["calls"][0]));
}
