//! Translates upstream's answer to Gemini's form, whole or as a stream.

use std::collections::BTreeMap;

use super::answer::{AnswerContent, Candidate, CandidateForm, GenerateContentResponse};
use super::error;
use super::generation::Wanted;
use crate::dialect::adapter::Translator;
use crate::dialect::chat::completion::{ChatCompletion, Usage};
use crate::dialect::route::Delivery;
use crate::dialect::upstream_error::UpstreamError;
use crate::wire::sse::write_event;

/// Translates the answer of one call.
#[derive(Debug)]
pub(crate) struct GeminiAdapter {
    delivery: Delivery,
    /// The model name of the request.
    model: String,
    wanted: Wanted,
    id: String,
    candidates: BTreeMap<u32, Candidate>,
    usage: Option<Usage>,
    state: GeminiStreamState,
}

/// The progress of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GeminiStreamState {
    Unbegun,
    Begun,
    Ended,
}

impl GeminiAdapter {
    pub(super) fn new(delivery: Delivery, model: &str, wanted: Wanted) -> Self {
        Self {
            delivery,
            model: model.to_owned(),
            wanted,
            id: String::new(),
            candidates: BTreeMap::new(),
            usage: None,
            state: GeminiStreamState::Unbegun,
        }
    }

    /// Adds an answer or chunk, and returns the parts that are complete. Chunks with only ids produce none.
    fn said<'a>(&mut self, spoken: &'a ChatCompletion<'_>) -> Vec<CandidateForm<'a>> {
        if self.id.is_empty() {
            self.id = spoken.id.as_ref().to_owned();
        }
        // Only the last chunk of a stream has the usage.
        self.usage = spoken.usage.or(self.usage);
        let mut forms = Vec::with_capacity(spoken.choices.len());
        for choice in &spoken.choices {
            let candidate = self.candidates.entry(choice.index).or_default();
            let mut parts = candidate.say(&choice.message, self.wanted.thoughts);
            if let Some(reason) = &choice.finish_reason {
                parts.extend(candidate.finish(reason));
            }
            if !parts.is_empty() {
                // The finish reason comes with the closing element, after the usage is known.
                let content = AnswerContent { parts, role: "model" };
                forms.push(CandidateForm {
                    content,
                    finish_reason: None,
                    finish_message: None,
                    index: choice.index,
                });
            }
        }
        forms
    }

    /// Ends all candidates. The argument has their parts that were not sent yet.
    fn closed<'a>(&mut self, said: Vec<CandidateForm<'a>>) -> Vec<CandidateForm<'a>> {
        let mut parts: BTreeMap<_, _> =
            said.into_iter().map(|form| (form.index, form.content.parts)).collect();
        let candidates = std::mem::take(&mut self.candidates).into_iter();
        candidates
            .map(|(index, candidate)| candidate.close(index, parts.remove(&index).unwrap_or_default()))
            .collect()
    }

    fn form(&self, candidates: Vec<CandidateForm<'_>>, usage: Option<Usage>) -> Vec<u8> {
        let form = GenerateContentResponse {
            candidates,
            usage_metadata: usage.map(Into::into),
            model_version: &self.model,
            response_id: &self.id,
        };
        serde_json::to_vec(&form).unwrap_or_default()
    }

    /// Writes one element of the stream, as an item of the array or as an event.
    fn write(&mut self, json: &[u8], out: &mut Vec<u8>) {
        if self.delivery == Delivery::Array {
            out.extend_from_slice(if self.state == GeminiStreamState::Unbegun { b"[" } else { b",\r\n" });
            out.extend_from_slice(json);
        } else {
            write_event(json, out);
        }
        self.state = GeminiStreamState::Begun;
    }

    /// Writes the last element.
    fn write_last(&mut self, json: &[u8], out: &mut Vec<u8>) {
        self.write(json, out);
        if self.delivery == Delivery::Array {
            out.extend_from_slice(b"\n]\n");
        }
        // Further text would make the body invalid: the array is closed.
        self.state = GeminiStreamState::Ended;
    }
}

impl Translator for GeminiAdapter {
    fn stream_content_type(&self) -> &'static str {
        match self.delivery {
            Delivery::Whole | Delivery::Array => "application/json; charset=UTF-8",
            Delivery::Events => "text/event-stream",
        }
    }

    fn whole(&mut self, answer: &ChatCompletion<'_>) -> Vec<u8> {
        let said = self.said(answer);
        let candidates = self.closed(said);
        self.form(candidates, self.usage)
    }

    fn chunk(&mut self, chunk: &ChatCompletion<'_>, out: &mut Vec<u8>) {
        let said = self.said(chunk);
        if said.is_empty() || self.state == GeminiStreamState::Ended {
            return;
        }
        let json = self.form(said, None);
        self.write(&json, out);
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        if self.state == GeminiStreamState::Ended {
            return;
        }
        let candidates = self.closed(Vec::new());
        let json = self.form(candidates, self.usage);
        self.write_last(&json, out);
    }

    fn error(&mut self, error: &UpstreamError, out: &mut Vec<u8>) {
        if self.state != GeminiStreamState::Ended {
            self.write_last(&error::body(error), out);
        }
    }

    /// Returns a blank line: Gemini's Python clients parse a comment as JSON, and those in JavaScript lose the event
    /// after a comment.
    fn keep_alive(&self) -> &'static [u8] {
        b"\n"
    }
}

#[cfg(test)]
mod tests;
