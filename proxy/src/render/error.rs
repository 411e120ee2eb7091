//! What can go wrong before and while a conversation is rendered.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// The tokenizer and the template could not be made ready.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file of the model directory, or the named template, cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file does not hold what its name promises.
    #[error("{path} is not as expected: {reason}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and where.
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
        /// The file that it stands in.
        origin: String,
        /// The template engine's message, with the line.
        reason: String,
    },
    /// The template for requests with tools wants content in another form than the one for requests without, so that
    /// a message alone does not tell its form.
    #[error(
        "the templates from {0} for requests with and without tools read content in different forms: name the server's \
         --chat-template-content-format"
    )]
    FormatsDiffer(String),
}

/// A conversation was not rendered, or a text not tokenised. The call goes upstream unchanged: nothing is guessed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RenderError {
    /// The template itself refused (`raise_exception`); in its own words.
    #[error("the chat template refuses: {0}")]
    Raised(String),
    /// The template failed, as the engine tells it.
    #[error("the chat template fails: {0}")]
    Template(String),
    /// vLLM would refuse this, or read it in a way that is not followed here.
    #[error("{what}: {why}")]
    Unreadable { what: &'static str, why: &'static str },
    /// Images, audio, video: vLLM puts placeholders that depend on the model's code.
    #[error("content of type {0:?} is no text")]
    Media(String),
    /// The tokenizer failed.
    #[error("the tokenizer fails: {0}")]
    Tokenizer(String),
    /// The server that was asked in place of a tokenizer did not answer as it should.
    #[error("{path} of the upstream: {reason}")]
    Upstream { path: String, reason: String },
    /// It does not serve such questions, or not this one.
    #[error("{path} of the upstream: {status} {reason}")]
    Refused { path: String, status: u16, reason: String },
    /// It takes too long.
    #[error("the upstream's answers were not there within {0:?}")]
    Late(Duration),
}

impl RenderError {
    pub(super) fn unreadable(what: &'static str, why: &'static str) -> Self {
        Self::Unreadable { what, why }
    }
}
