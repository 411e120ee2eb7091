//! Finds the commands and file operations of an agent in the answers of its model.

use rolltap_agent::answer::AnswerFormat;
use serde_json::{Map, Value};

/// The most bytes of one text that are examined. Commands are far shorter.
const LONGEST: usize = 1 << 20;
/// Keys of arguments that name a file.
const PATH_KEYS: [&str; 9] = [
    "path",
    "file_path",
    "filePath",
    "filepath",
    "filename",
    "file",
    "absolute_path",
    "target_file",
    "notebook_path",
];
/// Keys of arguments with new content for a file. The names are those of the editors of common agents.
const CONTENT_KEYS: [&str; 10] = [
    "content",
    "contents",
    "file_text",
    "new_string",
    "new_str",
    "newString",
    "insert_text",
    "code_edit",
    "edits",
    "new_source",
];
/// The languages of fenced blocks that agents without tools execute.
const FENCES: [&str; 9] =
    ["bash", "sh", "shell", "zsh", "console", "mswea_bash_command", "python", "python3", "py"];
/// The lines of a patch, as Codex applies it, that name a changed file.
const PATCHED: [&str; 4] = ["*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "];

/// One thing that an agent did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// It ran this command or program, or wrote this text into a file that it may run.
    Run(String),
    /// It wrote this file.
    Write(String),
    /// It read this file.
    Read(String),
}

/// Returns the actions in an answer, a message in the form of chat completions. Text is examined only if the message
/// has no tool calls, because an agent without tools writes its commands as text.
pub(crate) fn of_message(message: &Value) -> Vec<Action> {
    let calls = message.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
    let functions: Vec<_> =
        calls.filter_map(|call| call.get("function")).chain(message.get("function_call")).collect();
    if functions.is_empty() {
        return of_text(&text(message));
    }
    functions.into_iter().filter_map(|function| function.get("arguments")).flat_map(of_arguments).collect()
}

/// Returns the actions in a trajectory in the format ATIF.
pub(crate) fn of_trajectory(trajectory: &Value) -> Vec<Action> {
    let list =
        |value: &Value, key: &str| value.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let calls = list(trajectory, "steps").into_iter().flat_map(|step| list(&step, "tool_calls"));
    calls.filter_map(|call| call.get("arguments").map(of_arguments)).flatten().collect()
}

/// Returns the text of a message's content.
fn text(message: &Value) -> String {
    match message.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let texts: Vec<_> =
                parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str)).collect();
            texts.join("\n")
        }
        _ => String::new(),
    }
}

/// Returns the actions of a tool call. Arguments are an object, its JSON as text, or any text.
fn of_arguments(arguments: &Value) -> Vec<Action> {
    let parsed = arguments.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    match parsed.as_ref().unwrap_or(arguments) {
        Value::Object(fields) => of_fields(fields),
        other => of_command(strings(other).join(" ")),
    }
}

fn of_fields(fields: &Map<String, Value>) -> Vec<Action> {
    let named = |keys: &[&str]| -> Vec<&Value> { keys.iter().filter_map(|key| fields.get(*key)).collect() };
    let contents: Vec<_> = named(&CONTENT_KEYS).into_iter().flat_map(strings).collect();
    let is_write = !contents.is_empty();
    let of_path = |path: String| if is_write { Action::Write(path) } else { Action::Read(path) };
    let paths = named(&PATH_KEYS).into_iter().flat_map(strings);
    let mut actions: Vec<_> = paths.map(of_path).collect();
    actions.extend(contents.into_iter().map(|content| Action::Run(cut(content))));
    let is_of_file = |key: &str| PATH_KEYS.contains(&key) || CONTENT_KEYS.contains(&key);
    for (_, value) in fields.iter().filter(|(key, _)| !is_of_file(key)) {
        // The words of one command may be a list.
        actions.extend(of_command(strings(value).join(" ")));
    }
    actions
}

fn of_command(command: String) -> Vec<Action> {
    let patched = command.lines().filter_map(|line| PATCHED.iter().find_map(|mark| line.strip_prefix(mark)));
    let mut actions: Vec<_> = patched.map(|path| Action::Write(path.trim().to_owned())).collect();
    if !command.trim().is_empty() {
        actions.push(Action::Run(cut(command)));
    }
    actions
}

/// Returns all strings in a value.
fn strings(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items.iter().flat_map(strings).collect(),
        Value::Object(fields) => fields.values().flat_map(strings).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

/// Returns the commands in the text of an agent without tools: keystrokes as Terminus-2 writes them, or fenced blocks.
fn of_text(text: &str) -> Vec<Action> {
    let text = text.get(..text.floor_char_boundary(LONGEST)).unwrap_or(text);
    let typed = |format: AnswerFormat| {
        let answer = format.parse(text).ok().filter(|answer| !answer.commands.is_empty())?;
        Some(answer.commands.into_iter().map(|command| command.keystrokes).collect::<String>())
    };
    match typed(AnswerFormat::Json).or_else(|| typed(AnswerFormat::Xml)) {
        Some(keystrokes) => vec![Action::Run(keystrokes)],
        None => fenced(text),
    }
}

fn fenced(text: &str) -> Vec<Action> {
    let mut actions = Vec::new();
    let mut block: Option<(bool, Vec<&str>)> = None;
    for line in text.lines() {
        let Some(fence) = line.trim_start().strip_prefix("```") else {
            block.iter_mut().for_each(|(_, lines)| lines.push(line));
            continue;
        };
        match block.take() {
            Some((true, lines)) => actions.push(Action::Run(lines.join("\n"))),
            Some((false, _)) => {}
            None => block = Some((FENCES.contains(&fence.trim()), Vec::new())),
        }
    }
    actions
}

fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(LONGEST));
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn called(arguments: &Value) -> Vec<Action> {
        let function = json!({"name": "tool", "arguments": arguments});
        of_message(&json!({"role": "assistant", "content": null, "tool_calls": [{"function": function}]}))
    }

    fn run(text: &str) -> Action {
        Action::Run(text.to_owned())
    }

    #[test]
    fn tool_calls_of_common_agents_are_read() {
        let write = |path: &str| Action::Write(path.to_owned());
        for (arguments, expected) in [
            (json!(r#"{"command": "ls /app"}"#), vec![run("ls /app")]),
            (json!({"command": "ls /app"}), vec![run("ls /app")]),
            (json!({"cmd": ["bash", "-lc", "ls"]}), vec![run("bash -lc ls")]),
            (json!({"keystrokes": "ls\n", "duration": 1.0}), vec![run("ls\n")]),
            (json!("not json"), vec![run("not json")]),
            (json!({"file_path": "/a"}), vec![Action::Read("/a".to_owned())]),
            (json!({"file_path": "/a", "content": "x"}), vec![write("/a"), run("x")]),
            (json!({"path": "/a", "edits": [{"new": "x"}]}), vec![write("/a"), run("x")]),
            (
                json!({"input": "*** Begin Patch\n*** Add File: /tests/conftest.py\n+x\n*** End Patch"}),
                vec![
                    write("/tests/conftest.py"),
                    run("*** Begin Patch\n*** Add File: /tests/conftest.py\n+x\n*** End Patch"),
                ],
            ),
        ] {
            assert_eq!(called(&arguments), expected, "{arguments}");
        }
    }

    #[test]
    fn text_is_read_only_where_it_is_executed() {
        let said = |content: &str| of_message(&json!({"role": "assistant", "content": content}));
        let terminus =
            r#"{"analysis": "", "plan": "", "commands": [{"keystrokes": "l"}, {"keystrokes": "s\n"}]}"#;
        assert_eq!(said(terminus), [run("ls\n")]);
        assert_eq!(said("I run\n```bash\nls\npwd\n```\nthen\n```\noutput\n```"), [run("ls\npwd")]);
        assert_eq!(said("Never write /logs/verifier/reward.txt."), []);
        let parts = json!([{"type": "text", "text": "```sh\nls\n```"}]);
        assert_eq!(of_message(&json!({"content": parts})), [run("ls")]);
    }

    #[test]
    fn trajectories_are_read() {
        let call = json!({"tool_call_id": "1", "function_name": "bash_command", "arguments": {"keystrokes": "ls\n"}});
        let trajectory = json!({"steps": [{"source": "user"}, {"source": "agent", "tool_calls": [call]}]});
        assert_eq!(of_trajectory(&trajectory), [run("ls\n")]);
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let text = "[a-z_`/\n{}\"]{0,12}|command|content|path|tool_calls|function|arguments|steps";
        let leaf =
            prop_oneof![Just(Value::Null), any::<i32>().prop_map(Value::from), text.prop_map(Value::from)];
        leaf.prop_recursive(4, 32, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(text, inner, 0..4).prop_map(|map| json!(map)),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_json_is_read_without_a_panic(message in any_json()) {
            of_message(&message);
            of_trajectory(&message);
            of_message(&json!({"tool_calls": [{"function": {"arguments": message}}]}));
        }

        #[test]
        fn a_command_is_found_under_any_key(key in "[a-z]{1,8}", command in "[a-z /.>|&]{1,40}[a-z]") {
            prop_assume!(!PATH_KEYS.contains(&key.as_str()) && !CONTENT_KEYS.contains(&key.as_str()));
            prop_assert_eq!(called(&json!({key: command.clone()})), [Action::Run(command)]);
        }
    }
}
