//! Translates the amount of thinking and the output format.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::members::{RequestMembers, refusal};
use crate::dialect::bad_request::BadRequest;

/// The thinking mode. `display` has no effect: the whole thinking is always shown.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Thinking {
    Enabled,
    Adaptive,
    Disabled,
}

#[derive(Default, Deserialize)]
struct OutputConfig {
    #[serde(default)]
    effort: Option<String>,
    #[serde(default)]
    format: Option<Format>,
    #[serde(flatten)]
    unknown: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Format {
    JsonSchema { schema: Map<String, Value> },
}

/// Translates `thinking`, `output_config`, the older `output_format`, and arguments for the chat template.
///
/// # Errors
/// Returns an error for values of unknown form and unknown members of `output_config`.
pub(super) fn reasoning(
    members: &mut RequestMembers<'_>,
    chat: &mut Map<String, Value>,
) -> Result<(), BadRequest> {
    let thinking: Option<Thinking> = members.take_as("thinking")?;
    let config: OutputConfig = members.take_as("output_config")?.unwrap_or_default();
    let older_format: Option<Format> = members.take_as("output_format")?;
    let mut template: Map<String, Value> = members.take_as("chat_template_kwargs")?.unwrap_or_default();
    if let Some(key) = config.unknown.keys().next() {
        return Err(refusal(&format!("output_config.{key}"), "cannot be carried to the model: leave it out"));
    }
    if let Some(Format::JsonSchema { schema }) = config.format.or(older_format) {
        let format = json!({"type": "json_schema", "json_schema": {"name": "json_schema", "schema": schema}});
        chat.insert("response_format".into(), format);
    }
    match &thinking {
        // The budget is not enforced: vLLM would enforce it by tokens that the policy did not sample.
        Some(Thinking::Enabled) => {
            template.entry("enable_thinking").or_insert(true.into());
        }
        Some(Thinking::Disabled) => {
            template.entry("enable_thinking").or_insert(false.into());
        }
        Some(Thinking::Adaptive) | None => {}
    }
    // Disabled thinking has precedence over an effort.
    if let Some(effort) = config.effort.filter(|_| !matches!(thinking, Some(Thinking::Disabled))) {
        chat.insert("reasoning_effort".into(), effort.into());
    }
    if !template.is_empty() {
        chat.insert("chat_template_kwargs".into(), template.into());
    }
    Ok(())
}
