//! Settings of the exact prompts, which `rolltap proxy` and `rolltap run` share.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use rolltap_orchestrator::job::config::OwnConfig;
use rolltap_proxy::{ContentFormat, History, RenderSettings};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::option_values::json_object;

/// Settings that are a flag, an environment variable, and a key of the files of `rolltap proxy` and `rolltap run`. The
/// names are those of vLLM's flags, where vLLM has one.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[command(next_help_heading = "Prompts")]
#[serde(default)]
pub(crate) struct PromptOptions {
    /// Choose the prompt tokens for earlier turns, which an agent sends back as text. [default: faithful]
    ///
    /// With `faithful`, a prompt has the sampled tokens of earlier turns where the chat template shows the same answer.
    /// With `sampled`, it has them in every conversation that only grows. With `off`, the server renders every prompt.
    /// A trial may override it.
    #[arg(long, env = "ROLLTAP_HISTORY", value_name = "MODE",
          value_parser = PossibleValuesParser::new(History::NAMES).try_map(|name| name.parse::<History>()))]
    pub(crate) history: Option<History>,
    /// Read the tokenizer and the chat template of the served model from this directory. [default: the directory that
    /// the upstream names, if it is on this machine]
    ///
    /// The proxy continues prompts token for token with tokenizer.json, tokenizer_config.json and the chat template.
    #[arg(long, env = "ROLLTAP_TOKENIZER", value_name = "DIR")]
    pub(crate) tokenizer: Option<PathBuf>,
    /// Use this file as the chat template, like --chat-template of the upstreams. [default: the template of the model]
    #[arg(long, env = "ROLLTAP_CHAT_TEMPLATE", value_name = "FILE")]
    pub(crate) chat_template: Option<PathBuf>,
    /// Assume these --default-chat-template-kwargs of the upstreams. [default: none]
    #[arg(long, env = "ROLLTAP_DEFAULT_CHAT_TEMPLATE_KWARGS", value_name = "JSON", value_parser = json_object)]
    pub(crate) default_chat_template_kwargs: Option<Map<String, Value>>,
    /// Assume this --chat-template-content-format of the upstreams. [default: auto]
    #[arg(long, env = "ROLLTAP_CHAT_TEMPLATE_CONTENT_FORMAT", value_name = "FORMAT",
          value_parser = PossibleValuesParser::new(CONTENT_FORMATS))]
    pub(crate) chat_template_content_format: Option<String>,
    /// Assume --exclude-tools-when-tool-choice-none of the upstreams.
    ///
    /// With it, the prompts of requests with `tool_choice: "none"` contain no tools.
    #[arg(long, env = "ROLLTAP_EXCLUDE_TOOLS_WHEN_TOOL_CHOICE_NONE")]
    pub(crate) exclude_tools_when_tool_choice_none: bool,
}

/// The values of vLLM's flag.
const CONTENT_FORMATS: [&str; 3] = ["auto", "string", "openai"];

impl PromptOptions {
    /// Fills the settings that neither a flag nor a variable gives from the `rolltap` section of a job file.
    pub(crate) fn or(&mut self, file: &OwnConfig) {
        self.history = self.history.or(file.history);
        self.tokenizer = self.tokenizer.take().or_else(|| file.tokenizer.clone());
        self.chat_template = self.chat_template.take().or_else(|| file.chat_template.clone());
        self.default_chat_template_kwargs =
            self.default_chat_template_kwargs.take().or_else(|| file.default_chat_template_kwargs.clone());
        self.chat_template_content_format =
            self.chat_template_content_format.take().or_else(|| file.chat_template_content_format.clone());
        self.exclude_tools_when_tool_choice_none |= file.exclude_tools_when_tool_choice_none;
    }

    /// The settings of the proxy's renderer.
    pub(crate) fn render_settings(self) -> anyhow::Result<RenderSettings> {
        Ok(RenderSettings {
            tokenizer: self.tokenizer,
            chat_template: self.chat_template,
            chat_template_kwargs: self.default_chat_template_kwargs.unwrap_or_default(),
            content_format: content_format(self.chat_template_content_format.as_deref())?,
            exclude_tools_when_tool_choice_none: self.exclude_tools_when_tool_choice_none,
        })
    }
}

/// Parses the format. clap rejects a wrong flag earlier, but the value of a file comes here unchecked.
fn content_format(name: Option<&str>) -> anyhow::Result<Option<ContentFormat>> {
    match name {
        // vLLM detects the format from the template, and so does the renderer without one.
        None | Some("auto") => Ok(None),
        Some("string") => Ok(Some(ContentFormat::String)),
        Some("openai") => Ok(Some(ContentFormat::OpenAi)),
        Some(other) => {
            bail!("chat_template_content_format is {other:?}; it may be {}", CONTENT_FORMATS.join(", "))
        }
    }
}
