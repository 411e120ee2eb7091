//! What is said between rolltap and its worker, a JSON object a line each way; `worker.py` is the other side.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What the worker is to do.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(crate) enum Order<'a> {
    /// Say what is wrong with all of this, before anything runs.
    Check {
        /// Harbor's `AgentConfig` of each agent.
        agents: &'a [Value],
        /// Harbor's `EnvironmentConfig`.
        environment: &'a Value,
        /// The tasks' directories.
        tasks: &'a [String],
        /// The tests are not run.
        without_verifier: bool,
    },
    /// Run a trial.
    Run {
        /// Its name.
        trial: &'a str,
        /// Harbor's `TrialConfig`.
        config: &'a Value,
    },
    /// The trial is sealed: go on after the end of its agent's time.
    Go {
        /// Its name.
        trial: &'a str,
    },
    /// End a trial, and remove its environment.
    Cancel {
        /// Its name.
        trial: &'a str,
    },
}

/// What the worker tells.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum News {
    /// It is there; none where its Python has no Harbor.
    Hello {
        /// The version of the package.
        harbor: Option<String>,
    },
    /// The answer to a check.
    Checked(Checked),
    /// News of one trial.
    #[serde(untagged)]
    OfTrial {
        /// Its name.
        trial: String,
        /// What happened.
        #[serde(flatten)]
        event: TrialEvent,
    },
}

/// What happens in a trial.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum TrialEvent {
    /// A phase begins.
    Phase {
        /// Harbor's name of it.
        phase: HarborPhase,
    },
    /// The agent's time is over, in a task of several steps that of a step. The worker waits for [`Order::Go`].
    AgentEnd,
    /// Everything is over, and Harbor has written its result, where it got as far as one.
    Ended {
        /// What Harbor did not keep in the result itself.
        error: Option<Raised>,
        /// Harbor's `failure_cause` of each exception that it recorded, by class.
        causes: BTreeMap<String, String>,
    },
}

/// Harbor's hooks at the beginning of phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum HarborPhase {
    /// The environment is built and started, and the agent made ready in it.
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
    /// Its class.
    #[serde(rename = "type")]
    pub(crate) class: String,
    /// What it says.
    pub(crate) message: String,
}

/// What Harbor says before the first trial.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Checked {
    /// Why there can be no trial.
    pub(crate) problems: Vec<String>,
    /// What a user should know.
    pub(crate) warnings: Vec<String>,
    /// In the order of the question; none where there is a problem.
    pub(crate) agents: Vec<Option<Contract>>,
}

/// How an agent reaches its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Contract {
    /// It runs inside the environment, not beside Harbor.
    pub(crate) installed: bool,
    /// What it speaks; none where it calls no model.
    pub(crate) api_format: Option<ApiFormat>,
}

/// Harbor's `ModelApiFormat`, of which rolltap speaks these.
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
}
