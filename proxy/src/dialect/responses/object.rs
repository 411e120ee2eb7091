//! The response object: fields of the request, and the result.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::dialect::chat::completion::Usage;

/// The fields of a response that repeat its request.
#[derive(Debug)]
pub(super) struct Echo {
    fields: Map<String, Value>,
}

/// Returns the fields that a response repeats, with their default values. The order is that of OpenAI's responses.
fn defaults() -> Value {
    json!({
        "background": false,
        "instructions": null,
        "max_output_tokens": null,
        "max_tool_calls": null,
        "metadata": {},
        "model": "",
        "parallel_tool_calls": true,
        "previous_response_id": null,
        "prompt_cache_key": null,
        "reasoning": {"effort": null, "summary": null},
        "safety_identifier": null,
        "service_tier": "default",
        "store": true,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "user": null,
    })
}

impl Echo {
    pub(super) fn of(request: &Map<String, Value>) -> Self {
        let mut fields = Map::new();
        if let Value::Object(defaults) = defaults() {
            fields = defaults;
        }
        for (key, value) in &mut fields {
            match (request.get(key), value.as_object_mut()) {
                // An absent key and a `null` both mean the default.
                (None | Some(Value::Null), _) => {}
                // A partial object retains the defaults of the fields that it lacks.
                (Some(Value::Object(asked)), Some(default)) => default.extend(asked.clone()),
                (Some(asked), _) => *value = asked.clone(),
            }
        }
        Self { fields }
    }

    /// Returns the id of the response that the request continues.
    pub(super) fn parent(&self) -> Option<&str> {
        self.fields.get("previous_response_id").and_then(Value::as_str)
    }
}

/// The state of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    InProgress,
    Completed,
    Incomplete,
    Failed,
}

/// The reason why a response failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct ResponseFailure {
    pub(super) code: String,
    pub(super) message: String,
}

/// The response object in the form of the wire.
#[derive(Serialize)]
pub(super) struct ResponseObject<'a> {
    pub(super) id: &'a str,
    pub(super) object: &'static str,
    pub(super) created_at: u64,
    pub(super) status: Status,
    pub(super) error: Option<&'a ResponseFailure>,
    pub(super) incomplete_details: Option<Incomplete>,
    pub(super) output: &'a [Value],
    pub(super) usage: Option<ResponseUsage>,
    #[serde(flatten)]
    pub(super) echo: &'a Map<String, Value>,
}

/// The reason why a response is incomplete: `max_output_tokens` or `content_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Incomplete {
    pub(super) reason: &'static str,
}

/// The token counts in this dialect's form.
#[derive(Serialize)]
pub(super) struct ResponseUsage {
    input_tokens: u64,
    input_tokens_details: InputDetails,
    output_tokens: u64,
    output_tokens_details: OutputDetails,
    total_tokens: u64,
}

#[derive(Serialize)]
struct InputDetails {
    cached_tokens: u64,
    /// Always 0. The official client requires the field.
    cache_write_tokens: u64,
}

#[derive(Serialize)]
struct OutputDetails {
    /// The number of reasoning tokens, or 0 if the server does not count them.
    reasoning_tokens: u64,
}

impl<'a> ResponseObject<'a> {
    /// Returns a response in progress, without output.
    pub(super) fn begun(id: &'a str, created_at: u64, echo: &'a Echo) -> Self {
        Self {
            id,
            object: "response",
            created_at,
            status: Status::InProgress,
            error: None,
            incomplete_details: None,
            output: &[],
            usage: None,
            echo: &echo.fields,
        }
    }
}

impl From<Usage> for ResponseUsage {
    fn from(usage: Usage) -> Self {
        Self {
            input_tokens: usage.prompt_tokens,
            input_tokens_details: InputDetails {
                cached_tokens: usage.cached_tokens(),
                cache_write_tokens: 0,
            },
            output_tokens: usage.completion_tokens,
            output_tokens_details: OutputDetails { reasoning_tokens: usage.reasoning_tokens() },
            total_tokens: usage.prompt_tokens.saturating_add(usage.completion_tokens),
        }
    }
}
