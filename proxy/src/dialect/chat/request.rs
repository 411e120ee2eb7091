//! A chat request on its way upstream.

use rolltap_rollout::call::{Dialect, Sampling};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::answer::Asked;
use crate::recorder::CallFacts;
use crate::surgery::{Object, Splices};
use crate::upstream::SamplingDefaults;

/// A request as it goes upstream, and what it said.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) body: Vec<u8>,
    pub(crate) facts: CallFacts,
    pub(crate) asked: Asked,
}

/// Why a body is not sent on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unsendable {
    #[error("the request body is not UTF-8 text (byte {0})")]
    NotText(usize),
    #[error("the request body is not a JSON object: {0}")]
    NotAnObject(serde_json::Error),
    #[error("{0:?} steers the inference engine and is not the agent's to set: leave it out")]
    EngineControl(&'static str),
}

/// Keys by which a request could reach past its own sampling.
const ENGINE_CONTROL: [&str; 6] =
    ["kv_transfer_params", "ec_transfer_params", "vllm_xargs", "prompt_token_ids", "priority", "request_id"];

/// Keys that a trial's enforced sampling cannot have: they are the agent's own words, or ours.
pub(crate) const NOT_SAMPLING: [&str; 7] =
    ["messages", "model", "stream", "stream_options", "tools", "logprobs", "return_token_ids"];

/// Every key of vLLM's chat request that has a say in how tokens are sampled.
const SAMPLING_KEYS: [&str; 27] = [
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
];

/// Keys whose mere presence takes tokens out of the distribution that logprobs are of.
const CONSTRAINING_KEYS: [&str; 5] =
    ["structured_outputs", "logit_bias", "allowed_token_ids", "bad_words", "min_tokens"];

/// Reads a request and makes of it what goes upstream: `enforced` laid over it, ids and logprobs asked for, every other
/// byte as it came.
pub(crate) fn prepare(
    body: &[u8],
    enforced: &Map<String, Value>,
    defaults: SamplingDefaults,
) -> Result<Prepared, Unsendable> {
    let text = std::str::from_utf8(body).map_err(|error| Unsendable::NotText(error.valid_up_to()))?;
    let object = Object::scan(text).map_err(Unsendable::NotAnObject)?;
    if let Some(key) =
        ENGINE_CONTROL.into_iter().find(|key| object.get(key).is_some_and(|v| v.get() != "null"))
    {
        return Err(Unsendable::EngineControl(key));
    }
    let asked = Asked {
        logprobs: object.get_as("logprobs").unwrap_or(false),
        token_ids: object.get_as("return_token_ids").unwrap_or(false),
    };
    let effective = Effective { object: &object, enforced };
    let facts = CallFacts {
        dialect: Dialect::ChatCompletions,
        model: object.get_as("model").unwrap_or_default(),
        sampling: effective.sampling(defaults),
        has_media: has_media(&object, text),
        choices: effective.get_as("n").unwrap_or(1),
    };
    let mut splices = Splices::of(text);
    for (key, value) in enforced {
        object.set(key, &value.to_string(), &mut splices);
    }
    for (key, is_set) in [("logprobs", asked.logprobs), ("return_token_ids", asked.token_ids)] {
        if !is_set {
            object.set(key, "true", &mut splices);
        }
    }
    let mut prepared = Vec::with_capacity(body.len() + 64);
    splices.apply(&mut prepared);
    Ok(Prepared { body: prepared, facts, asked })
}

/// A request with a trial's enforced sampling laid over it.
struct Effective<'a> {
    object: &'a Object<'a>,
    enforced: &'a Map<String, Value>,
}

impl Effective<'_> {
    fn get(&self, key: &str) -> Option<Value> {
        let value = self.enforced.get(key).cloned().or_else(|| self.object.get_as(key))?;
        (!value.is_null()).then_some(value)
    }

    fn get_as<T: serde::de::DeserializeOwned>(&self, key: &str) -> Option<T> {
        serde_json::from_value(self.get(key)?).ok()
    }

    fn sampling(&self, defaults: SamplingDefaults) -> Sampling {
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
        let forces_a_tool = match self.get("tool_choice") {
            Some(Value::String(choice)) => choice == "required",
            Some(_) => true,
            None => false,
        };
        let forces_a_format = self
            .get("response_format")
            .is_some_and(|format| format.get("type").and_then(Value::as_str) != Some("text"));
        forces_a_tool || forces_a_format || CONSTRAINING_KEYS.into_iter().any(|key| self.get(key).is_some())
    }
}

#[derive(Deserialize)]
struct Message {
    content: Option<Content>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Parts(Vec<Part>),
    Other(serde::de::IgnoredAny),
}

#[derive(Deserialize)]
struct Part {
    #[serde(rename = "type")]
    kind: Option<String>,
}

const MEDIA: [&str; 6] = [
    "\"image_url\"",
    "\"input_image\"",
    "\"input_audio\"",
    "\"audio_url\"",
    "\"video_url\"",
    "\"image_pil\"",
];

fn has_media(object: &Object<'_>, text: &str) -> bool {
    // A quote inside of a JSON string is escaped, so these are whole strings of the text: rare enough to look closer.
    if !MEDIA.into_iter().any(|name| memchr::memmem::find(text.as_bytes(), name.as_bytes()).is_some()) {
        return false;
    }
    let messages: Vec<Message> = object.get_as("messages").unwrap_or_default();
    messages.into_iter().filter_map(|message| message.content).any(|content| match content {
        Content::Parts(parts) => {
            parts.iter().any(|part| part.kind.as_deref().is_some_and(|kind| kind != "text"))
        }
        Content::Other(_) => false,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn prepared(body: &str, enforced: Value) -> Prepared {
        let Value::Object(enforced) = enforced else { panic!("not an object") };
        prepare(body.as_bytes(), &enforced, SamplingDefaults::default()).unwrap()
    }

    #[test]
    fn only_what_we_need_is_added() {
        let body = r#"{"model":"m", "temperature":1.50,"messages":[]}"#;
        let sent = prepared(body, json!({}));
        let text = String::from_utf8(sent.body).unwrap();
        assert_eq!(
            text,
            r#"{"logprobs":true,"return_token_ids":true,"model":"m", "temperature":1.50,"messages":[]}"#
        );
        assert_eq!(sent.facts.sampling.temperature, Some(1.5));
        assert_eq!(sent.asked, Asked { logprobs: false, token_ids: false });
    }

    #[test]
    fn what_the_agent_asked_for_itself_is_untouched() {
        let body = r#"{"logprobs":true,"top_logprobs":2,"return_token_ids":true,"messages":[]}"#;
        let sent = prepared(body, json!({}));
        assert_eq!(sent.body, body.as_bytes());
        assert_eq!(sent.asked, Asked { logprobs: true, token_ids: true });
    }

    #[test]
    fn enforced_sampling_is_laid_over_the_request() {
        let sent = prepared(
            r#"{"temperature":0,"logprobs":false}"#,
            json!({"temperature": 0.7, "structured_outputs": {"regex": "a+"}}),
        );
        let sent_body: Value = serde_json::from_slice(&sent.body).unwrap();
        assert_eq!(
            sent_body,
            json!({"temperature": 0.7, "structured_outputs": {"regex": "a+"}, "logprobs": true, "return_token_ids": true})
        );
        assert_eq!(sent.facts.sampling.temperature, Some(0.7));
        assert!(sent.facts.sampling.constrained);
    }

    #[test]
    fn constraints_are_told_from_free_sampling() {
        for (body, constrained) in [
            (json!({"tool_choice": "auto"}), false),
            (json!({"tool_choice": "required"}), true),
            (json!({"tool_choice": {"type": "function"}}), true),
            (json!({"response_format": {"type": "text"}}), false),
            (json!({"response_format": {"type": "json_object"}}), true),
            (json!({"logit_bias": null, "temperature": 0.1}), false),
            (json!({"logit_bias": {"5": 1}}), true),
        ] {
            assert_eq!(
                prepared(&body.to_string(), json!({})).facts.sampling.constrained,
                constrained,
                "{body}"
            );
        }
    }

    #[test]
    fn where_the_request_is_silent_the_models_defaults_count() {
        let defaults = SamplingDefaults { temperature: Some(0.6), top_p: Some(0.9), top_k: None };
        let sampling = prepare(b"{\"top_p\":1}", &Map::new(), defaults).unwrap().facts.sampling;
        assert_eq!((sampling.temperature, sampling.top_p, sampling.top_k), (Some(0.6), Some(1.0), None));
    }

    #[test]
    fn images_are_seen_and_talk_of_images_is_not() {
        let image = json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]});
        assert!(prepared(&image.to_string(), json!({})).facts.has_media);
        let talk = json!({"messages": [{"role": "user", "content": "image_url"}, {"role": "user", "content": [{"type": "text", "text": "\"image_url\""}]}]});
        assert!(!prepared(&talk.to_string(), json!({})).facts.has_media);
    }

    #[test]
    fn what_cannot_be_sent_is_explained() {
        let fails =
            |body: &[u8]| prepare(body, &Map::new(), SamplingDefaults::default()).unwrap_err().to_string();
        assert!(fails(b"{\"a\":\"\xff\"}").contains("UTF-8"));
        assert!(fails(b"[1]").contains("not a JSON object"));
        assert!(fails(b"{\"model\": ").contains("line 1 column"));
        assert!(fails(br#"{"kv_transfer_params":{"prompt_token_ids":[1]}}"#).contains("kv_transfer_params"));
    }
}
