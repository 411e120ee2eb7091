//! A chat request on its way upstream.

use rolltap_rollout::call::Dialect;
use serde::Deserialize;
use serde_json::Value;

use super::answer::Asked;
use crate::dialect::Ground;
use crate::dialect::sampling::{self, Effective};
use crate::dialect::unsendable::Unsendable;
use crate::recorder::CallFacts;
use crate::surgery::{Object, Splices};

/// A request as it goes upstream, and what it said.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) body: Vec<u8>,
    pub(crate) facts: CallFacts,
    pub(crate) asked: Asked,
}

/// Keys that a trial's enforced sampling cannot have: they are the agent's own words, or ours.
pub(crate) const NOT_SAMPLING: [&str; 7] =
    ["messages", "model", "stream", "stream_options", "tools", "logprobs", "return_token_ids"];

/// Reads a request and makes of it what goes upstream: what the trial enforces laid over it, ids and logprobs asked for, every other
/// byte as it came.
pub(crate) fn prepare(text: &str, ground: Ground<'_>) -> Result<Ready, Unsendable> {
    let object = sampling::object(text)?;
    let model: String = object.get_as("model").unwrap_or_default();
    let served = ground.names.served(&model);
    let asked = Asked {
        logprobs: object.asks_for("logprobs"),
        token_ids: object.asks_for("return_token_ids"),
        renamed: served.as_ref().map(|_| model.as_str().into()),
    };
    let effective = Effective { object: &object, enforced: ground.enforced };
    let facts = CallFacts {
        dialect: Dialect::ChatCompletions,
        model: model.clone(),
        sampling: effective.sampling(ground.defaults),
        has_media: has_media(&object, text),
        choices: effective.get_as("n").unwrap_or(1),
        prompts: 1,
    };
    let mut splices = Splices::of(text);
    if let Some(served) = &served {
        object.set("model", &Value::from(&**served).to_string(), &mut splices);
    }
    for (key, value) in ground.enforced {
        object.set(key, &value.to_string(), &mut splices);
    }
    for (key, is_set) in [("logprobs", asked.logprobs), ("return_token_ids", asked.token_ids)] {
        if !is_set {
            object.set(key, "true", &mut splices);
        }
    }
    let mut prepared = Vec::with_capacity(text.len() + 64);
    splices.apply(&mut prepared);
    Ok(Ready { body: prepared, facts, asked })
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
    use crate::dialect::tests::ground;
    use crate::upstream::SamplingDefaults;

    fn prepared(body: &str, enforced: Value) -> Ready {
        let Value::Object(enforced) = enforced else { panic!("not an object") };
        prepare(body, Ground { enforced: &enforced, ..ground() }).unwrap()
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
        assert_eq!(sent.asked, Asked { logprobs: false, token_ids: false, renamed: None });
    }

    #[test]
    fn what_the_agent_asked_for_itself_is_untouched() {
        let body = r#"{"logprobs":true,"top_logprobs":2,"return_token_ids":true,"messages":[]}"#;
        let sent = prepared(body, json!({}));
        assert_eq!(sent.body, body.as_bytes());
        assert_eq!(sent.asked, Asked { logprobs: true, token_ids: true, renamed: None });
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
        let sampling = prepare("{\"top_p\":1}", Ground { defaults, ..ground() }).unwrap().facts.sampling;
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
        let fails = |body: &str| prepare(body, ground()).unwrap_err().to_string();
        assert!(fails("[1]").contains("not a JSON object"));
        assert!(fails("{\"model\": ").contains("line 1 column"));
        assert!(fails(r#"{"kv_transfer_params":{"prompt_token_ids":[1]}}"#).contains("kv_transfer_params"));
    }
}
