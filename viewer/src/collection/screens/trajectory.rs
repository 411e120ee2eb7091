//! Trajectories of terminal agents in ATIF: the steps of the agent with the text that the terminal showed after each.

use std::fmt;

use jiff::Timestamp;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{Step, cut};

/// The maximum number of bytes of an observation, and of the texts of a step. The agents' own limits are lower.
const OBSERVATION: usize = 40_000;
const MESSAGE: usize = 4_000;
const KEYSTROKES: usize = 1_000;
/// The maximum number of commands of a step.
const COMMANDS: usize = 50;

/// The readable part of a trajectory.
#[derive(Debug, Default)]
pub(super) struct Trajectory {
    /// The steps of the agent, each with the observation after it if there is one.
    pub(super) steps: Vec<(Step, Option<String>)>,
    /// The time of the first step beyond the limit in seconds since 1970, or of the last step before it with a time.
    /// `None` if no step is beyond the limit.
    pub(super) unread_from: Option<f64>,
    /// The reasons why steps are left out.
    pub(super) problems: Vec<String>,
}

/// Reads at most `most` steps. A file that is damaged or half written gives the steps before the damage.
pub(super) fn read(json: &[u8], most: usize) -> Trajectory {
    let mut document = Document { name: String::new(), steps: Vec::new(), beyond: None, most };
    let mut reader = serde_json::Deserializer::from_slice(json);
    let error = reader.deserialize_map(&mut document).err();
    let mut problems: Vec<String> = Vec::new();
    let unread_from = document.beyond.map(|beyond| {
        problems.push(format!("the steps after the first {most} are left out, because they are too many"));
        let last = document.steps.iter().rev();
        let mut times = std::iter::once(&beyond).chain(last);
        times.find_map(Record::at).unwrap_or_default()
    });
    problems.extend(error.map(|error| format!("the rest cannot be read: {error}")));
    let is_before_typing = document.name == "terminal";
    let of_agent = document.steps.into_iter().filter(|step| step.source == "agent");
    let steps = of_agent.map(|record| record.into_step(is_before_typing)).collect();
    Trajectory { steps, unread_from, problems }
}

/// The members of a trajectory that are read. Steps are added as they are parsed, so those before an error stay.
struct Document {
    /// The name of the agent.
    name: String,
    steps: Vec<Record>,
    /// The first step beyond the limit.
    beyond: Option<Record>,
    most: usize,
}

#[derive(Deserialize)]
struct Agent {
    #[serde(default)]
    name: String,
}

/// A step as the file has it.
#[derive(Deserialize)]
struct Record {
    #[serde(default)]
    step_id: u64,
    #[serde(default)]
    timestamp: Option<String>,
    #[serde(default)]
    source: String,
    /// A text, or a list of parts.
    #[serde(default)]
    message: Value,
    #[serde(default)]
    tool_calls: Option<Vec<ToolCall>>,
    #[serde(default)]
    observation: Option<Observation>,
    #[serde(default)]
    metrics: Option<Metrics>,
}

#[derive(Deserialize)]
struct ToolCall {
    #[serde(default)]
    arguments: Value,
}

#[derive(Deserialize)]
struct Observation {
    #[serde(default)]
    results: Vec<ObservationResult>,
}

#[derive(Deserialize)]
struct ObservationResult {
    #[serde(default)]
    content: Value,
}

#[derive(Deserialize)]
struct Metrics {
    #[serde(default)]
    completion_tokens: Option<u64>,
}

impl Record {
    /// Returns when the step was written, in seconds since 1970.
    fn at(&self) -> Option<f64> {
        let timestamp: Timestamp = self.timestamp.as_deref()?.parse().ok()?;
        Some(timestamp.as_microsecond() as f64 / 1e6)
    }

    fn into_step(self, is_before_typing: bool) -> (Step, Option<String>) {
        let calls = self.tool_calls.iter().flatten().take(COMMANDS);
        let keystrokes = calls.filter_map(|call| call.arguments.get("keystrokes")?.as_str());
        let results = self.observation.iter().flat_map(|observation| &observation.results);
        let observed: Vec<String> = results.filter_map(|result| text_of(&result.content)).collect();
        let step = Step {
            number: self.step_id,
            at: self.at(),
            is_before_typing,
            message: cut(text_of(&self.message).unwrap_or_default(), MESSAGE),
            keystrokes: keystrokes.map(|keys| cut(keys.to_owned(), KEYSTROKES)).collect(),
            sampled: self.metrics.and_then(|metrics| metrics.completion_tokens),
        };
        (step, (!observed.is_empty()).then(|| cut(observed.join("\n"), OBSERVATION)))
    }
}

/// Returns the text of a message: the text itself, or the texts among its parts.
fn text_of(content: &Value) -> Option<String> {
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part.get("text")?.as_str());
            Some(texts.collect::<Vec<_>>().join("\n"))
        }
        _ => None,
    }
}

impl<'de> Visitor<'de> for &mut Document {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a trajectory")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut members: M) -> Result<(), M::Error> {
        while let Some(name) = members.next_key::<String>()? {
            match name.as_str() {
                "agent" => self.name = members.next_value::<Agent>()?.name,
                "steps" => members.next_value_seed(Steps(self))?,
                _ => {
                    members.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// Reads the list of steps into a document, so that they survive an error.
struct Steps<'d>(&'d mut Document);

impl<'de> DeserializeSeed<'de> for Steps<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Steps<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of steps")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut steps: S) -> Result<(), S::Error> {
        let Self(document) = self;
        while document.steps.len() < document.most {
            match steps.next_element()? {
                Some(step) => document.steps.push(step),
                None => return Ok(()),
            }
        }
        document.beyond = steps.next_element()?;
        while steps.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }
}
