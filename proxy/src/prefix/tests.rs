//! The exact prefix on the small model directory of the renderer's tests, and on templates in the style of well-known
//! models.

mod audit;
mod memory;
mod plan;
mod splice;
mod tail;
mod templates;

use std::sync::Arc;

use rolltap_rollout::call::{Call, CallStatus, Choice};
use rolltap_rollout::ids::TrialId;
use rolltap_rollout::token::TokenId;
use rolltap_rollout::token_list::TokenList;
use serde_json::{Value, json};

use super::Ready;
use super::memory::{Looked, Maker, Memory, PendingAnswer, Predecessor, read_answers};
use super::message::StoredMessage;
use super::node::Node;
use super::request::PromptRequest;
use crate::recorder::{CallStart, Recorder};
use crate::render::renderer::Renderer;
use crate::render::tests::{by_template, fixture};
use crate::render::{LocalRenderer, RenderSettings, RequestInputs};

/// The end token of the fixture.
const END: &str = "<|im_end|>";

/// The sample of a server.
#[derive(Clone, Debug, Default)]
struct Sampled {
    ids: Vec<TokenId>,
    /// The message that the server's parsers made of the sample.
    message: Value,
    stop_reason: Option<Value>,
}

/// A template and a tokenizer, the same for the proxy and the server.
struct Model(Ready);

fn local(renderer: LocalRenderer) -> Renderer {
    Renderer::Local(Box::new(renderer))
}

impl Model {
    fn fixture() -> Self {
        Self(Ready::of(local(fixture())))
    }

    fn by(template: &str) -> Self {
        Self(Ready::of(local(by_template(template, RenderSettings::default()).unwrap())))
    }

    fn text(&self, messages: &[Value], inputs: &RequestInputs) -> String {
        let renderer = &self.0.renderer;
        let messages: Vec<_> = messages.iter().map(|message| renderer.message(message).unwrap()).collect();
        renderer.render(&messages, &renderer.inputs(inputs).unwrap(), true).unwrap().text().to_owned()
    }

    fn encode(&self, text: &str) -> Vec<TokenId> {
        self.0.renderer.encode(text).unwrap()
    }

    /// Returns the ids of a text letter by letter. A policy may sample such ids, but no tokenizer produces them.
    /// Special tokens stay whole.
    fn letters(&self, text: &str) -> Vec<TokenId> {
        let mut ids = Vec::new();
        let mut rest = text;
        while let Some(letter) = rest.chars().next() {
            let token = self.0.renderer.token_at_start(rest).unwrap();
            let length = token.map_or(letter.len_utf8(), |token| self.decode(&[token]).len());
            let (piece, after) = rest.split_at(length);
            ids.extend(self.encode(piece));
            rest = after;
        }
        ids
    }

    fn decode(&self, ids: &[TokenId]) -> String {
        self.0.renderer.decode(ids).unwrap()
    }

    /// Returns a plain answer that ends with the end token.
    fn plain_answer(&self, content: &str) -> Sampled {
        self.samples(&format!("{content}{END}"), json!({"role": "assistant", "content": content}))
    }

    fn samples(&self, text: &str, message: Value) -> Sampled {
        Sampled { ids: self.letters(text), message, stop_reason: None }
    }

    /// Returns the only answer of a request whose prompt the server rendered.
    fn node(&self, body: &Value, sampled: Sampled) -> Arc<Node> {
        let text = body.to_string();
        let request = PromptRequest::read(&text).unwrap();
        let memory = Memory::default();
        let Looked { conversation, inputs, .. } = memory.find(&request).unwrap();
        let prompt = self.encode(&self.text(body["messages"].as_array().unwrap(), &inputs.request));
        let seed = PendingAnswer { conversation, inputs, maker: Maker::Server };
        let (call, answers) = answered(&prompt, vec![sampled]);
        memory.answered(&seed, &call, &read_answers(answers)).remove(0)
    }
}

/// Returns a finished call and the messages of its choices.
fn answered(prompt: &[TokenId], sampled: Vec<Sampled>) -> (Arc<Call>, Vec<(u32, Option<String>)>) {
    let recorder = Recorder::begin(CallStart::of_test());
    let mut call = recorder.finish(CallStatus::Complete, None).remove(0);
    call.prompt_token_ids = prompt.iter().copied().collect();
    let mut answers = Vec::new();
    for (index, Sampled { ids, message, stop_reason }) in (0..).zip(sampled) {
        call.choices.push(Choice { index, token_ids: ids, stop_reason, ..Choice::default() });
        answers.push((index, Some(message.to_string())));
    }
    (Arc::new(call), answers)
}

fn ids_of(list: &TokenList) -> Vec<TokenId> {
    list.iter().copied().collect()
}

fn messages(texts: &[Value]) -> Vec<Arc<StoredMessage>> {
    texts.iter().map(|text| Arc::new(StoredMessage::of_answer(text.to_string()))).collect()
}

fn system(content: &str) -> Value {
    json!({"role": "system", "content": content})
}

fn user(content: &str) -> Value {
    json!({"role": "user", "content": content})
}

fn assistant(content: &str) -> Value {
    json!({"role": "assistant", "content": content})
}

fn tool(content: &str) -> Value {
    json!({"role": "tool", "content": content, "tool_call_id": "1"})
}

/// Returns an answer that calls the tool `f` once for each of these arguments.
fn calling(arguments: &[&str]) -> Value {
    let call = |arguments: &&str| json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}});
    json!({"role": "assistant", "content": null, "tool_calls": arguments.iter().map(call).collect::<Vec<_>>()})
}

fn chat(messages: &[Value]) -> Value {
    json!({"model": "m", "messages": messages})
}

/// Returns the predecessor of a request in one word: a cause, or `continues`.
fn word(found: &Predecessor) -> String {
    match found {
        Predecessor::New(cause) | Predecessor::Otherwise { cause, .. } => cause.to_string(),
        Predecessor::Continues { .. } => "continues".to_owned(),
    }
}
