//! Renders a chat request as the model reads it: the text that the chat template makes of the messages, and the ids of
//! that text. The local renderer follows vLLM's rules without asking vLLM.
//!
//! The result verifies vLLM's rendering and gives the text after an answer. No token that a trainer learns from comes
//! from this module: those ids are vLLM's own. A difference from vLLM costs a splice, but never makes a record wrong.

mod asked;
mod content;
mod error;
mod files;
mod format;
mod generation;
mod inputs;
mod json;
mod message;
mod methods;
mod python;
pub(crate) mod renderer;
mod syntax_tree;
mod template;
mod tokens;
mod tool_calls;
pub(crate) mod upstream;
mod value;

#[cfg(test)]
pub(crate) mod tests;

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use minijinja::Value;
use rolltap_rollout::token::TokenId;
use serde_json::Value as Json;

pub(crate) use asked::{AskedRenderer, Learnt};
pub use error::LoadError;
pub(crate) use error::RenderError;
use files::{Sources, TokenizerConfig};
pub(crate) use inputs::RequestInputs;
use inputs::TemplateInputs;
use message::TemplateMessage;
use template::Template;
use tokens::Tokens;

/// The sources of the tokenizer and the template. All fields but the first repeat settings of the server, because no
/// answer of the server contains them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RenderSettings {
    /// A model directory: `tokenizer.json`, `tokenizer_config.json`, `chat_template.jinja` or `.json`,
    /// `generation_config.json`.
    pub tokenizer: Option<PathBuf>,
    /// The server's `--chat-template`, a file.
    pub chat_template: Option<PathBuf>,
    /// The server's `--default-chat-template-kwargs`.
    pub chat_template_kwargs: serde_json::Map<String, Json>,
    /// The server's `--chat-template-content-format`. If `None`, the format is detected from the template, as the
    /// server does.
    pub content_format: Option<ContentFormat>,
    /// The server's `--exclude-tools-when-tool-choice-none`.
    pub exclude_tools_when_tool_choice_none: bool,
}

/// The form in which a template reads a message's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentFormat {
    /// One text: parts are joined by newlines.
    String,
    /// A list of typed parts.
    OpenAi,
}

/// A model's chat template and tokenizer, from its files.
pub(crate) struct LocalRenderer {
    tokens: Tokens,
    template: Template,
    /// The template for requests with tools, if the model has a separate one.
    tool_use: Option<Template>,
    format: ContentFormat,
    special_tokens: Vec<(String, Value)>,
    end_ids: Vec<TokenId>,
    settings: RenderSettings,
}

impl LocalRenderer {
    /// Loads a model directory. Ignores [`RenderSettings::tokenizer`].
    pub(crate) fn load(dir: &Path, settings: &RenderSettings) -> Result<Self, LoadError> {
        let tokens = Tokens::load(dir)?;
        let config = TokenizerConfig::load(dir)?;
        let sources = Sources::find(dir, settings.chat_template.as_deref(), &config)?;
        let compile = |source: &str| {
            Template::compile(source)
                .map_err(|reason| LoadError::Template { origin: sources.origin.clone(), reason })
        };
        let template = compile(&sources.default)?;
        let tool_use = sources.tool_use.as_deref().map(compile).transpose()?;
        let format = settings.content_format.unwrap_or(template.format);
        let is_same = tool_use.as_ref().is_none_or(|tool_use| tool_use.format == template.format);
        // A message is read before its template is chosen, so both templates must read the same form.
        if settings.content_format.is_none() && !is_same {
            return Err(LoadError::FormatsDiffer(sources.origin));
        }
        let end_ids = end_ids(dir, &config, &tokens)?;
        let special_tokens =
            config.special_tokens.into_iter().map(|(name, text)| (name, Value::from(text))).collect();
        let settings = settings.clone();
        Ok(Self { tokens, template, tool_use, format, special_tokens, end_ids, settings })
    }

    /// Reads a chat request's message for the template. This makes the only copy of the message's texts.
    pub(crate) fn message(&self, message: &Json) -> Result<TemplateMessage, RenderError> {
        TemplateMessage::read(message, self.format)
    }

    /// Reads the inputs of a request that the template gets beside the messages.
    pub(crate) fn inputs(&self, inputs: &RequestInputs) -> Result<TemplateInputs, RenderError> {
        TemplateInputs::read(inputs, &self.settings)
    }

    /// Renders a conversation to text. Fails if the conversation is empty or the template refuses it.
    pub(crate) fn render(
        &self,
        messages: &[TemplateMessage],
        inputs: &TemplateInputs,
        add_generation_prompt: bool,
    ) -> Result<String, RenderError> {
        if messages.is_empty() {
            return Err(RenderError::unreadable("the conversation", "it is empty"));
        }
        let template = self.tool_use.as_ref().filter(|_| inputs.has_tools).unwrap_or(&self.template);
        let messages = match template.knows_developer {
            true => Cow::Borrowed(messages),
            false => without_developers(messages),
        };
        let conversation: Value = messages.iter().map(|message| message.value().clone()).collect();
        let own = [
            ("messages", conversation),
            ("tools", inputs.tools.clone()),
            ("documents", inputs.documents.clone()),
            ("add_generation_prompt", Value::from(add_generation_prompt)),
        ];
        let named = self.special_tokens.iter().chain(&inputs.others);
        let context = named.map(|(name, value)| (name.as_str(), value.clone())).chain(own);
        template.render(Value::from_pairs(context))
    }

    /// Tokenises a rendered text. Adds no ids, and recognises special tokens in the text.
    pub(crate) fn encode(&self, text: &str) -> Result<Vec<TokenId>, RenderError> {
        self.tokens.encode(text)
    }

    /// Decodes ids. Shows special tokens, replaces bytes that are not UTF-8 by U+FFFD, and skips ids without a token.
    pub(crate) fn decode<'a>(
        &self,
        ids: impl IntoIterator<Item = &'a TokenId>,
    ) -> Result<String, RenderError> {
        self.tokens.decode(ids)
    }

    /// Returns the added token that a text begins with, and its text. Added tokens are never split.
    pub(crate) fn token_at_start(&self, text: &str) -> Option<(TokenId, &str)> {
        self.tokens.at_start(text)
    }

    /// Returns the ids that end a turn: the model's end-of-text token, and the ids in its generation settings.
    pub(crate) fn end_ids(&self) -> &[TokenId] {
        &self.end_ids
    }

    /// Returns the first 16 hexadecimal digits of the SHA-256 of `tokenizer.json`.
    pub(crate) fn hash(&self) -> &str {
        &self.tokens.hash
    }
}

fn end_ids(dir: &Path, config: &TokenizerConfig, tokens: &Tokens) -> Result<Vec<TokenId>, LoadError> {
    let mut ids: Vec<TokenId> =
        config.special_token("eos_token").and_then(|token| tokens.id(token)).into_iter().collect();
    for id in files::end_ids(dir)? {
        ids.extend(TokenId::try_from(id).ok());
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

/// Converts developer messages for templates that do not know the role. vLLM turns them into system messages. Then it
/// joins all system messages into the first message (`renderers/hf.py`, `_consolidate_system_messages`).
fn without_developers(messages: &[TemplateMessage]) -> Cow<'_, [TemplateMessage]> {
    if !messages.iter().any(TemplateMessage::is_developer) {
        return Cow::Borrowed(messages);
    }
    let messages: Vec<TemplateMessage> = messages.iter().map(TemplateMessage::developer_as_system).collect();
    // vLLM joins system messages only if there is one behind the first message.
    if !messages.iter().skip(1).any(TemplateMessage::is_system) {
        return Cow::Owned(messages);
    }
    let (of_system, others): (Vec<TemplateMessage>, Vec<TemplateMessage>) =
        messages.into_iter().partition(TemplateMessage::is_system);
    let texts: Vec<String> = of_system
        .iter()
        .map(|message| content::text_of(&message.content()))
        .filter(|text| !text.is_empty())
        .collect();
    Cow::Owned(std::iter::once(TemplateMessage::system(&texts.join("\n\n"))).chain(others).collect())
}
