//! JSON values as templates read them.

use minijinja::Value;
use serde_json::Value as Json;

use super::RenderError;

/// 2^63: larger integers may not fit `u64` or `i64`. The JSON parser then returns floats, whereas Python preserves
/// every digit.
const BEYOND_INTEGERS: f64 = 9_223_372_036_854_775_808.0;

/// Converts a JSON value. This makes the only copy of a request's texts.
pub(super) fn to_value(json: &Json) -> Result<Value, RenderError> {
    Ok(match json {
        Json::Null => Value::from(()),
        Json::Bool(is_true) => Value::from(*is_true),
        Json::Number(number) => return number_value(number),
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => Value::from(items.iter().map(to_value).collect::<Result<Vec<_>, _>>()?),
        Json::Object(members) => {
            let pairs = members.iter().map(|(key, value)| Ok((key.as_str(), to_value(value)?)));
            Value::from_pairs(pairs.collect::<Result<Vec<_>, RenderError>>()?)
        }
    })
}

fn number_value(number: &serde_json::Number) -> Result<Value, RenderError> {
    if let Some(integer) = number.as_i64() {
        return Ok(Value::from(integer));
    }
    if let Some(integer) = number.as_u64() {
        return Ok(Value::from(integer));
    }
    match number.as_f64() {
        // The number may have been `1e20` or an integer of twenty digits, which Python spells differently.
        Some(float) if float.abs() >= BEYOND_INTEGERS => Err(RenderError::unreadable(
            "a number",
            "it is larger than 64 bits hold, and its spelling is lost",
        )),
        Some(float) => Ok(Value::from(float)),
        None => Err(RenderError::unreadable("a number", "it has no value")),
    }
}

/// Returns a map's members, in their order.
pub(super) fn pairs(map: &Value) -> impl Iterator<Item = (Value, Value)> {
    let keys = map.try_iter().into_iter().flatten();
    keys.map(|key| {
        let value = map.get_item(&key).unwrap_or_default();
        (key, value)
    })
}

/// Returns the map with other values for the members for which `other` returns a value.
pub(super) fn with(map: &Value, other: impl Fn(&str) -> Option<Value>) -> Value {
    Value::from_pairs(pairs(map).map(|(key, value)| {
        let value = key.as_str().and_then(&other).unwrap_or(value);
        (key, value)
    }))
}
