//! The inputs of a chat request's prompt: its messages, and everything else that affects the rendering.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::fingerprint::Fingerprint;
use super::message_eq::meaning_of;
use crate::common::redaction::Redaction;
use crate::render::renderer::{self, Renderer};
use crate::render::{RenderError, RequestInputs};
use crate::wire::chat_outline::ChatOutline;
use crate::wire::json_edit::Object;

/// The parts of an outgoing chat request that determine its prompt.
#[derive(Debug)]
pub(super) struct PromptRequest<'a> {
    /// The text of each message.
    pub(super) messages: Vec<&'a str>,
    pub(super) inputs: InputTexts<'a>,
    /// The reason why the prompt cannot be sent as ids, if there is one: vLLM then needs the messages.
    pub(super) needs_messages: Option<&'static str>,
}

/// The members beside the messages that affect the rendering, as texts of the request. Tools are long and the same in
/// every turn, so equal texts are parsed once.
#[derive(Debug)]
pub(super) struct InputTexts<'a> {
    tools: Option<&'a str>,
    tool_choice: Option<&'a str>,
    chat_template_kwargs: Option<&'a str>,
    reasoning_effort: Option<&'a str>,
    documents: Option<&'a str>,
    model: Option<&'a str>,
}

/// The parsed inputs.
#[derive(Debug)]
pub(super) struct PromptInputs {
    /// Equal for inputs with the same meaning, and only for those.
    pub(super) key: Fingerprint,
    /// The model as the request names it.
    pub(super) model: Option<Value>,
    pub(super) request: RequestInputs,
    /// A JSON object of the request's own members.
    text: Arc<str>,
    /// The model as text of the request.
    model_text: Option<String>,
    /// The text without secrets, computed on first use.
    stored: OnceLock<Arc<str>>,
    /// The inputs as the template reads them, computed on first use.
    rendered: OnceLock<renderer::RenderInputs>,
}

/// With any of these members, vLLM ignores the ids of a request or uses another prompt.
const NEEDING_MESSAGES: [&str; 6] = [
    "echo",
    "continue_final_message",
    "truncate_prompt_tokens",
    "chat_template",
    "add_special_tokens",
    "prompt_embeds",
];

impl<'a> PromptRequest<'a> {
    /// Reads a request. Returns `None` if no server would accept the form of its messages.
    pub(super) fn of(outline: &ChatOutline<'a>) -> Option<Self> {
        let ChatOutline { object, messages } = outline;
        let messages = messages.clone().filter(|messages| !messages.is_empty())?;
        let no_generation_prompt = object.get_as("add_generation_prompt") == Some(false);
        let needs_messages = NEEDING_MESSAGES
            .into_iter()
            .find(|key| object.asks_for(key))
            .or(no_generation_prompt.then_some("add_generation_prompt"));
        Some(Self { messages, inputs: InputTexts::of(object), needs_messages })
    }

    #[cfg(test)]
    pub(super) fn read(body: &'a str) -> Option<Self> {
        Self::of(&ChatOutline::scan(body).ok()?)
    }
}

impl<'a> InputTexts<'a> {
    pub(super) fn of(object: &Object<'a>) -> Self {
        Self {
            tools: object.get("tools"),
            tool_choice: object.get("tool_choice"),
            chat_template_kwargs: object.get("chat_template_kwargs"),
            reasoning_effort: object.get("reasoning_effort"),
            documents: object.get("documents"),
            model: object.get("model"),
        }
    }

    /// Returns a fingerprint of the texts. Different spellings of the same inputs have different fingerprints.
    pub(super) fn fingerprint(&self) -> Fingerprint {
        let of = |text: Option<&str>| text.map_or(Fingerprint::NONE, Fingerprint::of);
        self.members().into_iter().fold(Fingerprint::NONE, |all, (_, text)| all.then(of(text)))
    }

    fn text(&self) -> Arc<str> {
        let given =
            self.members().into_iter().filter_map(|(name, text)| Some(format!("\"{name}\":{}", text?)));
        format!("{{{}}}", given.collect::<Vec<_>>().join(",")).into()
    }

    fn members(&self) -> [(&'static str, Option<&'a str>); 6] {
        [
            ("model", self.model),
            ("tools", self.tools),
            ("tool_choice", self.tool_choice),
            ("chat_template_kwargs", self.chat_template_kwargs),
            ("reasoning_effort", self.reasoning_effort),
            ("documents", self.documents),
        ]
    }

    pub(super) fn read(&self) -> PromptInputs {
        let value = |text: Option<&str>| -> Option<Value> {
            serde_json::from_str(text?).ok().filter(|value: &Value| !value.is_null())
        };
        let request = RequestInputs {
            tools: value(self.tools),
            tool_choice: value(self.tool_choice).filter(|choice| choice == "none"),
            chat_template_kwargs: value(self.chat_template_kwargs),
            reasoning_effort: value(self.reasoning_effort),
            documents: value(self.documents),
        };
        // `tool_choice` affects the rendering only if it is `none`. The model's name distinguishes adapters, because
        // each adapter is its own policy.
        let model = value(self.model);
        let parts = [
            request.tools.clone(),
            request.tool_choice.clone(),
            request.chat_template_kwargs.clone(),
            request.reasoning_effort.clone(),
            request.documents.clone(),
            model.clone(),
        ];
        let key = meaning_of(parts.into_iter().map(Option::unwrap_or_default).collect());
        PromptInputs {
            key,
            model,
            request,
            text: self.text(),
            model_text: self.model.map(str::to_owned),
            stored: OnceLock::new(),
            rendered: OnceLock::new(),
        }
    }
}

impl PromptInputs {
    /// Returns a JSON object of the request's own members without secrets. Some clients send their key as the model.
    pub(super) fn stored(&self, redaction: &Redaction) -> Arc<str> {
        let Some(model) = &self.model_text else { return Arc::clone(&self.text) };
        let stored = self.stored.get_or_init(|| match redaction.redacted(model) {
            Cow::Borrowed(_) => Arc::clone(&self.text),
            // The model is the first member, so the first occurrence is the model.
            Cow::Owned(redacted) => self.text.replacen(model, &redacted, 1).into(),
        });
        Arc::clone(stored)
    }

    /// Returns the inputs as the template reads them.
    pub(super) fn rendered(&self, renderer: &Renderer) -> Result<renderer::RenderInputs, RenderError> {
        if let Some(rendered) = self.rendered.get() {
            return Ok(rendered.clone());
        }
        let rendered = renderer.inputs(&self.request)?;
        // Cache only the form for local files. A server takes the JSON, which is stored already.
        Ok(if renderer.asks() { rendered } else { self.rendered.get_or_init(|| rendered).clone() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn key(more: Value) -> Fingerprint {
        let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        PromptRequest::read(&body.to_string()).unwrap().inputs.read().key
    }

    #[test]
    fn what_templates_see_is_told_apart() {
        let plain = key(json!({}));
        assert_eq!(plain, key(json!({"temperature": 1, "tool_choice": "auto", "tools": null})));
        for other in [
            json!({"tools": [{"type": "function", "function": {"name": "f"}}]}),
            json!({"tool_choice": "none"}),
            json!({"chat_template_kwargs": {"enable_thinking": false}}),
            json!({"reasoning_effort": "low"}),
            json!({"model": "adapter"}),
        ] {
            assert_ne!(plain, key(other.clone()), "{other}");
        }
    }

    #[test]
    fn a_key_in_the_place_of_the_model_is_not_stored() {
        let stored = |model: &str| {
            let body = format!(r#"{{"tools":[],"model":"{model}","messages":[{{"role":"user"}}]}}"#);
            PromptRequest::read(&body).unwrap().inputs.read().stored(&Redaction::default())
        };
        assert_eq!(&*stored("m"), r#"{"model":"m","tools":[]}"#);
        assert_eq!(&*stored(&format!("sk-{:064}", 7)), r#"{"model":"[redacted]","tools":[]}"#);
    }

    #[test]
    fn what_vllm_renders_whatever_it_is_given_is_known() {
        let needs = |more: &str| {
            PromptRequest::read(&format!(r#"{{{more}"messages":[{{"role":"user"}}]}}"#))
                .unwrap()
                .needs_messages
        };
        assert_eq!(needs(""), None);
        assert_eq!(needs(r#""echo":false,"add_generation_prompt":true,"#), None);
        assert_eq!(needs(r#""echo":true,"#), Some("echo"));
        assert_eq!(needs(r#""add_generation_prompt":false,"#), Some("add_generation_prompt"));
        assert_eq!(needs(r#""truncate_prompt_tokens":5,"#), Some("truncate_prompt_tokens"));
    }

    #[test]
    fn requests_without_messages_are_none() {
        for body in ["", "{}", r#"{"messages":"hi"}"#, r#"{"messages":[]}"#, r#"{"messages":[{]}"#] {
            assert!(PromptRequest::read(body).is_none(), "{body}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in r#"(\{"messages":\[)?.{0,40}"#) {
            let _ = PromptRequest::read(&text);
        }
    }

    #[test]
    fn fuzz_prompt_request() {
        rolltap_testing::fuzz!("prompt_request", |text| {
            let Ok(text) = std::str::from_utf8(text) else { return };
            if let Some(request) = PromptRequest::read(text) {
                drop(request.inputs.read().stored(&Redaction::default()));
            }
        });
    }
}
