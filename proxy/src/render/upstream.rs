//! Renders through vLLM if no tokenizer is available: `/tokenize` for a conversation and for a text, `/detokenize` for
//! ids. vLLM returns ids where the local renderer returns text, and each question is a round trip.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use rolltap_rollout::ids::TrialId;
use rolltap_rollout::token::TokenId;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json, json};

use super::{RenderError, RequestInputs};
use crate::upstream::{Pool, ReadLimits};

/// The limits of an answer. The ids of a long prompt are some megabytes of JSON.
const LIMITS: ReadLimits = ReadLimits { bytes: 64 << 20, silence: PATIENCE };
/// The timeout of one question. A rendering that takes longer saves nothing.
const PATIENCE: Duration = Duration::from_secs(30);

/// Renders through the replica that gets the trial's calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UpstreamRenderer<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) trial: &'a TrialId,
    /// The server's name of the model.
    pub(crate) model: &'a str,
}

#[derive(Deserialize)]
struct Tokenized {
    tokens: Vec<TokenId>,
}

#[derive(Deserialize)]
struct Detokenized {
    prompt: String,
}

impl UpstreamRenderer<'_> {
    /// Returns the ids of a conversation, as the chat endpoint would render it.
    pub(crate) async fn render(
        &self,
        messages: &[Json],
        inputs: &RequestInputs,
        add_generation_prompt: bool,
    ) -> Result<Vec<TokenId>, RenderError> {
        let mut body = json!({
            "model": self.model,
            "messages": messages.iter().map(with_reasoning).collect::<Vec<_>>(),
            "add_generation_prompt": add_generation_prompt,
        });
        if let Some(members) = body.as_object_mut() {
            members.extend(inputs.tools.clone().map(|tools| ("tools".to_owned(), tools)));
            members.insert("chat_template_kwargs".to_owned(), Json::Object(template_arguments(inputs)?));
        }
        let tokenized: Tokenized = self.ask("/tokenize", &body).await?;
        Ok(tokenized.tokens)
    }

    /// Returns the ids of a text. Turns off the BOS that the server would add by default, and recognises special tokens
    /// in the text.
    pub(crate) async fn encode(&self, text: &str) -> Result<Vec<TokenId>, RenderError> {
        let body = json!({"model": self.model, "prompt": text, "add_special_tokens": false});
        let tokenized: Tokenized = self.ask("/tokenize", &body).await?;
        Ok(tokenized.tokens)
    }

    /// Returns the text of ids.
    pub(crate) async fn decode(&self, ids: &[TokenId]) -> Result<String, RenderError> {
        let detokenized: Detokenized =
            self.ask("/detokenize", &json!({"model": self.model, "tokens": ids})).await?;
        Ok(detokenized.prompt)
    }

    async fn ask<T: DeserializeOwned>(&self, path: &str, body: &Json) -> Result<T, RenderError> {
        let bytes = tokio::time::timeout(PATIENCE, self.post(path, body)).await;
        let bytes = bytes.map_err(|_| failed(path, format!("no answer within {PATIENCE:?}")))??;
        serde_json::from_slice(&bytes).map_err(|error| failed(path, error.to_string()))
    }

    async fn post(&self, path: &str, body: &Json) -> Result<Bytes, RenderError> {
        let headers =
            HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        let body = serde_json::to_vec(body).map_err(|error| failed(path, error.to_string()))?;
        let sent = self.pool.send(self.trial, Method::POST, path, &headers, None, body.into());
        let (head, body) = sent.await.map_err(|error| failed(path, error.to_string()))?.into_parts();
        let bytes = body.whole(LIMITS).await.map_err(|error| failed(path, error.to_string()))?;
        if !head.status.is_success() {
            return Err(not_answered(path, head.status, String::from_utf8_lossy(&bytes).into_owned()));
        }
        Ok(bytes)
    }
}

/// Adds reasoning under its newer name. `/tokenize` does not read the older name, but the chat endpoint does.
fn with_reasoning(message: &Json) -> Cow<'_, Json> {
    let said = |key: &str| message.get(key).filter(|value| !value.is_null());
    match (said("reasoning"), said("reasoning_content")) {
        (None, Some(reasoning)) => {
            let mut message = message.clone();
            if let (reasoning, Some(members)) = (reasoning.clone(), message.as_object_mut()) {
                members.insert("reasoning".to_owned(), reasoning);
            }
            Cow::Owned(message)
        }
        _ => Cow::Borrowed(message),
    }
}

/// Returns the template arguments. `/tokenize` knows neither effort nor documents. The chat endpoint turns both into
/// template arguments (`build_chat_params`).
fn template_arguments(inputs: &RequestInputs) -> Result<Map<String, Json>, RenderError> {
    let mut arguments = match inputs.chat_template_kwargs.clone() {
        None | Some(Json::Null) => Map::new(),
        Some(Json::Object(arguments)) => arguments,
        Some(_) => return Err(RenderError::unreadable("the request", "chat_template_kwargs is no object")),
    };
    if let Some(effort) = inputs.reasoning_effort.clone().filter(|effort| !effort.is_null()) {
        arguments.entry("enable_thinking").or_insert_with(|| (effort != "none").into());
        arguments.insert("reasoning_effort".to_owned(), effort);
    }
    if let Some(documents) = inputs.documents.clone().filter(|documents| !documents.is_null()) {
        arguments.insert("documents".to_owned(), documents);
    }
    Ok(arguments)
}

/// Classifies an error status: some of a server's answers will be the same the next time.
fn not_answered(path: &str, status: StatusCode, reason: String) -> RenderError {
    match status.as_u16() {
        // The server lacks the endpoint, or cannot process the request.
        status @ (400 | 404 | 405 | 501) => RenderError::Refused { path: path.to_owned(), status, reason },
        _ => failed(path, format!("{status} {reason}")),
    }
}

fn failed(path: &str, reason: String) -> RenderError {
    RenderError::Upstream { path: path.to_owned(), reason }
}
