//! The messages between rolltap and its worker: one JSON object per line in each direction. The other side is
//! `worker.py`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A message to the worker.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(crate) enum Order<'a> {
    /// Check all of this before anything runs, and report the problems.
    Check {
        /// Harbor's `AgentConfig` of each agent.
        agents: &'a [Value],
        /// Harbor's `EnvironmentConfig`.
        environment: &'a Value,
        /// The tasks' directories.
        tasks: &'a [String],
        /// Whether the tests are skipped.
        without_verifier: bool,
    },
    /// Run a trial.
    Run {
        /// The trial's name.
        trial: &'a str,
        /// Harbor's `TrialConfig`.
        config: &'a Value,
    },
    /// Continue a trial after the end of its agent's time, because the trial is sealed.
    Go {
        /// The trial's name.
        trial: &'a str,
    },
    /// End a trial and remove its environment.
    Cancel {
        /// The trial's name.
        trial: &'a str,
    },
}

/// A message from the worker.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum News {
    /// The worker has started.
    Hello {
        /// The version of the package. `None` if the Python does not have it.
        harbor: Option<String>,
    },
    /// The answer to a check.
    Checked(Checked),
    /// A message about one trial.
    #[serde(untagged)]
    OfTrial {
        /// The trial's name.
        trial: String,
        /// The event.
        #[serde(flatten)]
        event: TrialEvent,
    },
}

/// An event of a trial.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum TrialEvent {
    /// A phase begins.
    Phase {
        /// Harbor's name of the phase.
        phase: HarborPhase,
    },
    /// The agent's time is over, or in a task with steps that of one step. The worker waits for [`Order::Go`].
    AgentEnd,
    /// The trial is over. Harbor has written its result if the trial got that far.
    Ended {
        /// An exception that Harbor did not record in the result.
        error: Option<Raised>,
        /// Harbor's `failure_cause` of each recorded exception, by class.
        causes: BTreeMap<String, String>,
    },
}

/// Harbor's hooks at the beginning of phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum HarborPhase {
    /// The environment is built and started, and the agent is set up in it.
    #[serde(rename = "environment-start")]
    Environment,
    /// The agent works.
    #[serde(rename = "agent-start")]
    Agent,
    /// The tests run.
    #[serde(rename = "verification-start")]
    Verification,
}

/// An exception.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Raised {
    /// The class.
    #[serde(rename = "type")]
    pub(crate) class: String,
    /// The message.
    pub(crate) message: String,
}

/// Harbor's answer to a check before the first trial.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Checked {
    /// The reasons why no trial can run.
    pub(crate) problems: Vec<String>,
    /// Warnings for the user.
    pub(crate) warnings: Vec<String>,
    /// The agents in the order of the check. `None` for an agent with a problem.
    pub(crate) agents: Vec<Option<Contract>>,
}

/// How an agent reaches its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Contract {
    /// Whether the agent runs inside the environment rather than in Harbor's process.
    pub(crate) installed: bool,
    /// The API format that the agent uses. `None` if it calls no model.
    pub(crate) api_format: Option<ApiFormat>,
}

/// The values of Harbor's `ModelApiFormat` that rolltap supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ApiFormat {
    /// OpenAI's chat completions.
    OpenaiChatCompletions,
    /// OpenAI's responses.
    OpenaiResponses,
    /// Anthropic's messages.
    AnthropicMessages,
    /// Google's `generateContent`.
    GoogleGenerateContent,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn news(line: &str) -> News {
        serde_json::from_str(line).unwrap()
    }

    #[test]
    fn every_kind_of_news_is_understood() {
        assert_eq!(news(r#"{"event": "hello", "harbor": null}"#), News::Hello { harbor: None });
        let checked = news(
            r#"{"event": "checked", "problems": ["a"], "warnings": [],
                "agents": [null, {"installed": true, "api_format": "anthropic_messages"}]}"#,
        );
        let contract = Contract { installed: true, api_format: Some(ApiFormat::AnthropicMessages) };
        let agents = vec![None, Some(contract)];
        let expected = Checked { problems: vec!["a".to_owned()], warnings: vec![], agents };
        assert_eq!(checked, News::Checked(expected));
        let of = |event| News::OfTrial { trial: "t".to_owned(), event };
        assert_eq!(news(r#"{"event": "agent_end", "trial": "t"}"#), of(TrialEvent::AgentEnd));
        assert_eq!(
            news(r#"{"event": "phase", "trial": "t", "phase": "verification-start"}"#),
            of(TrialEvent::Phase { phase: HarborPhase::Verification })
        );
        let raised = Raised { class: "ValueError".to_owned(), message: "no".to_owned() };
        assert_eq!(
            news(
                r#"{"event": "ended", "trial": "t", "causes": {}, "error": {"type": "ValueError", "message": "no"}}"#
            ),
            of(TrialEvent::Ended { error: Some(raised), causes: BTreeMap::new() })
        );
    }

    #[test]
    fn an_order_names_its_op_and_trial() {
        let order = serde_json::to_string(&Order::Go { trial: "t" }).unwrap();
        assert_eq!(order, r#"{"op":"go","trial":"t"}"#);
    }

    proptest::proptest! {
        #[test]
        fn whatever_a_line_holds_is_news_or_an_error(line in "\\PC{0,200}") {
            let _ = serde_json::from_str::<News>(&line);
        }

        #[test]
        fn news_without_a_trial_of_its_own_is_none(event in "[a-z_]{1,12}") {
            let line = format!(r#"{{"event": "{event}"}}"#);
            let news = serde_json::from_str::<News>(&line);
            proptest::prop_assert!(matches!(news, Err(_) | Ok(News::Hello { harbor: None })), "{news:?}");
        }
    }

    #[test]
    fn fuzz_harbor_news() {
        rolltap_testing::fuzz!("harbor_news", |line| drop(serde_json::from_slice::<News>(line)));
    }
}
