//! Translates the turns of a Gemini conversation to chat messages.

use serde_json::{Map, Value, json};

use super::fields::ObjectFields;
use super::part::{self, PartBody, Response, SignedPart};
use crate::dialect::bad_request::BadRequest;

/// The messages of the turns so far.
#[derive(Debug, Default)]
pub(super) struct ContentsReader {
    messages: Vec<Value>,
    /// The model's turn that may continue in the next content: clients store each chunk of a stream as a separate turn.
    turn: Option<ModelTurn>,
    /// The calls of the last model turn that have no response yet, with id and name.
    unanswered: Vec<(String, String)>,
    calls: usize,
}

#[derive(Debug, Default)]
struct ModelTurn {
    text: String,
    /// Reasoning from visible thoughts.
    shown: String,
    /// Reasoning from signatures. If there is any, it is complete and replaces the visible thoughts.
    sealed: String,
    calls: Vec<Value>,
}

impl ContentsReader {
    /// Translates `systemInstruction`: a turn of text, or a plain string.
    pub(super) fn system(&mut self, body: &mut ObjectFields<'_>) -> Result<(), BadRequest> {
        let place = body.place_of("systemInstruction");
        let Some(raw) = body.raw("systemInstruction") else { return Ok(()) };
        if let Ok(text) = serde_json::from_str::<String>(raw.get()) {
            self.messages.push(json!({"role": "system", "content": text}));
            return Ok(());
        }
        let mut content = ObjectFields::read(&place, raw.get())?;
        content.without_effect(&["role"]);
        let parts = content.objects("parts")?.into_iter().map(|fields| {
            let place = fields.place().to_owned();
            match part::read(fields)?.part {
                PartBody::Text(text) => Ok(json!({"type": "text", "text": text})),
                _ => Err(BadRequest::at(&place, format!("{place} is no text: a system instruction is text"))),
            }
        });
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        content.end()?;
        if !parts.is_empty() {
            self.messages.push(json!({"role": "system", "content": message_content(parts)}));
        }
        Ok(())
    }

    /// Translates one turn of `contents`.
    pub(super) fn content(&mut self, mut content: ObjectFields<'_>) -> Result<(), BadRequest> {
        let role = content.text("role")?;
        let place = content.place().to_owned();
        let parts: Vec<_> = content.objects("parts")?;
        match role.as_deref() {
            Some("model") => self.model(parts)?,
            None | Some("user" | "function" | "tool") => self.user(&place, parts)?,
            Some(other) => {
                return Err(
                    content.fault("role", format!("is {other}: a turn is of the user or of the model"))
                );
            }
        }
        content.end()
    }

    pub(super) fn into_messages(mut self) -> Vec<Value> {
        self.close_turn();
        self.messages
    }

    fn model(&mut self, parts: Vec<ObjectFields<'_>>) -> Result<(), BadRequest> {
        for fields in parts {
            let place = fields.place().to_owned();
            let SignedPart { part, reasoning } = part::read(fields)?;
            let turn = self.turn.get_or_insert_with(|| {
                // A new model turn begins, so older calls can no longer be answered.
                self.unanswered.clear();
                ModelTurn::default()
            });
            turn.sealed.extend(reasoning);
            match part {
                PartBody::Text(text) => turn.text += &text,
                PartBody::Thought(text) => turn.shown += &text,
                PartBody::Call { id, name, arguments } => {
                    // Calls without id get a number that is unique in the conversation, because chat messages refer to
                    // calls by id.
                    let id = id.unwrap_or_else(|| format!("call_{}", self.calls));
                    self.calls += 1;
                    let function = json!({"name": &name, "arguments": arguments});
                    turn.calls.push(json!({"id": &id, "type": "function", "function": function}));
                    self.unanswered.push((id, name));
                }
                PartBody::Image(_) | PartBody::Response(_) => {
                    let message = format!(
                        "{place} cannot be a part of the model: the model sends text, thoughts and function calls"
                    );
                    return Err(BadRequest::at(place, message));
                }
            }
        }
        Ok(())
    }

    fn user(&mut self, place: &str, parts: Vec<ObjectFields<'_>>) -> Result<(), BadRequest> {
        self.close_turn();
        if parts.is_empty() {
            return Err(BadRequest::at(
                place,
                format!("{place} has no parts: add a part or leave the content out"),
            ));
        }
        let mut said = Vec::new();
        let mut images = Vec::new();
        for fields in parts {
            let place = fields.place().to_owned();
            match part::read(fields)?.part {
                PartBody::Response(response) => {
                    // The order of the parts is preserved: text before a response becomes a message before it.
                    self.say(&mut said);
                    self.tool_result(&place, response, &mut images)?;
                    continue;
                }
                PartBody::Text(text) => {
                    self.say(&mut images);
                    said.push(json!({"type": "text", "text": text}));
                }
                PartBody::Image(url) => {
                    self.say(&mut images);
                    said.push(image(&url));
                }
                PartBody::Thought(_) | PartBody::Call { .. } => {
                    let message =
                        format!("{place} cannot be of the user: thoughts and function calls are the model's");
                    return Err(BadRequest::at(place, message));
                }
            }
        }
        self.say(&mut images);
        self.say(&mut said);
        Ok(())
    }

    /// Adds a user message with these parts, if there are any.
    fn say(&mut self, parts: &mut Vec<Value>) {
        if !parts.is_empty() {
            let content = message_content(std::mem::take(parts));
            self.messages.push(json!({"role": "user", "content": content}));
        }
    }

    /// Adds a tool message. Its images are collected in `images`: no chat template has a place for them between the
    /// results of one turn.
    fn tool_result(
        &mut self,
        place: &str,
        response: Response,
        images: &mut Vec<Value>,
    ) -> Result<(), BadRequest> {
        let Response { id, name, content, images: of_response } = response;
        let id = self.answered(id, &name).ok_or_else(|| {
            let message =
                format!("{place} answers no call: no functionCall of {name} before it waits for a response");
            BadRequest::at(place, message)
        })?;
        self.messages.push(json!({"role": "tool", "tool_call_id": id, "content": content}));
        images.extend(of_response.iter().map(|url| image(url)));
        Ok(())
    }

    /// Returns the id of the call that a response belongs to: the call with this id, or else the first open call of
    /// this function. Without such a call, the id of the response is used.
    fn answered(&mut self, id: Option<String>, name: &str) -> Option<String> {
        let by_id = self.unanswered.iter().position(|(call, _)| Some(call) == id.as_ref());
        let at = by_id.or_else(|| self.unanswered.iter().position(|(_, function)| function == name));
        match at {
            Some(at) => Some(self.unanswered.remove(at).0),
            None => id,
        }
    }

    fn close_turn(&mut self) {
        let Some(turn) = self.turn.take() else { return };
        // Chat templates expect `null` for a message that only has tool calls.
        let is_silent = turn.text.is_empty() && !turn.calls.is_empty();
        let content = if is_silent { Value::Null } else { turn.text.into() };
        let mut message =
            Map::from_iter([("role".to_owned(), "assistant".into()), ("content".to_owned(), content)]);
        let reasoning = if turn.sealed.is_empty() { turn.shown } else { turn.sealed };
        if !reasoning.is_empty() {
            message.insert("reasoning".to_owned(), reasoning.into());
        }
        if !turn.calls.is_empty() {
            message.insert("tool_calls".to_owned(), turn.calls.into());
        }
        self.messages.push(message.into());
    }
}

fn image(url: &str) -> Value {
    json!({"type": "image_url", "image_url": {"url": url}})
}

/// Returns a single text as plain content, because templates render a list with one text in different ways.
fn message_content(mut parts: Vec<Value>) -> Value {
    match parts.as_mut_slice() {
        [Value::Object(only)] if only.contains_key("text") => only.remove("text").unwrap_or_default(),
        _ => parts.into(),
    }
}
