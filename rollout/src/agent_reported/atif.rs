//! Reads trajectories of ATIF. A step of the agent with token metrics is a turn. A step that was copied from another
//! trajectory is not a turn, because that trajectory has it.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Unreadable;
use super::turn::{RawTurn, ReportedTurn, Segment};
use crate::call::{CallRole, Flaw};

/// The tokens of a trajectory file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document {
    /// The file's own conversation, then those of its embedded sub-agents.
    pub segments: Vec<Segment>,
    /// The file that continues this one, as named in this file.
    pub continued_in: Option<String>,
    /// Files with the trajectories of sub-agents, as named in this file.
    pub sub_agents_in: Vec<String>,
}

#[derive(Deserialize)]
struct AtifTrajectory<'a> {
    #[serde(borrow)]
    schema_version: Cow<'a, str>,
    agent: Option<Agent>,
    #[serde(borrow)]
    steps: Vec<AtifStep<'a>>,
    continued_trajectory_ref: Option<String>,
    #[serde(borrow)]
    subagent_trajectories: Option<Vec<AtifTrajectory<'a>>>,
}

#[derive(Deserialize)]
struct Agent {
    model_name: Option<String>,
}

#[derive(Deserialize)]
struct AtifStep<'a> {
    #[serde(borrow)]
    source: Cow<'a, str>,
    model_name: Option<String>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    observation: Option<Observation<'a>>,
    #[serde(borrow)]
    metrics: Option<AtifMetrics<'a>>,
    is_copied_context: Option<bool>,
    llm_call_count: Option<u64>,
}

#[derive(Deserialize)]
struct Observation<'a> {
    #[serde(borrow)]
    results: Option<Vec<Observed<'a>>>,
}

#[derive(Deserialize)]
struct Observed<'a> {
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    subagent_trajectory_ref: Option<Vec<Reference>>,
}

#[derive(Deserialize)]
struct Reference {
    trajectory_path: Option<String>,
}

#[derive(Deserialize)]
struct AtifMetrics<'a> {
    #[serde(borrow)]
    prompt_token_ids: Option<&'a RawValue>,
    #[serde(borrow)]
    completion_token_ids: Option<&'a RawValue>,
    #[serde(borrow)]
    logprobs: Option<&'a RawValue>,
}

/// Reads one trajectory file. Unknown keys are ignored.
///
/// # Errors
/// The bytes are not JSON, not a trajectory, or of a version beyond 1.8.
pub fn trajectory(json: &[u8]) -> Result<Document, Unreadable> {
    let root: AtifTrajectory<'_> = serde_json::from_slice(json)?;
    let mut document = Document::default();
    add(&root, CallRole::Main, &mut document)?;
    document.continued_in = root.continued_trajectory_ref;
    Ok(document)
}

fn add(trajectory: &AtifTrajectory<'_>, role: CallRole, document: &mut Document) -> Result<(), Unreadable> {
    // A later minor version may change the meaning of a list, so it is rejected rather than guessed.
    let minor = trajectory.schema_version.strip_prefix("ATIF-v1.").and_then(|minor| minor.parse().ok());
    if minor.is_none_or(|minor: u8| minor > 8) {
        return Err(Unreadable::Version(trajectory.schema_version.clone().into_owned()));
    }
    document.segments.push(Segment { role, turns: trajectory.turns() });
    let observed = trajectory.steps.iter().flat_map(AtifStep::observed);
    let references = observed.flat_map(|observed| observed.subagent_trajectory_ref.iter().flatten());
    document.sub_agents_in.extend(references.filter_map(|reference| reference.trajectory_path.clone()));
    let mut embedded = trajectory.subagent_trajectories.iter().flatten();
    embedded.try_for_each(|sub_agent| add(sub_agent, CallRole::SubAgent, document))
}

impl AtifTrajectory<'_> {
    fn turns(&self) -> Vec<ReportedTurn> {
        let mut turns: Vec<ReportedTurn> = Vec::new();
        let mut has_media = false;
        for step in &self.steps {
            if let Some(turn) = step.turn(turns.last()) {
                // The model of the step overrides that of the agent: an agent may use several models.
                let named = step.model_name.as_ref();
                let model = named.or_else(|| self.agent.as_ref()?.model_name.as_ref()).cloned();
                turns.push(ReportedTurn { model, has_media, ..turn });
            }
            // Added after the turn: a step's own media are in the prompt of the next turn, and of all later ones.
            has_media |= step.has_media();
        }
        turns
    }
}

impl<'a> AtifStep<'a> {
    fn observed(&self) -> impl Iterator<Item = &Observed<'a>> {
        self.observation.iter().flat_map(|observation| observation.results.iter().flatten())
    }

    fn turn(&self, before: Option<&ReportedTurn>) -> Option<ReportedTurn> {
        // Steps of the user or the system may have metrics too, but the policy did not sample those.
        let metrics = self.metrics.as_ref().filter(|_| self.source == "agent")?;
        let raw = RawTurn {
            prompt: metrics.prompt_token_ids,
            answer: metrics.completion_token_ids,
            logprobs: metrics.logprobs,
        };
        if self.is_copied_context == Some(true) || raw.is_silent() {
            return None;
        }
        // A step with several calls does not show which call sampled which tokens.
        let is_several = self.llm_call_count.is_some_and(|count| count != 1);
        Some(raw.read(before, if is_several { vec![Flaw::Unreadable] } else { Vec::new() }))
    }

    fn has_media(&self) -> bool {
        let mut contents = self.message.into_iter().chain(self.observed().filter_map(|seen| seen.content));
        contents.any(is_media)
    }
}

/// Whether the content is a list with a part that is not text.
fn is_media(content: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct Part<'a> {
        #[serde(borrow)]
        r#type: Cow<'a, str>,
    }
    content.get().starts_with('[')
        && serde_json::from_str::<Vec<Part<'_>>>(content.get())
            // A list of another form may contain media, so it counts as media.
            .map_or(true, |parts| parts.iter().any(|part| part.r#type != "text"))
}
