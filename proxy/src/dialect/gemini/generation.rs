//! Translates `generationConfig` to keys of a chat request.

use serde_json::{Map, Number, Value, json};

use super::fields::ObjectFields;
use super::schema;
use crate::dialect::bad_request::BadRequest;
use crate::dialect::sampling;

/// Gemini's name, vLLM's name, and the kind of number.
const NUMBERS: [(&str, &str, Kind); 8] = [
    ("temperature", "temperature", Kind::Any),
    ("topP", "top_p", Kind::Any),
    ("topK", "top_k", Kind::Whole),
    ("candidateCount", "n", Kind::Whole),
    ("maxOutputTokens", "max_tokens", Kind::Whole),
    ("seed", "seed", Kind::Whole),
    ("presencePenalty", "presence_penalty", Kind::Any),
    ("frequencyPenalty", "frequency_penalty", Kind::Any),
];

/// vLLM's own keys in addition to its sampling keys. Clients add them to a request's body unchanged.
const OF_VLLM: [&str; 2] = ["chat_template_kwargs", "thinking_token_budget"];

/// Fields for audio and images, and for the choice among Google's models.
const IMPOSSIBLE: [&str; 8] = [
    "speechConfig",
    "imageConfig",
    "mediaResolution",
    "audioTimestamp",
    "audioTranscriptionConfig",
    "translationConfig",
    "routingConfig",
    "modelSelectionConfig",
];

#[derive(Clone, Copy)]
enum Kind {
    Any,
    Whole,
}

/// The parts of a generation config that affect the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    /// `thinkingConfig.includeThoughts`
    pub(super) thoughts: bool,
}

/// Removes `generationConfig` from the body and adds its translation to `chat`.
///
/// # Errors
/// Returns an error for a value of the wrong type, an unknown field, and a field that cannot be translated.
pub(super) fn carry_over(
    body: &mut ObjectFields<'_>,
    chat: &mut Map<String, Value>,
) -> Result<Wanted, BadRequest> {
    of_vllm(body, chat)?;
    let Some(mut config) = body.object("generationConfig")? else { return Ok(Wanted::default()) };
    for (name, key, kind) in NUMBERS {
        let Some(number) = config.get::<Number>(name, "a number")? else { continue };
        let number = match kind {
            Kind::Any => number,
            Kind::Whole => whole(&number).ok_or_else(|| config.fault(name, "must be a whole number"))?,
        };
        chat.insert(key.to_owned(), number.into());
    }
    let stops: Vec<String> = config.get("stopSequences", "a list of strings")?.unwrap_or_default();
    if !stops.is_empty() {
        chat.insert("stop".to_owned(), stops.into());
    }
    format(&mut config, chat)?;
    modalities(&mut config)?;
    logprobs(&mut config)?;
    let wanted = match config.object("thinkingConfig")? {
        Some(thinking) => self::thinking(thinking, chat)?,
        None => Wanted::default(),
    };
    of_vllm(&mut config, chat)?;
    config.refuse(&IMPOSSIBLE, "cannot be carried over to a local model: leave it out")?;
    // Google's servers answer civic questions in a special way, which no local model does.
    config.without_effect(&["enableEnhancedCivicAnswers"]);
    config.end()?;
    Ok(wanted)
}

/// Converts whole numbers that clients write as floats, such as `"topK": 40.0`. Returns `None` for other floats.
fn whole(number: &Number) -> Option<Number> {
    if number.is_i64() || number.is_u64() {
        return Some(number.clone());
    }
    let float = number.as_f64().filter(|float| float.fract() == 0.0)?;
    format!("{float:.0}").parse::<i64>().ok().map(Number::from)
}

fn of_vllm(fields: &mut ObjectFields<'_>, chat: &mut Map<String, Value>) -> Result<(), BadRequest> {
    for key in sampling::EXTRAS.into_iter().chain(OF_VLLM) {
        if let Some(value) = fields.get::<Value>(&super::fields::camel(key), "JSON")? {
            chat.insert(key.to_owned(), value);
        }
    }
    Ok(())
}

fn format(config: &mut ObjectFields<'_>, chat: &mut Map<String, Value>) -> Result<(), BadRequest> {
    let schema: Option<Value> = config.get("responseSchema", "a schema")?;
    let json_schema: Option<Value> = config.get("responseJsonSchema", "a JSON schema")?;
    if schema.is_some() && json_schema.is_some() {
        return Err(config.fault("responseJsonSchema", "stands beside responseSchema: give one of them"));
    }
    // Gemini's own schema needs a conversion. A JSON schema is used as it is.
    let schema = schema.map(schema::json_schema).or(json_schema);
    let mime = config.text("responseMimeType")?;
    let (key, value) = match (mime.as_deref(), schema) {
        (None | Some("text/plain"), None) => return Ok(()),
        (None | Some("application/json"), Some(schema)) => {
            let named = json!({"name": "response", "schema": schema});
            ("response_format", json!({"type": "json_schema", "json_schema": named}))
        }
        (Some("application/json"), None) => ("response_format", json!({"type": "json_object"})),
        (Some("text/x.enum"), Some(schema)) => match schema.get("enum") {
            Some(choices) => ("structured_outputs", json!({"choice": choices})),
            None => return Err(config.fault("responseSchema", "has no enum, which text/x.enum needs")),
        },
        (Some(_), _) => {
            let known = "must be application/json, text/plain without a schema, or text/x.enum with one";
            return Err(config.fault("responseMimeType", known));
        }
    };
    chat.insert(key.to_owned(), value);
    Ok(())
}

fn modalities(config: &mut ObjectFields<'_>) -> Result<(), BadRequest> {
    let modalities: Vec<String> = config.get("responseModalities", "a list of names")?.unwrap_or_default();
    let only_text =
        modalities.iter().all(|name| matches!(name.as_str(), "TEXT" | "Text" | "MODALITY_UNSPECIFIED"));
    if only_text { Ok(()) } else { Err(config.fault("responseModalities", "can only be TEXT")) }
}

/// Rejects requests for logprobs: they are in the trial's record, but are not translated to Gemini's form.
fn logprobs(config: &mut ObjectFields<'_>) -> Result<(), BadRequest> {
    if config.flag("responseLogprobs")? || config.get::<u64>("logprobs", "a number")?.is_some_and(|n| n > 0) {
        let why = "cannot be delivered here: leave it out, and read logprobs in the trial's record or by /v1/chat/completions";
        return Err(config.fault("responseLogprobs", why));
    }
    Ok(())
}

/// Translates `thinkingConfig`. A budget above 0 is accepted without effect.
fn thinking(mut thinking: ObjectFields<'_>, chat: &mut Map<String, Value>) -> Result<Wanted, BadRequest> {
    let wanted = Wanted { thoughts: thinking.flag("includeThoughts")? };
    let budget: Option<i64> = thinking.get("thinkingBudget", "a whole number")?;
    let level = thinking.text("thinkingLevel")?;
    if budget.is_some() && level.is_some() {
        return Err(thinking.fault("thinkingLevel", "stands beside thinkingBudget: give one of them"));
    }
    match budget {
        // -1 leaves the amount to the model.
        None | Some(-1) => {}
        Some(0) => drop(chat.insert("reasoning_effort".to_owned(), "none".into())),
        // vLLM would enforce a budget by tokens that the policy did not sample, so the budget has no effect.
        Some(1..) => {}
        Some(_) => return Err(thinking.fault("thinkingBudget", "must be -1, 0 or more")),
    }
    match level.as_deref() {
        None | Some("THINKING_LEVEL_UNSPECIFIED") => {}
        Some(level @ ("MINIMAL" | "LOW" | "MEDIUM" | "HIGH" | "XHIGH")) => {
            chat.insert("reasoning_effort".to_owned(), level.to_ascii_lowercase().into());
        }
        Some(_) => {
            return Err(thinking.fault("thinkingLevel", "must be MINIMAL, LOW, MEDIUM, HIGH or XHIGH"));
        }
    }
    thinking.end()?;
    Ok(wanted)
}
