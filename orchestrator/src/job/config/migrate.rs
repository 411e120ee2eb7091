//! Replaces old keys, and the keys of a single trial's file, by the keys of today's job files. Harbor 0.25 still
//! accepts both.

use serde_json::{Map, Value};

use super::ConfigError;

type Fields = Map<String, Value>;

/// Converts the file of a single trial to the file of a job with that trial only. The job gets the name and the parent
/// directory of the trial.
pub(super) fn trial(mut fields: Fields) -> Result<Fields, ConfigError> {
    let Some(task) = fields.remove("task") else { return Ok(fields) };
    for key in ["tasks", "agents", "datasets"] {
        if fields.contains_key(key) {
            let problem = "is a job's key, but `task` makes the file one of a single trial".to_owned();
            return Err(ConfigError::Value { key: key.to_owned(), problem });
        }
    }
    fields.insert("tasks".to_owned(), Value::Array(vec![task]));
    for (old, new) in [("trial_name", "job_name"), ("trials_dir", "jobs_dir")] {
        if let Some(value) = fields.remove(old) {
            fields.insert(new.to_owned(), value);
        }
    }
    // An empty `trial_name` means a generated name.
    if fields.get("job_name").and_then(Value::as_str) == Some("") {
        fields.remove("job_name");
    }
    if let Some(agent) = fields.remove("agent") {
        fields.insert("agents".to_owned(), Value::Array(vec![agent]));
    }
    Ok(fields)
}

/// Replaces the old keys of a job's file, with a warning for each.
pub(super) fn job(mut fields: Fields) -> Result<Fields, ConfigError> {
    for key in ["user_prompt_template_path", "acpx_config"] {
        if fields.contains_key(key) {
            let problem = "was removed from job files; Harbor refuses it too".to_owned();
            return Err(ConfigError::Value { key: key.to_owned(), problem });
        }
    }
    if fields.remove("plugins").is_some() {
        tracing::warn!("plugins: this old key does nothing, in Harbor neither");
    }
    if let Some(orchestrator) = fields.remove("orchestrator") {
        old("orchestrator", "n_concurrent_trials, quiet and retry at the top");
        if let Value::Object(mut orchestrator) = orchestrator {
            for key in ["n_concurrent_trials", "quiet", "retry"] {
                if let Some(value) = orchestrator.remove(key) {
                    // A new key in the same file has priority over the old key.
                    fields.entry(key).or_insert(value);
                }
            }
        }
    }
    let datasets = fields.get_mut("datasets").and_then(Value::as_array_mut);
    datasets.into_iter().flatten().filter_map(Value::as_object_mut).for_each(dataset);
    if let Some(section) = fields.get_mut("environment").and_then(Value::as_object_mut) {
        environment(section)?;
    }
    Ok(fields)
}

fn old(key: &str, new: &str) {
    tracing::warn!("{key}: this key is old; write {new}");
}

fn dataset(dataset: &mut Fields) {
    let Some(registry) = dataset.remove("registry") else { return };
    old("datasets[].registry", "registry_url or registry_path");
    let Value::Object(mut registry) = registry else { return };
    for (from, to) in [("url", "registry_url"), ("path", "registry_path")] {
        if let Some(value) = registry.remove(from) {
            dataset.entry(to).or_insert(value);
        }
    }
}

fn environment(section: &mut Fields) -> Result<(), ConfigError> {
    if let Some(mounts) = section.remove("mounts_json") {
        old("environment.mounts_json", "environment.mounts");
        section.entry("mounts").or_insert(mounts);
    }
    for key in ["cpu_enforcement_policy", "memory_enforcement_policy"] {
        if let Some(Value::String(policy)) = section.get_mut(key) {
            policy.make_ascii_lowercase();
        }
    }
    if let Some(Value::Array(lines)) = section.get("env") {
        old("environment.env as a list", "keys with values");
        let env = lines.iter().map(pair).collect::<Result<Fields, _>>()?;
        section.insert("env".to_owned(), Value::Object(env));
    }
    Ok(())
}

fn pair(line: &Value) -> Result<(String, Value), ConfigError> {
    let split = line.as_str().and_then(|line| line.split_once('='));
    let (key, value) = split.ok_or_else(|| ConfigError::Value {
        key: "environment.env".to_owned(),
        problem: format!("{line} is not KEY=VALUE"),
    })?;
    Ok((key.trim().to_owned(), Value::String(value.trim().to_owned())))
}
