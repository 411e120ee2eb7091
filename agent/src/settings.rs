//! The settings of an agent: the model, its sampling, and the limits of a run.

use std::path::PathBuf;
use std::time::Duration;

use crate::answer::AnswerFormat;

/// The settings of an agent, apart from its task.
#[derive(Clone)]
pub struct AgentSettings {
    /// The base URL of an OpenAI-compatible server, including `/v1`.
    pub base_url: String,
    /// The bearer token of requests.
    pub api_key: String,
    /// The name of the model.
    pub model: String,
    /// The format of the model's answers.
    pub format: AnswerFormat,
    /// The maximal number of the model's answers. Helper conversations do not count.
    pub max_turns: u32,
    /// The sampling temperature. `None` for the server's default.
    pub temperature: Option<f64>,
    /// The maximal number of tokens of one answer. `None` for the server's default.
    pub max_tokens: Option<u32>,
    /// How long a call may wait for the next byte from the server.
    pub call_timeout: Duration,
    /// The number of retries of a call after a connection error, a 429 or a 5xx.
    pub retries: u32,
    /// The treatment of a conversation that grows too long. `None` ends the run there.
    pub summarize: Option<Summarize>,
    /// Where the trajectory is written. `None` for no trajectory.
    pub trajectory: Option<TrajectorySettings>,
}

/// When a conversation is summarised and replaced with a shorter one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summarize {
    /// The number of tokens in the model's context. `None` to ask the server.
    pub context_length: Option<u64>,
    /// Summarises when fewer tokens than this are free. Zero waits until the server rejects a prompt. `None` stands for
    /// 8000, or a quarter of a context shorter than four times that.
    pub when_free_below: Option<u64>,
}

/// Where and how a trajectory is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrajectorySettings {
    /// The file, which is replaced after each turn.
    pub path: PathBuf,
    /// The name of the run in the file.
    pub session_id: String,
    /// Whether steps have the model's answers unchanged, instead of their parsed content.
    pub raw_content: bool,
}

impl AgentSettings {
    /// Returns settings with the defaults: answers in JSON, 100 turns, 600 seconds without a byte per call, and 4
    /// retries (about 8 seconds in total). The server decides the sampling, conversations are summarised, and no
    /// trajectory is written.
    pub fn new(base_url: impl Into<String>, api_key: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            api_key: api_key.into(),
            model: model.into(),
            format: AnswerFormat::Json,
            max_turns: 100,
            temperature: None,
            max_tokens: None,
            call_timeout: Duration::from_secs(600),
            retries: 4,
            summarize: Some(Summarize::default()),
            trajectory: None,
        }
    }
}

impl Summarize {
    /// Whether a conversation with this number of tokens must be summarised now.
    pub(crate) fn is_due(self, tokens: u64, context_length: Option<u64>) -> bool {
        // Without a known length, the server's rejection is the only sign of a full context.
        let Some(length) = context_length else { return false };
        let below = self.when_free_below.unwrap_or_else(|| FREE_BELOW.min(length / 4));
        length.saturating_sub(tokens) < below
    }
}

/// Terminus-2's default. With a context not much longer than this, it would cause a summary after every turn.
const FREE_BELOW: u64 = 8000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_is_summed_up_while_there_is_room_for_it() {
        let asked = |when_free_below, tokens, length| {
            Summarize { context_length: None, when_free_below }.is_due(tokens, length)
        };
        assert!(asked(None, 24_001, Some(32_000)) && !asked(None, 24_000, Some(32_000)));
        assert!(asked(None, 6_001, Some(8_000)) && !asked(None, 6_000, Some(8_000)));
        assert!(asked(Some(1), 8_000, Some(8_000)) && !asked(Some(1), 7_999, Some(8_000)));
        assert!(!asked(Some(0), 9_000, Some(8_000)) && !asked(None, 1 << 40, None));
    }
}
