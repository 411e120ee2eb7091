//! Converts Gemini's schemas (those of OpenAPI, with upper-case types) to JSON Schema.

use serde_json::{Map, Value};

use super::fields::camel;

/// Converts a `Schema` to JSON Schema. Parts that are JSON Schema already are unchanged.
pub(super) fn json_schema(schema: Value) -> Value {
    let Value::Object(schema) = schema else { return schema };
    let mut out = Map::new();
    let mut nullable = false;
    let mut ordering = Vec::new();
    for (key, value) in schema {
        match (&*camel(&key), value) {
            (_, Value::Null) => {}
            ("type", Value::String(name)) if name == "TYPE_UNSPECIFIED" => {}
            ("type", Value::String(name)) => {
                out.insert(key, name.to_ascii_lowercase().into());
            }
            ("nullable", Value::Bool(is_nullable)) => nullable = is_nullable,
            ("propertyOrdering", Value::Array(names)) => ordering = names,
            // This format is Gemini's own mark for strings with `enum`.
            ("format", Value::String(format)) if format == "enum" => {}
            ("properties" | "defs" | "$defs", Value::Object(named)) => {
                let named = named.into_iter().map(|(name, schema)| (name, json_schema(schema))).collect();
                out.insert(keyword(&key), Value::Object(named));
            }
            ("items" | "additionalProperties", value) => {
                out.insert(keyword(&key), json_schema(value));
            }
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(schemas)) => {
                out.insert(keyword(&key), schemas.into_iter().map(json_schema).collect());
            }
            (_, value) => {
                let word = keyword(&key);
                let value = if is_count(&word) { number_in(value) } else { value };
                out.insert(word, value);
            }
        }
    }
    // The order comes last, because `propertyOrdering` may precede `properties`.
    in_order(&mut out, &ordering);
    if nullable {
        allow_null(&mut out);
    }
    Value::Object(out)
}

fn keyword(key: &str) -> String {
    match camel(key).as_str() {
        "defs" => "$defs".to_owned(),
        "ref" => "$ref".to_owned(),
        word => word.to_owned(),
    }
}

fn is_count(keyword: &str) -> bool {
    matches!(keyword, "minItems" | "maxItems" | "minLength" | "maxLength" | "minProperties" | "maxProperties")
}

/// Parses a number in text form. A protobuf's 64-bit numbers are text in its JSON.
fn number_in(value: Value) -> Value {
    match value.as_str().and_then(|text| text.parse::<i64>().ok()) {
        Some(number) => number.into(),
        None => value,
    }
}

/// Sorts the properties: the model writes them in the order of the schema. Properties that `ordering` lacks come last.
fn in_order(schema: &mut Map<String, Value>, ordering: &[Value]) {
    let Some(Value::Object(properties)) = schema.get_mut("properties") else { return };
    let mut ordered = Map::new();
    for name in ordering.iter().filter_map(Value::as_str) {
        if let Some(property) = properties.shift_remove(name) {
            ordered.insert(name.to_owned(), property);
        }
    }
    ordered.append(properties);
    *properties = ordered;
}

fn allow_null(schema: &mut Map<String, Value>) {
    // `null` must also be one of the permitted values.
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.push(Value::Null);
    }
    match schema.get_mut("type") {
        Some(kind @ Value::String(_)) => *kind = Value::Array(vec![kind.take(), "null".into()]),
        _ => {
            if let Some(Value::Array(schemas)) = schema.get_mut("anyOf") {
                schemas.push(serde_json::json!({"type": "null"}));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn types_names_and_numbers_become_those_of_json_schema() {
        let schema = json!({
            "type": "OBJECT", "property_ordering": ["b", "a"], "required": ["a"],
            "properties": {
                "a": {"type": "STRING", "format": "enum", "enum": ["x"], "nullable": true},
                "b": {"type": "ARRAY", "max_items": "3", "items": {"any_of": [{"type": "INTEGER"}, {"ref": "#/$defs/D"}]}},
            },
            "defs": {"D": {"type": "NUMBER", "minimum": 0.5}},
        });
        let expected = json!({
            "type": "object", "required": ["a"],
            "properties": {
                "b": {"type": "array", "maxItems": 3, "items": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/D"}]}},
                "a": {"type": ["string", "null"], "enum": ["x", null]},
            },
            "$defs": {"D": {"type": "number", "minimum": 0.5}},
        });
        let order =
            |value: &Value| value["properties"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let translated = json_schema(schema);
        assert_eq!(translated, expected);
        assert_eq!(order(&translated), ["b", "a"]);
    }

    #[test]
    fn properties_may_have_the_names_of_keywords() {
        let schema = json!({"type": "OBJECT", "properties": {"type": {"type": "STRING"}, "max_items": {"type": "NULL"}}});
        assert_eq!(
            json_schema(schema),
            json!({"type": "object", "properties": {"type": {"type": "string"}, "max_items": {"type": "null"}}})
        );
    }

    proptest! {
        #[test]
        fn json_schema_stays_as_it_is(name in "[a-z]{1,5}", max in 0..9) {
            let schema = json!({"type": "object", "properties": {name: {"type": "array", "maxItems": max}}, "additionalProperties": false});
            prop_assert_eq!(json_schema(schema.clone()), schema);
        }
    }
}
