//! Errors before and during the rendering of a conversation.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// The tokenizer or the template could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file of the model directory, or the named template, cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file does not have the expected content.
    #[error("{path} is not as expected: {reason}")]
    Content {
        /// The file.
        path: PathBuf,
        /// The defect, and its position.
        reason: String,
    },
    /// The model directory has no chat template.
    #[error(
        "{0} has no chat template (chat_template.jinja, chat_template in tokenizer_config.json, \
         chat_template.json): name the one that the server was started with (--chat-template)"
    )]
    NoTemplate(PathBuf),
    /// A template does not compile.
    #[error("the chat template from {origin} cannot be used: {reason}")]
    Template {
        /// The file that contains the template.
        origin: String,
        /// The template engine's message, with the line.
        reason: String,
    },
    /// The templates for requests with and without tools read content in different forms. The form of a message then
    /// depends on the tools of its request.
    #[error(
        "the templates from {0} for requests with and without tools read content in different forms: name the server's \
         --chat-template-content-format"
    )]
    FormatsDiffer(String),
}

/// A conversation was not rendered, or a text was not tokenised. The call goes upstream unchanged: nothing is guessed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RenderError {
    /// The template itself refused (`raise_exception`). Holds the template's own message.
    #[error("the chat template refuses: {0}")]
    Raised(String),
    /// The template failed. Holds the engine's message.
    #[error("the chat template fails: {0}")]
    Template(String),
    /// vLLM would refuse the input, or would read it in a way that rolltap does not implement.
    #[error("{what}: {why}")]
    Unreadable { what: &'static str, why: &'static str },
    /// Images, audio, video: vLLM inserts placeholders that depend on the model's code.
    #[error("content of type {0:?} is no text")]
    Media(String),
    /// The tokenizer failed.
    #[error("the tokenizer fails: {0}")]
    Tokenizer(String),
    /// The server that was asked instead of a tokenizer did not answer as expected.
    #[error("{path} of the upstream: {reason}")]
    Upstream { path: String, reason: String },
    /// The server does not serve such requests, or rejects this one. The next answer would be the same.
    #[error("{path} of the upstream: {status} {reason}")]
    Refused { path: String, status: u16, reason: String },
    /// The answers took too long.
    #[error("the upstream's answers were not there within {0:?}")]
    Late(Duration),
}

impl RenderError {
    pub(super) fn unreadable(what: &'static str, why: &'static str) -> Self {
        Self::Unreadable { what, why }
    }
}
