//! Translates the tools that the agent runs itself, and the choice among them.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::members::{RequestMembers, refusal};
use crate::dialect::bad_request::BadRequest;

#[derive(Deserialize)]
struct Tool {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    #[serde(default)]
    name: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    input_schema: Option<Map<String, Value>>,
    #[serde(default)]
    strict: Option<bool>,
    #[serde(default)]
    input_examples: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ToolChoice {
    Auto(Parallel),
    Any(Parallel),
    Tool {
        name: String,
        #[serde(flatten)]
        parallel: Parallel,
    },
    None,
}

#[derive(Default, Deserialize)]
struct Parallel {
    #[serde(default)]
    disable_parallel_tool_use: bool,
}

/// Translates `tools` and `tool_choice`.
///
/// # Errors
/// Returns an error for tools that Anthropic's servers run, and for tools without a schema.
pub(super) fn tools(
    members: &mut RequestMembers<'_>,
    chat: &mut Map<String, Value>,
) -> Result<(), BadRequest> {
    let tools: Vec<Tool> = members.take_as("tools")?.unwrap_or_default();
    let functions: Result<Vec<Value>, _> =
        tools.into_iter().enumerate().map(|(at, tool)| function(tool, &format!("tools[{at}]"))).collect();
    let functions = functions?;
    // vLLM rejects an empty list.
    if !functions.is_empty() {
        chat.insert("tools".into(), functions.into());
    }
    if let Some(choice) = members.take_as("tool_choice")? {
        let (choice, parallel) = chat_choice(choice);
        chat.insert("tool_choice".into(), choice);
        if parallel.disable_parallel_tool_use {
            chat.insert("parallel_tool_calls".into(), false.into());
        }
    }
    Ok(())
}

fn function(tool: Tool, place: &str) -> Result<Value, BadRequest> {
    if let Some(kind) = tool.kind.filter(|kind| kind != "custom") {
        let fault = format!(
            "is {kind:?}, a tool of Anthropic's own that the model here does not know: leave it out, or define a tool with \
             an input_schema that does the same"
        );
        return Err(refusal(place, &fault));
    }
    if !tool.input_examples.is_empty() {
        return Err(refusal(
            &format!("{place}.input_examples"),
            "has no equivalent in a chat request: put it into the description",
        ));
    }
    let Some(mut schema) = tool.input_schema else {
        return Err(refusal(&format!("{place}.input_schema"), "is missing and required"));
    };
    // The arguments of a tool are an object, so this is the default type.
    schema.entry("type").or_insert_with(|| "object".into());
    let mut function = Map::from_iter([("name".to_owned(), Value::from(tool.name))]);
    function.extend(tool.description.map(|text| ("description".to_owned(), text.into())));
    function.insert("parameters".into(), schema.into());
    function.extend(tool.strict.map(|strict| ("strict".to_owned(), strict.into())));
    Ok(json!({"type": "function", "function": function}))
}

fn chat_choice(choice: ToolChoice) -> (Value, Parallel) {
    match choice {
        ToolChoice::Auto(parallel) => ("auto".into(), parallel),
        ToolChoice::Any(parallel) => ("required".into(), parallel),
        ToolChoice::Tool { name, parallel } => {
            (json!({"type": "function", "function": {"name": name}}), parallel)
        }
        ToolChoice::None => ("none".into(), Parallel::default()),
    }
}
