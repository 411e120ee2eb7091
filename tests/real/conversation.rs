//! An agent that sends its whole conversation back with each call, in any dialect.

mod chat;
mod gemini;
mod messages;
mod responses;

use rolltap_proxy::api::TrialOpened;
use serde_json::{Map, Value, json};

use crate::harness::Stage;

/// The agent's wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Chat,
    Messages,
    Responses,
    Gemini,
}

impl Wire {
    pub(crate) const ALL: [Self; 4] = [Self::Chat, Self::Messages, Self::Responses, Self::Gemini];
}

/// The part of an answer that the agent sends back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Echo {
    /// The whole answer.
    Whole,
    /// The answer without its reasoning.
    NoReasoning,
}

/// The way in which the agent calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    pub(crate) wire: Wire,
    pub(crate) stream: bool,
    pub(crate) echo: Echo,
    pub(crate) tools: bool,
}

/// A tool call that the model requested.
#[derive(Clone, Debug)]
pub(crate) struct ToolCall {
    pub(crate) id: String,
    pub(crate) name: String,
}

/// The answer as the agent read it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    /// The answer as the agent sends it back, in the dialect's own form.
    pub(crate) turn: Vec<Value>,
    pub(crate) reasoning: String,
    pub(crate) calls: Vec<ToolCall>,
}

#[derive(Clone)]
pub(crate) struct Conversation<'a> {
    stage: &'a Stage,
    trial: TrialOpened,
    model: &'static str,
    manner: Manner,
    pub(crate) system: String,
    /// The turns so far, in the dialect's own form.
    pub(crate) history: Vec<Value>,
}

impl<'a> Conversation<'a> {
    pub(crate) fn new(
        stage: &'a Stage,
        trial: &TrialOpened,
        model: &'static str,
        manner: Manner,
        system: &str,
    ) -> Self {
        Self { stage, trial: trial.clone(), model, manner, system: system.to_owned(), history: Vec::new() }
    }

    pub(crate) fn add_user_message(&mut self, text: &str) {
        self.history.push(match self.manner.wire {
            Wire::Chat | Wire::Messages => json!({"role": "user", "content": text}),
            Wire::Responses => json!({"type": "message", "role": "user", "content": text}),
            Wire::Gemini => json!({"role": "user", "parts": [{"text": text}]}),
        });
    }

    /// Appends the results of the tool calls.
    pub(crate) fn results(&mut self, calls: &[ToolCall], text: &str) {
        let result = |call| match self.manner.wire {
            Wire::Chat => chat::result(call, text),
            Wire::Messages => messages::result(call, text),
            Wire::Responses => responses::result(call, text),
            Wire::Gemini => gemini::result(call, text),
        };
        let results: Vec<Value> = calls.iter().map(result).collect();
        match self.manner.wire {
            Wire::Chat | Wire::Responses => self.history.extend(results),
            Wire::Messages => self.history.push(json!({"role": "user", "content": results})),
            Wire::Gemini => self.history.push(json!({"role": "user", "parts": results})),
        }
    }

    /// Returns the next request.
    pub(crate) fn request(&self, extra: &Value) -> Value {
        let (system, turns) = (self.system.as_str(), &self.history[..]);
        let mut body = match self.manner.wire {
            Wire::Chat => chat::request(system, turns),
            Wire::Messages => messages::request(system, turns),
            Wire::Responses => responses::request(system, turns),
            Wire::Gemini => gemini::request(system, turns),
        };
        let members = body.as_object_mut().unwrap();
        if self.manner.wire != Wire::Gemini {
            members.insert("model".to_owned(), json!(self.model));
            members.insert("stream".to_owned(), json!(self.manner.stream));
        }
        if self.manner.tools {
            members.insert("tools".to_owned(), self.tools());
        }
        for (name, value) in extra.as_object().unwrap() {
            self.insert(members, name, value.clone());
        }
        body
    }

    /// Sends the next request and appends the answer to the history.
    pub(crate) async fn ask(&mut self, extra: &Value) -> Answer {
        let answer = self.try_out(&self.trial, extra).await;
        self.history.extend(answer.turn.clone());
        answer
    }

    /// Sends the next request as this or another trial, without a change to the history.
    pub(crate) async fn try_out(&self, trial: &TrialOpened, extra: &Value) -> Answer {
        let body = self.request(extra);
        let (base, path) = self.endpoint(trial);
        let response = self.stage.post(&base, &path, &body).await;
        let (status, text) = (response.status(), response.text().await.unwrap());
        assert!(status.is_success(), "{status}: {text}\n{body}");
        let said =
            if self.manner.stream { events(&text) } else { vec![serde_json::from_str(&text).unwrap()] };
        let keep_reasoning = self.manner.echo == Echo::Whole;
        match (self.manner.wire, self.manner.stream) {
            (Wire::Chat, false) => chat::whole(&said[0], keep_reasoning),
            (Wire::Chat, true) => chat::streamed(&said, keep_reasoning),
            (Wire::Messages, false) => messages::whole(&said[0], keep_reasoning),
            (Wire::Messages, true) => messages::streamed(&said, keep_reasoning),
            (Wire::Responses, false) => responses::whole(&said[0], keep_reasoning),
            (Wire::Responses, true) => responses::streamed(&said, keep_reasoning),
            (Wire::Gemini, _) => gemini::answer(&said, keep_reasoning),
        }
    }

    fn endpoint(&self, trial: &TrialOpened) -> (String, String) {
        let urls = &trial.base_urls;
        match self.manner.wire {
            Wire::Chat => (urls.openai.clone(), "/chat/completions".to_owned()),
            Wire::Messages => (urls.anthropic.clone(), "/v1/messages".to_owned()),
            Wire::Responses => (urls.openai.clone(), "/responses".to_owned()),
            Wire::Gemini => (urls.gemini.clone(), gemini::path(self.model, self.manner.stream)),
        }
    }

    /// Inserts a key of chat completions in the form of this dialect, if the dialect has one.
    fn insert(&self, body: &mut Map<String, Value>, name: &str, value: Value) {
        match (self.manner.wire, name) {
            (Wire::Responses, "max_tokens") => body.insert("max_output_tokens".to_owned(), value),
            (Wire::Gemini, "max_tokens") => gemini::config(body).insert("maxOutputTokens".to_owned(), value),
            (Wire::Gemini, "temperature") => gemini::config(body).insert(name.to_owned(), value),
            _ => body.insert(name.to_owned(), value),
        };
    }

    fn tools(&self) -> Value {
        let parameters =
            json!({"type": "object", "properties": {"at": {"type": "string"}, "n": {"type": "integer"}}});
        let (name, description) = ("look", "Looks somewhere.");
        match self.manner.wire {
            Wire::Chat => json!([{"type": "function",
                "function": {"name": name, "description": description, "parameters": parameters}}]),
            Wire::Messages => json!([{"name": name, "description": description, "input_schema": parameters}]),
            Wire::Responses => json!([{"type": "function", "name": name, "description": description,
                "parameters": parameters, "strict": false}]),
            Wire::Gemini => json!([{"functionDeclarations": [{"name": name, "description": description,
                "parametersJsonSchema": parameters}]}]),
        }
    }
}

/// Returns the events of a stream that contain JSON.
fn events(text: &str) -> Vec<Value> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data:"));
    data.filter_map(|json| serde_json::from_str(json.trim()).ok()).collect()
}

/// Returns a text, or an empty one if it is absent.
fn text(of: &Value) -> &str {
    of.as_str().unwrap_or_default()
}
