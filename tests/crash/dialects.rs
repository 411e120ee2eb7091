//! The requests of an agent in each dialect, and the end of an answer as the agent detects it.

use serde_json::{Value, json};

use super::rng::Chance;

/// The form of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Speech {
    dialect: Dialect,
    stream: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    Chat,
    Completions,
    Responses,
    Messages,
    Gemini,
}

/// A finished turn.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) said: String,
    pub(crate) answered: String,
}

impl Speech {
    /// Returns a dialect for a whole trial. Each call is either streaming or whole.
    pub(crate) fn any(chance: &mut Chance) -> Self {
        let dialect = match chance.among(0..8) {
            0 | 1 => Dialect::Responses,
            2 => Dialect::Messages,
            3 => Dialect::Gemini,
            4 => Dialect::Completions,
            _ => Dialect::Chat,
        };
        Self { dialect, stream: false }
    }

    /// Returns plain chat with whole answers.
    pub(crate) fn chat() -> Self {
        Self { dialect: Dialect::Chat, stream: false }
    }

    pub(crate) fn streaming(self, stream: bool) -> Self {
        Self { stream, ..self }
    }

    /// Returns the path after the trial's key.
    pub(crate) fn path(self) -> &'static str {
        match self.dialect {
            Dialect::Chat => "/v1/chat/completions",
            Dialect::Completions => "/v1/completions",
            Dialect::Responses => "/v1/responses",
            Dialect::Messages => "/v1/messages",
            Dialect::Gemini if self.stream => "/v1beta/models/m:streamGenerateContent?alt=sse",
            Dialect::Gemini => "/v1beta/models/m:generateContent",
        }
    }

    pub(crate) fn body(self, turns: &[Turn], say: &str) -> Value {
        let (stream, dialect) = (self.stream, self.dialect);
        let message = |role: &str, text: &str| match dialect {
            Dialect::Gemini => json!({"role": role, "parts": [{"text": text}]}),
            _ => json!({"role": role, "content": text}),
        };
        let model = if dialect == Dialect::Gemini { "model" } else { "assistant" };
        let past =
            turns.iter().flat_map(|turn| [message("user", &turn.said), message(model, &turn.answered)]);
        let messages: Vec<_> = past.chain([message("user", say)]).collect();
        match dialect {
            Dialect::Chat => json!({"model": "m", "messages": messages, "stream": stream}),
            Dialect::Responses => json!({"model": "m", "input": messages, "stream": stream}),
            Dialect::Messages => {
                json!({"model": "m", "max_tokens": 500, "messages": messages, "stream": stream})
            }
            Dialect::Gemini => json!({"contents": messages}),
            Dialect::Completions => {
                let past: String =
                    turns.iter().map(|turn| format!("{} {} ", turn.said, turn.answered)).collect();
                json!({"model": "m", "max_tokens": 500, "prompt": past + say, "stream": stream})
            }
        }
    }

    /// Returns the text of a complete answer, or `None` if its end is missing.
    pub(crate) fn ended(self, came: &[u8]) -> Option<String> {
        let came = std::str::from_utf8(came).ok()?;
        if !self.stream {
            return whole(self.dialect, &serde_json::from_str(came).ok()?);
        }
        let whole_events = came.rfind("\n\n").map(|end| &came[..end])?;
        let data: Vec<_> = whole_events.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        let (last, texts) = match self.dialect {
            Dialect::Chat | Dialect::Completions => {
                let (last, before) = data.split_last()?;
                (*last == "[DONE]", before)
            }
            _ => (is_last(self.dialect, &serde_json::from_str(data.last()?).unwrap()), &data[..]),
        };
        let texts = texts.iter().map(|data| piece(self.dialect, &serde_json::from_str(data).unwrap()));
        last.then(|| texts.collect())
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn whole(dialect: Dialect, answer: &Value) -> Option<String> {
    text(match dialect {
        Dialect::Chat => &answer["choices"][0]["message"]["content"],
        Dialect::Completions => &answer["choices"][0]["text"],
        Dialect::Responses => &answer["output"][0]["content"][0]["text"],
        Dialect::Messages => &answer["content"][0]["text"],
        Dialect::Gemini => &answer["candidates"][0]["content"]["parts"][0]["text"],
    })
}

/// Returns whether a client of the dialect takes this event as the end of the answer.
fn is_last(dialect: Dialect, event: &Value) -> bool {
    match dialect {
        Dialect::Responses => event["type"] == "response.completed",
        Dialect::Messages => event["type"] == "message_stop",
        Dialect::Gemini => event["candidates"][0]["finishReason"].is_string(),
        Dialect::Chat | Dialect::Completions => false,
    }
}

/// Returns the text that an event adds.
fn piece(dialect: Dialect, event: &Value) -> String {
    let added = match dialect {
        Dialect::Chat => &event["choices"][0]["delta"]["content"],
        Dialect::Completions => &event["choices"][0]["text"],
        Dialect::Responses if event["type"] == "response.output_text.delta" => &event["delta"],
        Dialect::Messages => &event["delta"]["text"],
        Dialect::Gemini => &event["candidates"][0]["content"]["parts"][0]["text"],
        Dialect::Responses => &Value::Null,
    };
    text(added).unwrap_or_default()
}
