//! What a request to vLLM says of how tokens are sampled, and what it may not say.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use rolltap_rollout::call::Sampling;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::bad_request::BadRequest;
use crate::upstream::SamplingDefaults;
use crate::wire::json_edit::{Object, is_off};

/// Keys by which a request could reach past its own sampling, each with the values beside `null` that have no effect.
const ENGINE_CONTROL: [(&str, &[&str]); 9] = [
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

/// Every key of vLLM's chat request that has a say in how tokens are sampled.
const SAMPLING_KEYS: [&str; 32] = [
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

/// Keys whose mere presence puts a grammar on the answer. The last four are those of older vLLM.
const GRAMMAR_KEYS: [&str; 5] =
    ["structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar"];

/// vLLM's `--tool-strict-level`, which its answers do not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolStrictLevel {
    /// Only requests that ask for it have their tool calls sampled under a grammar. vLLM's default, except for models
    /// whose tool parser has another.
    #[default]
    Auto,
    /// The form of every tool call is kept by a grammar.
    Function,
    /// The arguments of every tool call too.
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
            other => Err(format!("{other:?} is none of auto, function, parameter")),
        }
    }
}

/// Sampling of vLLM's own that clients of other dialects add to a request as it is (`extra_body`), and that goes upstream
/// as it is.
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

/// Keys whose mere presence takes tokens out of the distribution that logprobs are of.
const CONSTRAINING_KEYS: [&str; 5] =
    ["logit_bias", "allowed_token_ids", "bad_words", "min_tokens", "thinking_token_budget"];

/// Scans a body, and refuses what steers more than its own sampling.
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

/// What a trial enforces, also by the other name that vLLM has for it where the request uses that one.
pub(crate) fn by_every_name<'a>(
    enforced: &'a Map<String, Value>,
    request: &Object<'_>,
) -> Cow<'a, Map<String, Value>> {
    let mut named = Cow::Borrowed(enforced);
    // Of these two, vLLM takes the newer.
    if let Some(limit) = enforced.get("max_tokens")
        && !enforced.contains_key("max_completion_tokens")
        && request.has("max_completion_tokens")
    {
        named.to_mut().insert("max_completion_tokens".to_owned(), limit.clone());
    }
    named
}

/// As many samples as OpenAI gives for one call at most. Without a bound one call would be as many as vLLM has room for.
const MOST_SAMPLES: u32 = 128;

/// A request with what its trial enforces laid over it.
pub(crate) struct Effective<'a> {
    pub(crate) object: &'a Object<'a>,
    pub(crate) enforced: &'a Map<String, Value>,
    pub(crate) tool_strict_level: ToolStrictLevel,
}

/// What says whether a tool's calls are sampled under a grammar.
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

    /// Whether the request turns `key` off, in any of the ways in which vLLM reads that.
    pub(crate) fn turns_off(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| is_off(&value))
    }

    pub(crate) fn get_as<T: serde::de::DeserializeOwned>(&self, key: &str) -> Option<T> {
        serde_json::from_value(self.get(key)?).ok()
    }

    /// How many samples are asked for, of each prompt. What is no number is vLLM's to refuse.
    pub(crate) fn samples(&self) -> Result<u32, BadRequest> {
        let asked = match self.get("n") {
            Some(Value::Number(number)) => number.as_f64(),
            // vLLM reads these too.
            Some(Value::String(text)) => text.trim().parse().ok(),
            _ => None,
        };
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
        let stated = SAMPLING_KEYS.into_iter().filter_map(|key| Some((key.to_owned(), self.get(key)?)));
        Sampling {
            temperature: self.get_as("temperature").or(defaults.temperature),
            top_p: self.get_as("top_p").or(defaults.top_p),
            top_k: self.get_as("top_k").or(defaults.top_k),
            constrained: self.is_constrained(),
            params: stated.collect(),
        }
    }

    /// Whether something other than temperature, top-p and top-k keeps tokens from being sampled.
    fn is_constrained(&self) -> bool {
        self.is_guided() || CONSTRAINING_KEYS.into_iter().any(|key| self.get(key).is_some())
    }

    /// Whether a grammar says what the answer may look like.
    pub(crate) fn is_guided(&self) -> bool {
        let forces_a_tool = match self.get("tool_choice") {
            Some(Value::String(choice)) if choice == "none" => false,
            Some(Value::String(choice)) => choice == "required" || self.has_strict_tools(),
            Some(_) => true,
            None => self.has_strict_tools(),
        };
        let forces_a_format = self
            .get("response_format")
            .is_some_and(|format| format.get("type").and_then(Value::as_str) != Some("text"));
        forces_a_tool || forces_a_format || GRAMMAR_KEYS.into_iter().any(|key| self.get(key).is_some())
    }

    /// Whether tool calls that the model is free to make are sampled under a grammar: where one tool is strict, where at most
    /// one call is allowed, and where the server has it so for all. The rule of vLLM 0.32 (`resolve_tool_strictness`).
    fn has_strict_tools(&self) -> bool {
        let are_all_strict =
            self.tool_strict_level != ToolStrictLevel::Auto || self.turns_off("parallel_tool_calls");
        // Most requests end here: their tools are not read.
        if !are_all_strict && !self.object.get("tools").is_some_and(|tools| tools.contains("strict")) {
            return false;
        }
        let tools: Vec<Tool> = self.object.get_as("tools").unwrap_or_default();
        let is_strict =
            |tool: &Tool| tool.function.as_ref().is_some_and(|function| function.strict == Some(true));
        if are_all_strict { !tools.is_empty() } else { tools.iter().any(is_strict) }
    }
}
