//! Flags that say how prompts are continued token for token; `rolltap proxy` and `rolltap run` have the same.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use clap::builder::PossibleValuesParser;
use rolltap_orchestrator::job::config::OwnConfig;
use rolltap_proxy::{ContentFormat, History, RenderSettings};
use serde_json::{Map, Value};

use crate::run::json_object;

/// The names are those of vLLM's own flags, where it has them.
#[derive(Args)]
#[command(next_help_heading = "Prompts")]
pub(crate) struct PromptArguments {
    /// What becomes of earlier turns' tokens when an agent sends them back as text: faithful (kept where the chat template
    /// shows the same answer), sampled (kept in every conversation that only grows) or off. Trials may say otherwise.
    /// [default: faithful]
    #[arg(long, env = "ROLLTAP_HISTORY", value_name = "MODE", value_parser = PossibleValuesParser::new(History::NAMES))]
    pub(crate) history: Option<String>,
    /// The served model's directory (tokenizer.json, tokenizer_config.json), with which prompts are continued token for
    /// token. [default: the one that upstream names, where it is on this machine]
    #[arg(long, env = "ROLLTAP_TOKENIZER", value_name = "DIR")]
    pub(crate) tokenizer: Option<PathBuf>,
    /// The chat template that the upstreams were started with (vLLM's --chat-template).
    #[arg(long, env = "ROLLTAP_CHAT_TEMPLATE", value_name = "FILE")]
    pub(crate) chat_template: Option<PathBuf>,
    /// What the upstreams give the template where a request says nothing (vLLM's --default-chat-template-kwargs).
    #[arg(long, env = "ROLLTAP_DEFAULT_CHAT_TEMPLATE_KWARGS", value_name = "JSON", value_parser = json_object)]
    pub(crate) default_chat_template_kwargs: Option<Map<String, Value>>,
    /// How the upstreams give messages to the template (vLLM's --chat-template-content-format). [default: auto]
    #[arg(long, env = "ROLLTAP_CHAT_TEMPLATE_CONTENT_FORMAT", value_name = "FORMAT",
          value_parser = PossibleValuesParser::new(CONTENT_FORMATS))]
    pub(crate) chat_template_content_format: Option<String>,
}

/// vLLM's own names.
const CONTENT_FORMATS: [&str; 3] = ["auto", "string", "openai"];

impl PromptArguments {
    /// The mode, if a flag or variable says one.
    pub(crate) fn history(&self) -> anyhow::Result<Option<History>> {
        Ok(self.history.as_deref().map(str::parse).transpose()?)
    }

    /// What no flag or variable says, as a job's file says it.
    pub(crate) fn or(&mut self, file: &OwnConfig) {
        self.history = self.history.take().or_else(|| file.history.map(|history| history.to_string()));
        self.tokenizer = self.tokenizer.take().or_else(|| file.tokenizer.clone());
        self.chat_template = self.chat_template.take().or_else(|| file.chat_template.clone());
        self.default_chat_template_kwargs =
            self.default_chat_template_kwargs.take().or_else(|| file.default_chat_template_kwargs.clone());
        self.chat_template_content_format =
            self.chat_template_content_format.take().or_else(|| file.chat_template_content_format.clone());
    }

    pub(crate) fn render_settings(self) -> anyhow::Result<RenderSettings> {
        Ok(RenderSettings {
            tokenizer: self.tokenizer,
            chat_template: self.chat_template,
            chat_template_kwargs: self.default_chat_template_kwargs.unwrap_or_default(),
            content_format: content_format(self.chat_template_content_format.as_deref())?,
            ..RenderSettings::default()
        })
    }
}

fn content_format(name: Option<&str>) -> anyhow::Result<Option<ContentFormat>> {
    match name {
        None | Some("auto") => Ok(None),
        Some("string") => Ok(Some(ContentFormat::String)),
        Some("openai") => Ok(Some(ContentFormat::OpenAi)),
        Some(other) => {
            bail!("chat_template_content_format is {other:?}; it may be {}", CONTENT_FORMATS.join(", "))
        }
    }
}
