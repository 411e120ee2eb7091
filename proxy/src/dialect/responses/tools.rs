//! Translates tools, and the choice among them, to functions: the only kind of tool in chat completions.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::reading::{RequestObject, wrong_type};
use crate::dialect::bad_request::BadRequest;

/// The tools of a request, and the meaning of each function name.
#[derive(Debug, Default)]
pub(super) struct Tools {
    /// The functions in chat's form, in the order of the request.
    functions: Vec<Value>,
    named: HashMap<String, Tool>,
}

/// The agent's tool behind a function of the chat request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tool {
    pub(super) kind: ToolKind,
    pub(super) name: String,
    pub(super) namespace: Option<String>,
}

/// The form of call that the agent expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToolKind {
    Function,
    /// A tool that takes arbitrary text. The model sees a function with the single argument `input`.
    Custom,
    /// The agent's own search for tools that it has not offered yet.
    Search,
}

/// The function name by which the model calls a client's tool search.
pub(super) const TOOL_SEARCH: &str = "tool_search";

/// Hosted tools that agents send by default. They are omitted from the chat request, so the model never calls them.
const LEFT_OUT: [&str; 3] = ["web_search", "web_search_preview", "web_search_2025_08_26"];

/// Returns the name by which the model calls a function of a namespace.
pub(super) fn flat_name(namespace: Option<&str>, name: &str) -> String {
    namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}__{name}"))
}

impl Tools {
    /// Adds a tool of the request.
    ///
    /// # Errors
    /// Returns an error for other hosted tools, for invalid members, and for a name that is used twice.
    pub(super) fn add(&mut self, tool: &Value, at: String) -> Result<(), BadRequest> {
        self.add_to(None, &RequestObject::of(tool, at)?)
    }

    fn add_to(&mut self, namespace: Option<&str>, tool: &RequestObject<'_>) -> Result<(), BadRequest> {
        match tool.text("type")? {
            "function" => self.function(namespace, tool),
            "custom" => self.custom(namespace, tool),
            // Namespaces cannot be nested.
            "namespace" if namespace.is_none() => {
                let name = tool.text("name")?;
                for (member, at) in tool.members("tools")? {
                    self.add_to(Some(name), &RequestObject::of(member, at)?)?;
                }
                Ok(())
            }
            "tool_search" if tool.optional_text("execution")? == Some("client") => {
                let search = Tool { kind: ToolKind::Search, name: TOOL_SEARCH.to_owned(), namespace: None };
                self.push(search, tool, tool.get("parameters").cloned(), tool.optional_text("description")?)
            }
            hosted if LEFT_OUT.contains(&hosted) => Ok(()),
            other => Err(tool.refuse(format_args!(
                "a tool of type {other:?} is run by OpenAI and does not exist here: leave it out, or offer a function"
            ))),
        }
    }

    fn function(&mut self, namespace: Option<&str>, tool: &RequestObject<'_>) -> Result<(), BadRequest> {
        let known = Tool {
            kind: ToolKind::Function,
            name: tool.text("name")?.to_owned(),
            namespace: namespace.map(str::to_owned),
        };
        self.push(known, tool, tool.get("parameters").cloned(), tool.optional_text("description")?)
    }

    fn custom(&mut self, namespace: Option<&str>, tool: &RequestObject<'_>) -> Result<(), BadRequest> {
        let known = Tool {
            kind: ToolKind::Custom,
            name: tool.text("name")?.to_owned(),
            namespace: namespace.map(str::to_owned),
        };
        let described = describe_custom(tool)?;
        let parameters = json!({
            "type": "object",
            "properties": {"input": {"type": "string", "description": "The text for this tool, as it is."}},
            "required": ["input"],
            "additionalProperties": false,
        });
        self.push(known, tool, Some(parameters), described.as_deref())
    }

    fn push(
        &mut self,
        known: Tool,
        tool: &RequestObject<'_>,
        parameters: Option<Value>,
        description: Option<&str>,
    ) -> Result<(), BadRequest> {
        let name = flat_name(known.namespace.as_deref(), &known.name);
        let mut function = Map::new();
        function.insert("name".to_owned(), name.clone().into());
        function.extend(description.map(|text| ("description".to_owned(), text.into())));
        function.extend(parameters.map(|schema| ("parameters".to_owned(), schema)));
        function.extend(tool.get("strict").map(|strict| ("strict".to_owned(), strict.clone())));
        // Two tools can have the same flat name, and the model could not distinguish them.
        if self.named.insert(name.clone(), known).is_some() {
            return Err(tool.refuse(format_args!("there are two tools with the name {name:?}: rename one")));
        }
        self.functions.push(json!({"type": "function", "function": function}));
        Ok(())
    }

    /// Adds a tool that a search found, unless its name is already known.
    pub(super) fn add_found(&mut self, tool: &Value, at: String) -> Result<(), BadRequest> {
        let mut found = Self::default();
        found.add(tool, at)?;
        for function in found.functions {
            let Some(name) = function.pointer("/function/name").and_then(Value::as_str) else { continue };
            if let (Some(tool), false) = (found.named.get(name), self.named.contains_key(name)) {
                self.named.insert(name.to_owned(), tool.clone());
                self.functions.push(function);
            }
        }
        Ok(())
    }

    /// Returns the agent's tool for a function name. An unknown name counts as a plain function.
    pub(super) fn meant(&self, name: &str) -> Tool {
        let unknown = || Tool { kind: ToolKind::Function, name: name.to_owned(), namespace: None };
        self.named.get(name).cloned().unwrap_or_else(unknown)
    }

    /// Adds the tools, and the choice among them, to the chat request.
    ///
    /// # Errors
    /// Returns an error for a choice that is invalid, or that requires a call if there is no tool.
    pub(super) fn lay(
        &mut self,
        choice: Option<&Value>,
        parallel: Option<&Value>,
        chat: &mut Map<String, Value>,
    ) -> Result<(), BadRequest> {
        let choice = self.choose(choice)?;
        // vLLM rejects an empty list of tools, and a choice without tools.
        if self.functions.is_empty() {
            if choice.as_str().is_none_or(|mode| mode == "required") {
                let message =
                    "tool_choice asks for a tool call, but there is no tool that the model could call";
                return Err(BadRequest::at("tool_choice", message));
            }
            return Ok(());
        }
        chat.insert("tools".to_owned(), Value::Array(std::mem::take(&mut self.functions)));
        chat.insert("tool_choice".to_owned(), choice);
        if let Some(parallel) = parallel {
            chat.insert("parallel_tool_calls".to_owned(), parallel.clone());
        }
        Ok(())
    }

    fn choose(&mut self, choice: Option<&Value>) -> Result<Value, BadRequest> {
        const AT: &str = "tool_choice";
        match choice {
            None => Ok("auto".into()),
            Some(Value::String(mode)) => match mode.as_str() {
                "auto" | "none" | "required" => Ok(mode.as_str().into()),
                _ => {
                    let message = format!("tool_choice {mode:?} is not one of auto, none and required");
                    Err(BadRequest::at(AT, message))
                }
            },
            Some(Value::Object(_)) => {
                let choice = RequestObject::of(choice.unwrap_or(&Value::Null), AT.to_owned())?;
                match choice.text("type")? {
                    "function" | "custom" => Ok(json!({"type": "function", "function": {"name": self.chosen(&choice)?}})),
                    "allowed_tools" => self.allow_only(&choice),
                    other => Err(choice.refuse(format_args!(
                        "a choice of type {other:?} cannot be carried over: choose a function, a custom tool or allowed_tools"
                    ))),
                }
            }
            Some(other) => Err(wrong_type(AT, "a string or an object", other)),
        }
    }

    /// Returns the function that a choice refers to: by its full name, or by its short name if only one namespace has
    /// it.
    fn chosen(&self, choice: &RequestObject<'_>) -> Result<String, BadRequest> {
        let name = choice.text("name")?;
        let full = flat_name(choice.optional_text("namespace")?, name);
        if self.named.contains_key(&full) {
            return Ok(full);
        }
        let mut candidates = self.named.iter().filter(|(_, tool)| tool.name == name);
        match (candidates.next(), candidates.next()) {
            (Some((full, _)), None) => Ok(full.clone()),
            _ => Err(choice.refuse(format_args!("tools has no single tool with the name {full:?}"))),
        }
    }

    /// Restricts the functions that the model sees to the allowed ones, and returns the mode of the choice.
    fn allow_only(&mut self, choice: &RequestObject<'_>) -> Result<Value, BadRequest> {
        let mut allowed = Vec::new();
        for (member, at) in choice.members("tools")? {
            let member = RequestObject::of(member, at)?;
            match member.text("type")? {
                "function" | "custom" => allowed.push(self.chosen(&member)?),
                _ => {} // Hosted tools are never among the functions.
            }
        }
        self.functions.retain(|function| {
            let name = function.pointer("/function/name").and_then(Value::as_str);
            name.is_some_and(|name| allowed.iter().any(|allowed| allowed == name))
        });
        match choice.optional_text("mode")? {
            None | Some("auto") => Ok("auto".into()),
            Some("required") => Ok("required".into()),
            Some(other) => {
                Err(choice.refuse(format_args!("the mode {other:?} is neither auto nor required")))
            }
        }
    }
}

/// Returns the description of a custom tool, including the grammar of its text. The grammar is not enforced.
fn describe_custom(tool: &RequestObject<'_>) -> Result<Option<String>, BadRequest> {
    let description = tool.optional_text("description")?;
    let Some(format) = tool.get("format") else { return Ok(description.map(str::to_owned)) };
    let format = RequestObject::of(format, tool.at("format"))?;
    match format.text("type")? {
        "text" => Ok(description.map(str::to_owned)),
        "grammar" => {
            let (syntax, definition) = (format.text("syntax")?, format.text("definition")?);
            let description = description.unwrap_or_default();
            Ok(Some(
                format!("{description}\n\nThe input must follow this {syntax} grammar:\n{definition}")
                    .trim()
                    .to_owned(),
            ))
        }
        other => Err(format.refuse(format_args!("the format {other:?} is neither text nor grammar"))),
    }
}
