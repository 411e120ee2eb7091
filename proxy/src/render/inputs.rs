//! The inputs that the template gets beside the messages (`build_chat_params` of vLLM's chat request, merged like
//! `preprocess_chat` of its renderer).

use minijinja::Value;
use serde_json::{Map, Value as Json};

use super::value::to_value;
use super::{RenderError, RenderSettings};

/// All members of a chat request but the messages that affect the rendering, as JSON values of the request. `None` and
/// `null` are equivalent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RequestInputs {
    pub(crate) tools: Option<Json>,
    /// Has an effect only with [`RenderSettings::exclude_tools_when_tool_choice_none`].
    pub(crate) tool_choice: Option<Json>,
    pub(crate) chat_template_kwargs: Option<Json>,
    pub(crate) reasoning_effort: Option<Json>,
    pub(crate) documents: Option<Json>,
}

/// The same inputs as the template reads them. Created once per request, and cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct TemplateInputs {
    /// Whether the request has tools: some models have a separate template for such requests.
    pub(super) has_tools: bool,
    pub(super) tools: Value,
    pub(super) documents: Value,
    /// Template arguments, by name.
    pub(super) others: Vec<(String, Value)>,
}

/// Arguments that transformers uses itself (`apply_chat_template`), so that no template sees them.
const NOT_FOR_TEMPLATES: [&str; 9] = [
    "add_generation_prompt",
    "continue_final_message",
    "padding",
    "truncation",
    "max_length",
    "return_tensors",
    "return_dict",
    "tokenizer_kwargs",
    "self",
];

/// Arguments with which vLLM refuses the request, or renders with a template that rolltap does not have.
const REFUSED: [&str; 5] =
    ["chat_template", "tokenize", "conversation", "messages", "return_assistant_tokens_mask"];

impl TemplateInputs {
    /// Merges a request's arguments with the server's, as vLLM does. The request's arguments override the server's. The
    /// request's own members override its `chat_template_kwargs`. `null` and `"auto"` count as absent.
    ///
    /// vLLM omits the arguments that the template does not mention, which does not change the text.
    pub(super) fn read(request: &RequestInputs, settings: &RenderSettings) -> Result<Self, RenderError> {
        let mut said = match present(&request.chat_template_kwargs) {
            None => Map::new(),
            Some(Json::Object(arguments)) => arguments.clone(),
            Some(_) => return Err(unreadable("chat_template_kwargs is no object")),
        };
        if let Some(effort) = present(&request.reasoning_effort) {
            // vLLM derives `enable_thinking` from the effort unless the request sets it.
            if !said.contains_key("enable_thinking") {
                said.insert("enable_thinking".to_owned(), Json::Bool(effort != "none"));
            }
            said.insert("reasoning_effort".to_owned(), effort.clone());
        }
        if let Some(documents) = present(&request.documents) {
            said.insert("documents".to_owned(), documents.clone());
        }
        said.retain(|_, value| !value.is_null() && value != "auto");

        let mut arguments = settings.chat_template_kwargs.clone();
        if let Some(tools) = tools_of(request, settings)? {
            arguments.insert("tools".to_owned(), tools);
        }
        arguments.extend(said);
        if REFUSED.iter().any(|name| arguments.contains_key(*name)) {
            return Err(unreadable("chat_template_kwargs names what vLLM keeps for itself"));
        }
        arguments.retain(|name, _| !NOT_FOR_TEMPLATES.contains(&name.as_str()));
        let tools = arguments.shift_remove("tools").filter(|tools| !tools.is_null());
        let documents = arguments.shift_remove("documents").unwrap_or_default();
        let others = arguments.iter().map(|(name, value)| Ok((name.clone(), to_value(value)?)));
        Ok(Self {
            has_tools: tools.is_some(),
            tools: to_value(&tools.unwrap_or_default())?,
            documents: to_value(&documents)?,
            others: others.collect::<Result<_, RenderError>>()?,
        })
    }
}

/// Returns the tools as vLLM's request model prints them, or `None` if vLLM omits them.
fn tools_of(request: &RequestInputs, settings: &RenderSettings) -> Result<Option<Json>, RenderError> {
    let is_excluded = settings.exclude_tools_when_tool_choice_none
        && request.tool_choice.as_ref().is_some_and(|choice| choice == "none");
    match present(&request.tools) {
        None => Ok(None),
        Some(_) if is_excluded => Ok(None),
        Some(Json::Array(tools)) if !tools.is_empty() => {
            Ok(Some(Json::Array(tools.iter().map(tool).collect::<Result<_, _>>()?)))
        }
        Some(_) => Err(unreadable("tools is no list of some")),
    }
}

/// Converts a tool as vLLM's `ChatCompletionToolsParam` and `FunctionDefinition` print it. Only the members that they
/// know remain, in their order. `description` and `parameters` are present even if they are null, the others only if
/// they are not.
fn tool(tool: &Json) -> Result<Json, RenderError> {
    let Some(Json::Object(function)) = tool.get("function") else {
        return Err(unreadable("a tool is no function"));
    };
    let member = |key: &str| function.get(key).cloned().unwrap_or_default();
    let deferred = tool.get("defer_loading").filter(|value| !value.is_null());
    let mut known = Map::new();
    for key in ["name", "description", "parameters"] {
        known.insert(key.to_owned(), member(key));
    }
    // vLLM copies `defer_loading` from the tool into its function.
    let deferred_here = function.get("defer_loading").filter(|value| !value.is_null()).or(deferred);
    let strict = function.get("strict").filter(|value| !value.is_null());
    for (key, value) in [("strict", strict), ("defer_loading", deferred_here)] {
        known.extend(value.map(|value| (key.to_owned(), value.clone())));
    }
    let mut whole = Map::new();
    whole.insert("type".to_owned(), "function".into());
    whole.insert("function".to_owned(), Json::Object(known));
    whole.extend(deferred.map(|value| ("defer_loading".to_owned(), value.clone())));
    Ok(Json::Object(whole))
}

fn present(value: &Option<Json>) -> Option<&Json> {
    value.as_ref().filter(|value| !value.is_null())
}

fn unreadable(why: &'static str) -> RenderError {
    RenderError::unreadable("the request", why)
}
