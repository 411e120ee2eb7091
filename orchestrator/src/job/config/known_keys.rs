//! The keys of a job file that rolltap or Harbor knows, for suggestions.

use std::fmt;

use serde::de::{self, DeserializeOwned, Deserializer, Visitor};

use super::parts::{AgentEntry, EnvironmentSection, VerifierSection};
use super::refuse::RULES;
use super::{DatasetRef, JobConfig, MetricConfig, OWN, RetryConfig, TaskRef};
use crate::common::suggest::nearest;

/// Keys that Harbor still accepts, or that belong to the file of a single trial.
const OTHERS: [&str; 6] = [OWN, "orchestrator", "task", "agent", "trial_name", "trials_dir"];

/// Returns the known key that is nearest to the last part of a path, among those of the same section.
pub(super) fn nearest_to(steps: &[&str]) -> Option<&'static str> {
    let (last, section) = steps.split_last()?;
    let section: Vec<_> = section.iter().map(|step| if is_index(step) { "*" } else { step }).collect();
    let section = section.join(".");
    let fields = match section.as_str() {
        "" => fields_of::<JobConfig>(),
        "agents.*" => fields_of::<AgentEntry>(),
        "environment" => fields_of::<EnvironmentSection>(),
        "verifier" => fields_of::<VerifierSection>(),
        "retry" => fields_of::<RetryConfig>(),
        "datasets.*" => fields_of::<DatasetRef>(),
        "tasks.*" => fields_of::<TaskRef>(),
        "metrics.*" => fields_of::<MetricConfig>(),
        _ => &[],
    };
    let others = if section.is_empty() { &OTHERS[..] } else { &[] };
    let refused = RULES.iter().filter_map(|(key, ..)| match key.rsplit_once('.') {
        Some((parent, key)) => (parent == section).then_some(key),
        None => section.is_empty().then_some(*key),
    });
    nearest(last, fields.iter().chain(others).copied().chain(refused))
}

pub(super) fn is_index(step: &str) -> bool {
    step.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the names of a struct's fields, which serde passes to a deserializer before it reads any value.
fn fields_of<T: DeserializeOwned>() -> &'static [&'static str] {
    T::deserialize(FieldNames).err().map_or(&[], |Names(names)| names)
}

struct FieldNames;

/// The "error" of [`FieldNames`], which carries the names out.
#[derive(Debug)]
struct Names(&'static [&'static str]);

impl fmt::Display for Names {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0.join(", "))
    }
}

impl std::error::Error for Names {}

impl de::Error for Names {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self(&[])
    }
}

impl<'de> Deserializer<'de> for FieldNames {
    type Error = Names;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Names> {
        Err(Names(&[]))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Names> {
        Err(Names(fields))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_key_is_near_one_of_its_own_section() {
        for (path, expected) in [
            ("n_attemptz", Some("n_attempts")),
            ("agnets", Some("agents")),
            ("roltap", Some("rolltap")),
            ("agents.0.modelname", Some("model_name")),
            ("environment.tpye", Some("type")),
            ("environment.override_gpu", Some("override_gpus")),
            ("retry.max_retry", Some("max_retries")),
            ("datasets.1.registry_pth", Some("registry_path")),
            ("retry.n_attempts", None),
            ("agents.0.kwargs.x", None),
        ] {
            let steps: Vec<_> = path.split('.').collect();
            assert_eq!(nearest_to(&steps), expected, "{path}");
        }
    }
}
