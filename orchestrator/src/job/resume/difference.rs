//! Finds the first difference of two configurations that may change results.

use serde_json::Value;

/// The keys of a job that do not change its results: its place, its concurrency and its output.
const FREE: [&str; 5] = ["job_name", "jobs_dir", "n_concurrent_trials", "debug", "quiet"];
/// The same keys of the section `rolltap`, with the servers and the version of rolltap.
const FREE_OWN: [&str; 8] = [
    "version",
    "job_id",
    "upstream",
    "proxy",
    "listen",
    "public_url",
    "n_concurrent_per_task",
    "auto_concurrency",
];
/// The same keys of an agent.
const FREE_OF_AGENT: [&str; 2] = ["n_concurrent", "concurrency_group"];

/// The first difference of two configurations.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::job) struct Difference {
    /// The path of the setting, as in `agents[0].name`.
    pub(in crate::job) key: String,
    /// Its earlier value, as JSON.
    pub(in crate::job) before: String,
    /// Its present value, as JSON.
    pub(in crate::job) now: String,
}

/// Returns the first difference of two configurations of jobs that may change results. `before` was read from a file.
pub(super) fn difference_of_jobs(before: &Value, now: &Value) -> Option<Difference> {
    difference(&comparable(before), &comparable(&as_read(now)))
}

/// Returns a value as a reader of its file gets it. Numbers change their form when they are written.
pub(in crate::job) fn as_read(value: &Value) -> Value {
    serde_json::to_string(value).ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

/// Returns a job's settings without those that may differ between its runs.
fn comparable(config: &Value) -> Value {
    let mut config = config.clone();
    remove(&mut config, &FREE);
    if let Some(own) = config.get_mut("rolltap") {
        remove(own, &FREE_OWN);
    }
    for agent in config.get_mut("agents").and_then(Value::as_array_mut).into_iter().flatten() {
        remove(agent, &FREE_OF_AGENT);
    }
    config
}

fn remove(object: &mut Value, keys: &[&str]) {
    let Some(fields) = object.as_object_mut() else { return };
    keys.iter().for_each(|key| drop(fields.remove(*key)));
}

/// Returns the first difference of two values.
pub(in crate::job) fn difference(before: &Value, now: &Value) -> Option<Difference> {
    difference_at("", before, now)
}

fn difference_at(key: &str, before: &Value, now: &Value) -> Option<Difference> {
    let below = |step: &str| match (key, step.starts_with('[')) {
        ("", _) => step.to_owned(),
        (_, true) => format!("{key}{step}"),
        (_, false) => format!("{key}.{step}"),
    };
    match (before, now) {
        (Value::Object(before), Value::Object(now)) => {
            let keys = before.keys().chain(now.keys().filter(|key| !before.contains_key(*key)));
            let absent = Value::Null;
            keys.into_iter().find_map(|name| {
                let (before, now) = (before.get(name).unwrap_or(&absent), now.get(name).unwrap_or(&absent));
                difference_at(&below(name), before, now)
            })
        }
        (Value::Array(before), Value::Array(now)) if before.len() == now.len() => {
            let mut pairs = before.iter().zip(now).enumerate();
            pairs.find_map(|(at, (before, now))| difference_at(&below(&format!("[{at}]")), before, now))
        }
        _ if before == now => None,
        _ => Some(Difference { key: key.to_owned(), before: short(before), now: short(now) }),
    }
}

/// Shortens a value for an error message.
fn short(value: &Value) -> String {
    const LENGTH: usize = 200;
    let text = value.to_string();
    if text.chars().count() <= LENGTH {
        text
    } else {
        text.chars().take(LENGTH).chain("…".chars()).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_difference_has_its_path_and_both_values() {
        let job = |model: &str, tasks: Value| json!({"agents": [{"model_name": model}], "tasks": tasks, "job_name": model});
        let one = job("a", json!([{"path": "/t"}]));
        assert_eq!(difference_of_jobs(&one, &one), None);
        let place = |other: &Value| {
            let Difference { key, before, now } = difference_of_jobs(&one, other).unwrap();
            format!("{key}: {before} -> {now}")
        };
        assert_eq!(place(&job("b", json!([{"path": "/t"}]))), r#"agents[0].model_name: "a" -> "b""#);
        assert_eq!(place(&job("a", json!([]))), r#"tasks: [{"path":"/t"}] -> []"#);
        let mut more = one.clone();
        more["retry"] = json!({"max_retries": 1});
        assert_eq!(place(&more), r#"retry: null -> {"max_retries":1}"#);
    }

    #[test]
    fn settings_that_do_not_change_results_may_differ() {
        let job = |value: u64, name: &str| {
            json!({
                "n_concurrent_trials": value, "n_attempts": 2, "job_name": name, "jobs_dir": name,
                "agents": [{"name": "nop", "n_concurrent": value, "concurrency_group": name}],
                "rolltap": {"version": name, "upstream": [name], "n_concurrent_per_task": value, "auto_concurrency": value == 8, "history": "off"},
            })
        };
        assert_eq!(difference_of_jobs(&job(4, "a"), &job(8, "b")), None);
    }

    proptest::proptest! {
        #[test]
        fn no_configuration_panics(one in text(), other in text()) {
            let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
            let (one, other) = (parse(&one), parse(&other));
            proptest::prop_assert_eq!(difference_of_jobs(&one, &one), None);
            difference_of_jobs(&one, &other);
        }
    }

    fn text() -> impl proptest::strategy::Strategy<Value = String> {
        let key = r#""(agents|rolltap|n_concurrent|tasks)""#;
        let regex = format!(r"\{{({key}:(1|null|\[1,\{{\}}\]|\{{{key}:2\}}))?\}}");
        proptest::string::string_regex(&regex).unwrap()
    }
}
