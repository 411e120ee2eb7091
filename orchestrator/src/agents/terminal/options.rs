//! The options of the terminal agent, with the names of Harbor's Terminus-2.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use rolltap_agent::answer::AnswerFormat;
use rolltap_agent::terminal::TerminalSize;
use rolltap_agent::{AgentSettings, Summarize};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::super::definition::must_be_known;

/// The options of the terminal agent. An absent option has the agent's default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TerminalOptions {
    /// The maximum number of turns.
    #[serde(alias = "max_episodes", alias = "episodes", skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// The format in which the model answers.
    #[serde(alias = "format", skip_serializing_if = "Option::is_none")]
    pub parser_name: Option<AnswerFormat>,
    /// The sampling temperature. `None` for the server's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The maximum number of tokens of an answer. `None` for the server's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Whether a conversation that grows too long is summarized. Otherwise it ends the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_summarize: Option<bool>,
    /// The number of free tokens below which the conversation is summarized in advance. 0 waits until the server
    /// refuses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proactive_summarization_threshold: Option<u64>,
    /// Facts about the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_info: Option<ModelInfo>,
    /// Whether the terminal is a tmux session in the environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tmux: Option<bool>,
    /// The number of columns of the terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tmux_pane_width: Option<NonZeroU16>,
    /// The number of rows of the terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tmux_pane_height: Option<NonZeroU16>,
    /// The format of the trajectory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trajectory_config: Option<TrajectoryConfig>,
    /// Environment variables of the shell. They may be secrets, so they are in no record.
    #[serde(skip)]
    pub env: BTreeMap<String, String>,
}

/// Facts about a model, in LiteLLM's format. Prices and all other fields are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelInfo {
    /// The length of the model's context in tokens. `None` to ask the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_input_tokens: Option<u64>,
}

/// The format of a trajectory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrajectoryConfig {
    /// Whether the trajectory has the model's raw answers instead of the parsed ones.
    #[serde(default)]
    pub raw_content: bool,
}

/// The options with their descriptions, as `rolltap agents terminal` lists them.
pub const OPTIONS: [(&str, &str); 11] = [
    ("max_turns", "Turns after which it stops (whole number) [default: 100]"),
    ("parser_name", "How the model writes its answers (json|xml) [default: json]"),
    ("temperature", "Sampling temperature (number) [default: the server's]"),
    ("max_tokens", "Most tokens of one answer (whole number) [default: the server's]"),
    (
        "enable_summarize",
        "Sum a conversation up that grows too long, instead of ending (true|false) [default: true]",
    ),
    (
        "proactive_summarization_threshold",
        "Sum up when fewer tokens are free; 0 for never ahead [default: 8000]",
    ),
    (
        "model_info",
        "JSON; max_input_tokens is the length of the model's context [default: asked of the server]",
    ),
    ("tmux", "Work in a session of tmux inside, installed if it is not there (true|false) [default: false]"),
    ("tmux_pane_width", "Columns of the terminal, with tmux or without (whole number) [default: 160]"),
    ("tmux_pane_height", "Rows of the terminal, with tmux or without (whole number) [default: 40]"),
    ("trajectory_config", "JSON; raw_content keeps answers as they came in trajectory.json [default: {}]"),
];

impl TerminalOptions {
    /// Reads the options from an agent's `kwargs`. A null value counts as absent.
    ///
    /// # Errors
    /// Returns a message about an unknown option or an invalid value.
    pub(crate) fn read(kwargs: Map<String, Value>) -> Result<Self, String> {
        let said: Map<_, _> = kwargs.into_iter().filter(|(_, value)| !value.is_null()).collect();
        must_be_known(&said, &OPTIONS.map(|(name, _)| name), &ALIASES)?;
        // Each option is parsed alone first, so that an error can name it.
        for (name, value) in &said {
            let alone = Map::from_iter([(name.clone(), value.clone())]);
            serde_json::from_value::<Self>(Value::Object(alone))
                .map_err(|error| format!("option {name:?}: {error}"))?;
        }
        serde_json::from_value(Value::Object(said)).map_err(|error| error.to_string())
    }

    /// Returns the size of the terminal.
    pub(crate) fn size(&self) -> TerminalSize {
        let TerminalSize { rows, cols } = TerminalSize::default();
        TerminalSize {
            rows: self.tmux_pane_height.map_or(rows, NonZeroU16::get),
            cols: self.tmux_pane_width.map_or(cols, NonZeroU16::get),
        }
    }

    /// Overrides the agent's settings by these options.
    pub(crate) fn apply(&self, settings: &mut AgentSettings) {
        settings.max_turns = self.max_turns.unwrap_or(settings.max_turns);
        settings.format = self.parser_name.unwrap_or(settings.format);
        settings.temperature = self.temperature.or(settings.temperature);
        settings.max_tokens = self.max_tokens.or(settings.max_tokens);
        let summarize = Summarize {
            context_length: self.model_info.and_then(|info| info.max_input_tokens),
            when_free_below: self.proactive_summarization_threshold,
        };
        settings.summarize = self.enable_summarize.unwrap_or(true).then_some(summarize);
    }
}

/// Other names of options: rolltap's names, and older names of Harbor.
const ALIASES: [&str; 3] = ["format", "episodes", "max_episodes"];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(kwargs: Value) -> Result<TerminalOptions, String> {
        let Value::Object(kwargs) = kwargs else { panic!("no object") };
        TerminalOptions::read(kwargs)
    }

    #[test]
    fn options_have_harbors_names() {
        let options = read(json!({"parser_name": "xml", "max_episodes": 3, "temperature": null})).unwrap();
        let mut settings = AgentSettings::new("", "", "");
        options.apply(&mut settings);
        assert_eq!((settings.format, settings.max_turns, settings.temperature), (AnswerFormat::Xml, 3, None));
        assert_eq!(serde_json::to_value(&options).unwrap(), json!({"max_turns": 3, "parser_name": "xml"}));
    }

    #[test]
    fn summing_up_can_be_set_and_switched_off() {
        let options = read(json!({"proactive_summarization_threshold": 0,
            "model_info": {"max_input_tokens": 4096, "input_cost_per_token": 1e-6}}));
        let mut settings = AgentSettings::new("", "", "");
        options.unwrap().apply(&mut settings);
        let said = Summarize { context_length: Some(4096), when_free_below: Some(0) };
        assert_eq!(settings.summarize, Some(said));
        read(json!({"enable_summarize": false})).unwrap().apply(&mut settings);
        assert_eq!(settings.summarize, None);
    }

    #[test]
    fn every_option_that_is_listed_is_read() {
        for (name, _) in OPTIONS {
            let wrong = read(json!({ name: ["no value"] })).unwrap_err();
            assert!(wrong.starts_with(&format!("option {name:?}: ")), "{wrong}");
        }
    }

    #[test]
    fn a_wrong_option_is_told_the_right_ones() {
        let error = read(json!({"max_turn": 3})).unwrap_err();
        assert!(error.starts_with("unknown option \"max_turn\" (did you mean \"max_turns\"?)"), "{error}");
        assert!(read(json!({"parser_name": "yaml"})).unwrap_err().contains("parser_name"));
        assert!(read(json!({"max_turns": 1, "episodes": 2})).is_err());
    }
}
