//! The JSON format: one object with `analysis`, `plan`, `commands` and optionally `task_complete`, anywhere in the
//! text.

use serde_json::{Map, Value};

use super::{Command, DEFAULT_WAIT, Parts, json_object, wait_of, warn_of_run_on_lines};

pub(super) fn read(text: &str, warnings: &mut Vec<String>) -> Result<Parts, String> {
    // One known field identifies the answer among other objects, such as JSON in the prose.
    let found = json_object::find(text, |object| FIELDS.iter().any(|name| object.contains_key(*name)))
        .map_err(|error| error.to_string())?;
    if !found.before.trim().is_empty() {
        warnings.push("There is text before the JSON object; send the object alone.".into());
    }
    if !found.after.trim().is_empty() {
        warnings.push("There is text after the JSON object; send the object alone.".into());
    }
    if !found.appended.is_empty() {
        warnings.push(format!("The JSON object was not closed; {:?} was added at its end.", found.appended));
    }
    let object = &found.object;

    let missing: Vec<_> = REQUIRED.iter().filter(|name| !object.contains_key(**name)).copied().collect();
    // Before the types, so that the model gets the complete list of missing fields.
    if !missing.is_empty() {
        return Err(format!("These required fields are missing: {}.", missing.join(", ")));
    }
    for name in ["analysis", "plan"] {
        if object.get(name).is_some_and(|value| !value.is_string()) {
            warnings.push(format!("The field \"{name}\" should be a string."));
        }
    }
    check_order(object, warnings);
    let Some(Value::Array(list)) = object.get("commands") else {
        return Err("The field \"commands\" must be an array.".into());
    };

    let said = |name| object.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let task_complete = read_task_complete(object, warnings);
    let commands = match read_commands(list, warnings) {
        Ok(commands) => commands,
        // An answer that only declares completion needs no commands.
        Err(problem) if task_complete => {
            warnings.push(format!("The commands were not run. {problem}"));
            Vec::new()
        }
        Err(problem) => return Err(problem),
    };
    Ok(Parts { analysis: said("analysis"), plan: said("plan"), commands, task_complete })
}

/// The top-level fields in their required order. The required fields come first.
const FIELDS: [&str; 4] = ["analysis", "plan", "commands", "task_complete"];
const REQUIRED: [&str; 3] = ["analysis", "plan", "commands"];

fn check_order(object: &Map<String, Value>, warnings: &mut Vec<String>) {
    let order = object.keys().filter_map(|key| REQUIRED.iter().position(|name| name == key));
    if !order.is_sorted() {
        warnings.push("The fields should come in this order: analysis, plan, commands.".into());
    }
}

fn read_task_complete(object: &Map<String, Value>, warnings: &mut Vec<String>) -> bool {
    match object.get("task_complete") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(complete)) => *complete,
        // Models write these strings often, and their meaning is clear.
        Some(Value::String(word)) => ["true", "1", "yes"].contains(&word.trim().to_lowercase().as_str()),
        Some(Value::Number(number)) => {
            warnings.push("The field \"task_complete\" should be true or false.".into());
            number.as_f64() != Some(0.0)
        }
        Some(Value::Array(_) | Value::Object(_)) => {
            warnings
                .push("The field \"task_complete\" should be true or false; it was taken as false.".into());
            false
        }
    }
}

fn read_commands(list: &[Value], warnings: &mut Vec<String>) -> Result<Vec<Command>, String> {
    let commands: Vec<_> = list
        .iter()
        .enumerate()
        .map(|(index, value)| read_command(index + 1, value, warnings))
        .collect::<Result<_, _>>()?;
    warn_of_run_on_lines(&commands, warnings);
    Ok(commands)
}

/// Parses a command. `number` counts from one, as in the messages to the model.
fn read_command(number: usize, value: &Value, warnings: &mut Vec<String>) -> Result<Command, String> {
    let Value::Object(fields) = value else {
        return Err(format!("Command {number} must be an object."));
    };
    let keystrokes = match fields.get("keystrokes") {
        Some(Value::String(keystrokes)) => keystrokes.clone(),
        Some(_) => return Err(format!("The \"keystrokes\" of command {number} must be a string.")),
        None => return Err(format!("Command {number} has no \"keystrokes\".")),
    };
    let wait = match fields.get("duration") {
        Some(Value::Number(seconds)) => seconds.as_f64().map(wait_of),
        Some(_) => None,
        None => {
            warnings.push(format!("Command {number} has no \"duration\"; 1.0 seconds was used."));
            Some(DEFAULT_WAIT)
        }
    };
    if wait.is_none() {
        warnings.push(format!("The \"duration\" of command {number} is not a number; 1.0 seconds was used."));
    }
    let unknown: Vec<_> =
        fields.keys().filter(|key| !["keystrokes", "duration"].contains(&key.as_str())).cloned().collect();
    if !unknown.is_empty() {
        warnings.push(format!(
            "Command {number} has unknown fields, which were ignored: {}.",
            unknown.join(", ")
        ));
    }
    Ok(Command { keystrokes, wait: wait.unwrap_or(DEFAULT_WAIT) })
}

#[cfg(test)]
mod tests;
