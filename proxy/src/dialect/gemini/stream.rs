//! What upstream says, handed to the agent in Gemini's form as it comes.

use std::collections::BTreeMap;

use super::answer::{AnswerContent, Candidate, CandidateForm, GenerateContentResponse};
use super::error;
use super::generation::Wanted;
use crate::dialect::adapter::Translator;
use crate::dialect::chat::completion::{ChatCompletion, Usage};
use crate::dialect::route::Delivery;
use crate::dialect::upstream_error::UpstreamError;
use crate::wire::sse::write_event;

/// The way back of one call.
#[derive(Debug)]
pub(crate) struct GeminiAdapter {
    delivery: Delivery,
    /// As the agent named it.
    model: String,
    wanted: Wanted,
    id: String,
    candidates: BTreeMap<u32, Candidate>,
    usage: Option<Usage>,
    state: GeminiStreamState,
}

/// How far the stream is.
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

    /// Takes what was said, and gives what of it can be handed on: nothing for chunks that carry only ids.
    fn said<'a>(&mut self, spoken: &'a ChatCompletion<'_>) -> Vec<CandidateForm<'a>> {
        if self.id.is_empty() {
            self.id = spoken.id.as_ref().to_owned();
        }
        self.usage = spoken.usage.or(self.usage);
        let mut forms = Vec::with_capacity(spoken.choices.len());
        for choice in &spoken.choices {
            let candidate = self.candidates.entry(choice.index).or_default();
            let mut parts = candidate.say(&choice.message, self.wanted.thoughts);
            if let Some(reason) = &choice.finish_reason {
                parts.extend(candidate.finish(reason));
            }
            if !parts.is_empty() {
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

    /// All candidates' ends; `said` are their parts that were not handed on yet.
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

    /// Writes one element of the stream.
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

    /// A blank line: Gemini's clients in Python take a comment for JSON, those in JavaScript lose the event behind it.
    fn keep_alive(&self) -> &'static [u8] {
        b"\n"
    }
}

#[cfg(test)]
mod tests;
