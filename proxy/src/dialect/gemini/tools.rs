//! Translates function declarations to chat tools, and the mode of function calling to a tool choice.

use serde_json::{Map, Value, json};

use super::fields::ObjectFields;
use super::schema;
use crate::dialect::bad_request::BadRequest;

/// Tools that Google's servers run themselves.
const SERVER_TOOLS: [&str; 12] = [
    "googleSearch",
    "googleSearchRetrieval",
    "codeExecution",
    "urlContext",
    "computerUse",
    "fileSearch",
    "googleMaps",
    "mcpServers",
    "retrieval",
    "enterpriseWebSearch",
    "parallelAiSearch",
    "exaAiSearch",
];

/// Removes `tools` and `toolConfig` from the body and adds their translation to `chat`.
///
/// # Errors
/// Returns an error for an unknown field, a tool that Google's servers run, and a mode that the declared functions do
/// not permit.
pub(super) fn carry_over(
    body: &mut ObjectFields<'_>,
    chat: &mut Map<String, Value>,
) -> Result<(), BadRequest> {
    let mut tools = declared(body)?;
    let calling = match body.object("toolConfig")? {
        Some(config) => calling(config)?,
        None => Calling::default(),
    };
    if let Some(allowed) = &calling.allowed {
        let name_of = |tool: &Value| Some(tool.pointer("/function/name")?.as_str()?.to_owned());
        let known: Vec<_> = tools.iter().filter_map(name_of).collect();
        if let Some(unknown) = allowed.iter().find(|name| !known.contains(name)) {
            let place = "toolConfig.functionCallingConfig.allowedFunctionNames";
            return Err(BadRequest::at(
                place,
                format!("{place} names {unknown}, which tools does not declare"),
            ));
        }
        // A chat request has no list of allowed names, so the other functions are removed.
        tools.retain(|tool| name_of(tool).is_some_and(|name| allowed.contains(&name)));
    }
    match (calling.mode, tools.is_empty()) {
        (Mode::Any, true) => {
            let place = "toolConfig.functionCallingConfig.mode";
            return Err(BadRequest::at(
                place,
                format!("{place} is ANY, and tools declares no function to call"),
            ));
        }
        // vLLM rejects an empty list of tools.
        (_, true) => return Ok(()),
        (Mode::Auto, false) => {}
        (Mode::None, false) => drop(chat.insert("tool_choice".to_owned(), "none".into())),
        (Mode::Any, false) => drop(chat.insert("tool_choice".to_owned(), "required".into())),
    }
    chat.insert("tools".to_owned(), tools.into());
    Ok(())
}

fn declared(body: &mut ObjectFields<'_>) -> Result<Vec<Value>, BadRequest> {
    let mut tools = Vec::new();
    for mut tool in body.objects("tools")? {
        tool.refuse(&SERVER_TOOLS, "is run by Google's servers and there is none here: take it out")?;
        for declaration in tool.objects("functionDeclarations")? {
            tools.push(function(declaration)?);
        }
        tool.end()?;
    }
    Ok(tools)
}

fn function(mut declaration: ObjectFields<'_>) -> Result<Value, BadRequest> {
    // These describe the result of a function, for which chat templates have no place.
    declaration.without_effect(&["response", "responseJsonSchema"]);
    let mut function = Map::new();
    function.insert("name".to_owned(), declaration.required_text("name")?.into());
    function.extend(declaration.text("description")?.map(|text| ("description".to_owned(), text.into())));
    let parameters: Option<Value> = declaration.get("parameters", "a schema")?;
    let json_schema: Option<Value> = declaration.get("parametersJsonSchema", "a JSON schema")?;
    if parameters.is_some() && json_schema.is_some() {
        return Err(declaration.fault("parametersJsonSchema", "stands beside parameters: give one of them"));
    }
    let parameters = parameters.map(schema::json_schema).or(json_schema);
    function.extend(parameters.map(|schema| ("parameters".to_owned(), schema)));
    match declaration.text("behavior")?.as_deref() {
        None | Some("BLOCKING" | "UNSPECIFIED") => {}
        Some(_) => return Err(declaration.fault("behavior", "can only be BLOCKING")),
    }
    declaration.end()?;
    Ok(json!({"type": "function", "function": function}))
}

#[derive(Debug, Default)]
struct Calling {
    mode: Mode,
    /// The only functions that the model may call, or `None` for all.
    allowed: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Mode {
    #[default]
    Auto,
    Any,
    None,
}

fn calling(mut config: ObjectFields<'_>) -> Result<Calling, BadRequest> {
    // Both concern tools that Google's servers run.
    config.without_effect(&["retrievalConfig", "includeServerSideToolInvocations"]);
    let Some(mut calling) = config.object("functionCallingConfig")? else {
        config.end()?;
        return Ok(Calling::default());
    };
    config.end()?;
    if calling.flag("streamFunctionCallArguments")? {
        return Err(
            calling.fault("streamFunctionCallArguments", "cannot be: a call is sent when it is whole")
        );
    }
    let allowed: Option<Vec<String>> = calling.get("allowedFunctionNames", "a list of names")?;
    // An empty list is the protobuf default, and means no restriction.
    let allowed = allowed.filter(|names| !names.is_empty());
    let mode = match calling.text("mode")?.as_deref() {
        None | Some("MODE_UNSPECIFIED" | "AUTO") if allowed.is_some() => {
            return Err(calling.fault("allowedFunctionNames", "needs mode ANY or VALIDATED"));
        }
        // VALIDATED promises that a call fits its schema. A local model is not forced to that, so the mode has the
        // effect of AUTO.
        None | Some("MODE_UNSPECIFIED" | "AUTO" | "VALIDATED") => Mode::Auto,
        Some("ANY") => Mode::Any,
        Some("NONE") => Mode::None,
        Some(other) => {
            return Err(calling.fault("mode", format!("is {other}: use AUTO, ANY, VALIDATED or NONE")));
        }
    };
    calling.end()?;
    Ok(Calling { mode, allowed })
}
