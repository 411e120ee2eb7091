//! Where the model is, how it is asked, and how long the agent goes on.

use std::path::PathBuf;
use std::time::Duration;

use crate::answer::AnswerFormat;

/// What an agent is told besides its task.
#[derive(Clone)]
pub struct AgentSettings {
    /// Base URL of an OpenAI-compatible server, up to and with `/v1`.
    pub base_url: String,
    /// Sent as a bearer token.
    pub api_key: String,
    /// Name of the model to ask for.
    pub model: String,
    /// How the model writes its answers.
    pub format: AnswerFormat,
    /// The run ends after this many answers of the model. Helper conversations do not count.
    pub max_turns: u32,
    /// Sampling temperature; the server's default if `None`.
    pub temperature: Option<f64>,
    /// Most tokens of one answer; the server's default if `None`.
    pub max_tokens: Option<u32>,
    /// How long a call may go without a byte from the server.
    pub call_timeout: Duration,
    /// How often a call is tried again after a connection error, a 429 or a 5xx.
    pub retries: u32,
    /// What becomes of a conversation that grows too long; `None` to end the run there.
    pub summarize: Option<Summarize>,
    /// Where the trajectory is kept; `None` for nowhere.
    pub trajectory: Option<TrajectorySettings>,
}

/// When a conversation is summed up, so that a shorter one can take its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summarize {
    /// Tokens that the model can see at once; `None` to ask the server.
    pub context_length: Option<u64>,
    /// Done ahead when fewer tokens than this are free; zero to wait until the server refuses. `None` for 8000, or a
    /// quarter of a context that is shorter than four times that.
    pub when_free_below: Option<u64>,
}

/// Where and how a trajectory is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrajectorySettings {
    /// The file, written anew after each turn.
    pub path: PathBuf,
    /// Names the run in it.
    pub session_id: String,
    /// Steps hold the model's answers as they came, instead of what was read in them.
    pub raw_content: bool,
}

impl AgentSettings {
    /// Settings with the defaults: answers in JSON, 100 turns, 600 seconds of idle time per call, 4 retries (about 8
    /// seconds in all), sampling left to the server, conversations summed up, no trajectory.
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
    /// Whether a conversation of so many tokens is to be summed up ahead.
    pub(crate) fn is_due(self, tokens: u64, context_length: Option<u64>) -> bool {
        let Some(length) = context_length else { return false };
        let below = self.when_free_below.unwrap_or_else(|| FREE_BELOW.min(length / 4));
        length.saturating_sub(tokens) < below
    }
}

/// Terminus-2's default. On a context hardly longer than that it would sum up after every turn.
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
