//! Harbor's keys that have no field in rolltap: which values have no effect, and why the others are refused.

use serde_json::{Map, Value};

use super::ConfigError;
use super::known_keys::{is_index, nearest_to};
use crate::common::suggest::did_you_mean;

/// A value that has no effect.
pub(super) enum Harmless {
    Null,
    Bool(bool),
    Number(i64),
    Text(&'static str),
    /// An empty list or table.
    Empty,
    /// Any value, because the key affects nothing that rolltap does.
    Anything,
}

use Harmless::{Anything, Bool, Empty, Null, Number, Text};

/// A key (`*` for any index of a list), its harmless values, and the reason why others are refused.
pub(super) type Rule = (&'static str, &'static [Harmless], &'static str);

const REGISTRY: &str =
    "datasets of Harbor Hub and registries at a URL are not fetched: give path, repo or registry_path";
const GUARANTEE: &str = "CPU and memory are limits";

pub(super) const RULES: &[Rule] = &[
    ("install_only", &[Bool(false)], "a trial runs to its end"),
    ("skip_credential_checks", &[Anything], ""),
    ("debug", &[Anything], ""),
    ("job_id", &[Anything], ""),
    ("user_agent", &[Null], "no user is simulated"),
    ("source_jobs", &[Empty], "trials of other jobs are not judged again"),
    ("source_trial", &[Null], "trials of other jobs are not judged again"),
    ("agents.*.import_path", &[Null], "agents are not Python classes here"),
    ("agents.*.model_api_format", &[Anything], ""),
    ("agents.*.skip_model_parsing", &[Anything], ""),
    ("agents.*.resume_trajectory", &[Bool(false)], "each step is a conversation of its own"),
    ("agents.*.load_trajectory", &[Null], "agents start without a past"),
    ("agents.*.extra_allowed_hosts", &[Empty], "the task's allowed_hosts decide"),
    ("agents.*.include_logs", &[Empty], "all logs are downloaded"),
    ("agents.*.exclude_logs", &[Empty], "all logs are downloaded"),
    ("environment.stream", &[Bool(false)], "output is in the trial's folder when it ends"),
    ("environment.cpu_enforcement_policy", &[Text("auto"), Text("limit")], GUARANTEE),
    ("environment.memory_enforcement_policy", &[Text("auto"), Text("limit")], GUARANTEE),
    ("environment.override_gpus", &[Null, Number(0)], "there are no GPUs in environments"),
    ("environment.override_tpu", &[Null], "there are no TPUs in environments"),
    ("environment.suppress_override_warnings", &[Anything], ""),
    ("environment.extra_docker_compose", &[Empty], "environments are single containers"),
    ("environment.kwargs", &[Empty], "no environment here has settings of its own"),
    ("environment.extra_allowed_hosts", &[Empty], "the task's allowed_hosts decide"),
    ("verifier.include_logs", &[Empty], "all logs are downloaded"),
    ("verifier.exclude_logs", &[Empty], "all logs are downloaded"),
    ("verifier.import_path", &[Null], "the verifier is the task's tests/test.sh"),
    ("verifier.kwargs", &[Empty], "the verifier is the task's tests/test.sh"),
    ("verifier.extra_allowed_hosts", &[Empty], "the task's allowed_hosts decide"),
    ("metrics.*.kwargs", &[Empty], "no metric here has settings"),
    ("datasets.*.ref", &[Null], REGISTRY),
    ("datasets.*.registry_url", &[Null], REGISTRY),
    ("tasks.*.name", &[Null], "a task is a directory or comes from git: give its path"),
    ("tasks.*.ref", &[Null], "a task is a directory or comes from git: give its path"),
];

/// Checks the keys that no field took, given by their paths.
pub(super) fn check(fields: &Map<String, Value>, untyped: &[String]) -> Result<(), ConfigError> {
    let mut refused = Vec::new();
    for path in untyped {
        // `serde_ignored` writes `?` for an `Option` on the path.
        let steps: Vec<&str> = path.split('.').filter(|step| *step != "?").collect();
        let Some(value) = lookup(fields, &steps) else { continue };
        match RULES.iter().find(|(key, ..)| matches(key, &steps)) {
            Some((_, harmless, _)) if harmless.iter().any(|kind| kind.is(value)) => {}
            Some((_, _, why)) => refused.push(format!("{} = {value} ({why})", written(&steps))),
            None => {
                let hint = did_you_mean(nearest_to(&steps));
                tracing::warn!(
                    "job file: ignoring {}, a key that Harbor does not know{hint}",
                    written(&steps)
                );
            }
        }
    }
    if refused.is_empty() { Ok(()) } else { Err(ConfigError::Refused(refused)) }
}

impl Harmless {
    fn is(&self, value: &Value) -> bool {
        match self {
            Anything => true,
            Null => value.is_null(),
            Bool(expected) => value.as_bool() == Some(*expected),
            Number(expected) => value.as_i64() == Some(*expected),
            Text(expected) => value.as_str() == Some(expected),
            Empty => match value {
                Value::Array(items) => items.is_empty(),
                Value::Object(fields) => fields.is_empty(),
                _ => false,
            },
        }
    }
}

fn lookup<'v>(fields: &'v Map<String, Value>, steps: &[&str]) -> Option<&'v Value> {
    let (first, rest) = steps.split_first()?;
    rest.iter().try_fold(fields.get(*first)?, |value, step| match value {
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        _ => value.get(*step),
    })
}

fn matches(key: &str, steps: &[&str]) -> bool {
    let pattern: Vec<&str> = key.split('.').collect();
    let step = |(pattern, step): (&&str, &&str)| pattern == step || (*pattern == "*" && is_index(step));
    pattern.len() == steps.len() && pattern.iter().zip(steps).all(step)
}

/// Formats a path as users write it: `agents[0].skills`.
fn written(steps: &[&str]) -> String {
    let mut text = String::new();
    for step in steps {
        match (is_index(step), text.is_empty()) {
            (true, _) => text.push_str(&format!("[{step}]")),
            (false, true) => text.push_str(step),
            (false, false) => text.push_str(&format!(".{step}")),
        }
    }
    text
}
