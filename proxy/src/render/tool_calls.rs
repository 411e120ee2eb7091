//! The tool calls of an answer as templates read them: arguments are objects, and members have the order of vLLM's
//! model.

use minijinja::Value;
use serde_json::{Map, Value as Json};

use super::RenderError;
use super::value::{self, to_value};

/// Reads the calls of one message.
pub(super) fn read(calls: &[Json]) -> Result<Value, RenderError> {
    Ok(Value::from(calls.iter().map(call).collect::<Result<Vec<_>, _>>()?))
}

/// Returns the calls, with this text as the only argument of the last one. `None` if there is no call.
pub(super) fn with_argument(calls: &Value, argument: &str) -> Option<Value> {
    let mut calls: Vec<Value> = calls.try_iter().ok()?.collect();
    let last = calls.pop()?;
    let arguments = Value::from_pairs([("argument", Value::from(argument))]);
    let function =
        value::with(&last.get_attr("function").ok()?, |key| (key == "arguments").then(|| arguments.clone()));
    calls.push(value::with(&last, |key| (key == "function").then(|| function.clone())));
    Some(Value::from(calls))
}

fn call(call: &Json) -> Result<Value, RenderError> {
    let call = call.as_object().ok_or(unreadable("it is no object"))?;
    let is_function = call.get("type").is_none_or(|kind| kind == "function");
    let Some(function) = call.get("function").and_then(Json::as_object).filter(|_| is_function) else {
        return Err(unreadable("it calls no function"));
    };
    ordered(call, ["id", "function", "type"], |key, value| match key {
        "function" => ordered(function, ["arguments", "name"], |key, value| match key {
            "arguments" => arguments(value),
            _ => to_value(value),
        }),
        _ => to_value(value),
    })
}

/// Orders the members: first those that vLLM's request model knows, in its order, then the rest in their original
/// order.
fn ordered<const KNOWN: usize>(
    members: &Map<String, Json>,
    known: [&str; KNOWN],
    read: impl Fn(&str, &Json) -> Result<Value, RenderError>,
) -> Result<Value, RenderError> {
    let first = known.iter().filter_map(|key| members.get_key_value(*key));
    let rest = members.iter().filter(|(key, _)| !known.contains(&key.as_str()));
    let pairs = first.chain(rest).map(|(key, value)| Ok((key.as_str(), read(key, value)?)));
    Ok(Value::from_pairs(pairs.collect::<Result<Vec<_>, RenderError>>()?))
}

/// Returns arguments as an object. Like vLLM, returns an empty object if they are absent, not JSON, or not an object.
fn arguments(arguments: &Json) -> Result<Value, RenderError> {
    match arguments {
        Json::Object(_) => to_value(arguments),
        Json::String(text) => match serde_json::from_str::<Json>(text) {
            Ok(object @ Json::Object(_)) => to_value(&object),
            Ok(_) => Ok(empty()),
            // vLLM may read these arguments, so an empty object could give another prompt.
            Err(_) if python_may_read(text) => {
                Err(unreadable("its arguments are JSON for Python's parser only"))
            }
            Err(_) => Ok(empty()),
        },
        _ => Ok(empty()),
    }
}

/// Returns whether Python may read this text as JSON, although it is not JSON. Python accepts `NaN`, `Infinity`, single
/// surrogates, numbers too large for a float, and deeper nesting.
fn python_may_read(text: &str) -> bool {
    let has_word = ["NaN", "Infinity", "\\ud", "\\uD"].iter().any(|word| text.contains(word));
    let is_deep = text.bytes().filter(|byte| matches!(byte, b'[' | b'{')).count() > 100;
    let has_exponent = text.contains(['e', 'E']) && text.bytes().any(|byte| byte.is_ascii_digit());
    has_word
        || is_deep
        || (has_exponent && serde_json::from_str::<Json>(text).is_err_and(|error| out_of_range(&error)))
}

fn out_of_range(error: &serde_json::Error) -> bool {
    error.to_string().starts_with("number out of range")
}

fn empty() -> Value {
    Value::from_pairs(std::iter::empty::<(Value, Value)>())
}

fn unreadable(why: &'static str) -> RenderError {
    RenderError::unreadable("a tool call", why)
}
