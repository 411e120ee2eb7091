//! The sampling parameters of a request to vLLM, and the parameters that an agent may not set.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use rolltap_rollout::call::Sampling;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::bad_request::BadRequest;
use crate::upstream::SamplingDefaults;
use crate::wire::json_edit::{Object, is_off};

/// Keys that affect more than the request's own sampling. Each has a list of values that have no effect, in addition to
/// `null`.
pub(super) const ENGINE_CONTROL: [(&str, &[&str]); 9] = [
    ("kv_transfer_params", &["{}"]),
    ("ec_transfer_params", &["{}"]),
    ("vllm_xargs", &["{}"]),
    ("prompt_token_ids", &[]),
    ("prompt_embeds", &[]),
    ("logits_processors", &["[]"]),
    ("priority", &["0"]),
    ("request_id", &["\"\""]),
    ("data_parallel_rank", &[]),
];

/// Every key of vLLM's chat request that affects the sampling of tokens.
pub(super) const SAMPLING_KEYS: [&str; 32] = [
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "n",
    "seed",
    "max_tokens",
    "max_completion_tokens",
    "min_tokens",
    "stop",
    "stop_token_ids",
    "ignore_eos",
    "include_stop_str_in_output",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "allowed_token_ids",
    "bad_words",
    "response_format",
    "structured_outputs",
    "tool_choice",
    "reasoning_effort",
    "chat_template_kwargs",
    "include_reasoning",
    "truncate_prompt_tokens",
    "thinking_token_budget",
    "parallel_tool_calls",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
];

/// Keys that put a grammar on the answer by their presence. The last four are from older versions of vLLM.
const GRAMMAR_KEYS: [&str; 5] =
    ["structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar"];

/// The value of vLLM's `--tool-strict-level`, which its answers do not reveal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolStrictLevel {
    /// A grammar applies only to tool calls of requests that ask for it. This is vLLM's default, except for models
    /// whose tool parser has another default.
    #[default]
    Auto,
    /// A grammar enforces the form of every tool call.
    Function,
    /// A grammar enforces the form and the arguments of every tool call.
    Parameter,
}

impl ToolStrictLevel {
    /// The names, as configurations and flags have them.
    pub const NAMES: [&str; 3] = ["auto", "function", "parameter"];
}

impl fmt::Display for ToolStrictLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Function => "function",
            Self::Parameter => "parameter",
        })
    }
}

impl FromStr for ToolStrictLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "function" => Ok(Self::Function),
            "parameter" => Ok(Self::Parameter),
            other => Err(format!("{other:?} is not one of auto, function, parameter")),
        }
    }
}

/// vLLM's own sampling keys that clients of other dialects add to a request (`extra_body`). They are forwarded
/// unchanged.
pub(super) const EXTRAS: [&str; 12] = [
    "top_k",
    "min_p",
    "seed",
    "stop_token_ids",
    "min_tokens",
    "ignore_eos",
    "skip_special_tokens",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "structured_outputs",
];

/// Keys that by their presence remove tokens from the distribution that the logprobs describe.
const CONSTRAINING_KEYS: [&str; 5] =
    ["logit_bias", "allowed_token_ids", "bad_words", "min_tokens", "thinking_token_budget"];

/// Scans a request body.
///
/// # Errors
/// Returns an error if the body is not a JSON object, asks for beam search, or sets a key that controls the engine.
pub(crate) fn object(text: &str) -> Result<Object<'_>, BadRequest> {
    let object = Object::scan(text)
        .map_err(|error| BadRequest::new(format!("the request body is not a JSON object: {error}")))?;
    if object.asks_for("use_beam_search") {
        let message = "beam search samples nothing, so its tokens have no logprobs to train on: leave use_beam_search out";
        return Err(BadRequest::at("use_beam_search", message));
    }
    let has_effect = |(key, idle): &(&str, &[&str])| {
        object.get(key).is_some_and(|value| value != "null" && !idle.contains(&value))
    };
    match ENGINE_CONTROL.into_iter().find(has_effect) {
        Some((key, _)) => Err(BadRequest::at(
            key,
            format!("{key:?} steers the inference engine and is not the agent's to set: leave it out"),
        )),
        None => Ok(object),
    }
}

/// Adds vLLM's alternative name of an enforced key if the request uses that name.
pub(crate) fn by_every_name<'a>(
    enforced: &'a Map<String, Value>,
    request: &Object<'_>,
) -> Cow<'a, Map<String, Value>> {
    let mut named = Cow::Borrowed(enforced);
    // vLLM prefers `max_completion_tokens`, so the request's value would override the enforced limit.
    if let Some(limit) = enforced.get("max_tokens")
        && !enforced.contains_key("max_completion_tokens")
        && request.has("max_completion_tokens")
    {
        named.to_mut().insert("max_completion_tokens".to_owned(), limit.clone());
    }
    named
}

/// Maximum number of samples per call, as in OpenAI's API. Without a limit, one call could occupy all of vLLM's
/// capacity.
const MOST_SAMPLES: u32 = 128;

/// A request, overlaid with the keys that its trial enforces.
pub(crate) struct Effective<'a> {
    pub(crate) object: &'a Object<'a>,
    pub(crate) enforced: &'a Map<String, Value>,
    pub(crate) tool_strict_level: ToolStrictLevel,
}

/// The part of a tool that determines whether a grammar applies to its calls.
#[derive(Deserialize)]
struct Tool {
    #[serde(default)]
    function: Option<Function>,
}

#[derive(Deserialize)]
struct Function {
    #[serde(default)]
    strict: Option<bool>,
}

impl Effective<'_> {
    fn get(&self, key: &str) -> Option<Value> {
        let value = self.enforced.get(key).cloned().or_else(|| self.object.get_as(key))?;
        (!value.is_null()).then_some(value)
    }

    /// Whether `key` is present and not `null`.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.enforced.get(key).map_or_else(|| self.object.has(key), |value| !value.is_null())
    }

    /// Whether the request turns `key` on. A value that vLLM rejects as a boolean counts as on.
    pub(crate) fn asks_for(&self, key: &str) -> bool {
        let is_on = |value: &Value| !value.is_null() && !is_off(value);
        self.enforced.get(key).map_or_else(|| self.object.asks_for(key), is_on)
    }

    /// Whether the request turns `key` off, by any value that vLLM reads as false.
    pub(crate) fn turns_off(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| is_off(&value))
    }

    pub(crate) fn get_as<T: serde::de::DeserializeOwned>(&self, key: &str) -> Option<T> {
        serde_json::from_value(self.get(key)?).ok()
    }

    /// Returns the number of samples per prompt (`n`), 1 by default. vLLM rejects values that are not a number.
    ///
    /// # Errors
    /// Returns an error if the agent asks for more than 128 samples.
    pub(crate) fn samples(&self) -> Result<u32, BadRequest> {
        let asked = match self.get("n") {
            Some(Value::Number(number)) => number.as_f64(),
            // vLLM also accepts numbers as strings.
            Some(Value::String(text)) => text.trim().parse().ok(),
            _ => None,
        };
        // The limit applies to agents: a trial may enforce a larger number.
        if asked.is_some_and(|samples: f64| samples > f64::from(MOST_SAMPLES))
            && !self.enforced.contains_key("n")
        {
            let message = format!("n is larger than {MOST_SAMPLES}: ask for fewer samples, in several calls");
            return Err(BadRequest::at("n", message));
        }
        let is_count =
            |samples: &f64| samples.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(samples);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the filter lets only u32 through"
        )]
        Ok(asked.filter(is_count).map_or(1, |samples| samples as u32))
    }

    pub(crate) fn sampling(&self, defaults: SamplingDefaults) -> Sampling {
        let stated =
            SAMPLING_KEYS.into_iter().filter_map(|key| self.get(key).map(|value| (key.to_owned(), value)));
        Sampling {
            temperature: self.get_as("temperature").or(defaults.temperature),
            top_p: self.get_as("top_p").or(defaults.top_p),
            top_k: self.get_as("top_k").or(defaults.top_k),
            constrained: self.is_constrained(),
            params: stated.collect(),
        }
    }

    /// Whether anything other than temperature, top-p and top-k excludes tokens from sampling.
    fn is_constrained(&self) -> bool {
        self.is_guided() || CONSTRAINING_KEYS.into_iter().any(|key| self.get(key).is_some())
    }

    /// Whether a grammar restricts the answer.
    pub(crate) fn is_guided(&self) -> bool {
        let forces_a_tool = match self.get("tool_choice") {
            Some(Value::String(choice)) if choice == "none" => false,
            Some(Value::String(choice)) => choice == "required" || self.has_strict_tools(),
            // An object names a tool, which vLLM enforces by a grammar.
            Some(_) => true,
            None => self.has_strict_tools(),
        };
        let forces_a_format = self
            .get("response_format")
            .is_some_and(|format| format.get("type").and_then(Value::as_str) != Some("text"));
        forces_a_tool || forces_a_format || GRAMMAR_KEYS.into_iter().any(|key| self.get(key).is_some())
    }

    /// Whether a grammar applies to tool calls that the model is free to make: a tool is strict, at most one call is
    /// allowed, or the server's level requires it. This is the rule of vLLM 0.32 (`resolve_tool_strictness`).
    fn has_strict_tools(&self) -> bool {
        let are_all_strict =
            self.tool_strict_level != ToolStrictLevel::Auto || self.turns_off("parallel_tool_calls");
        // Most requests end here, so their tools are not parsed.
        if !are_all_strict && !self.object.get("tools").is_some_and(|tools| tools.contains("strict")) {
            return false;
        }
        let tools: Vec<Tool> = self.object.get_as("tools").unwrap_or_default();
        let is_strict =
            |tool: &Tool| tool.function.as_ref().is_some_and(|function| function.strict == Some(true));
        if are_all_strict { !tools.is_empty() } else { tools.iter().any(is_strict) }
    }
}
