//! Writes a job as the content of a file that makes the same job.

use serde::Serialize;
use serde_json::{Map, Value};

use super::{AgentEntry, JobConfig, JobFile, OWN, OwnConfig};
use crate::common::secret_env::without_secrets;

impl JobFile {
    /// Returns the content of the file, without keys that have their default. Values that look like secrets become
    /// references to variables of this host. The API key of the upstreams is left out, and so is the URL of an HTTP proxy
    /// with a password.
    pub fn to_value(&self) -> Value {
        let Self { mut job, mut own } = self.clone();
        own.upstream_api_key = None;
        own.upstream_http_proxy = own.upstream_http_proxy.filter(|url| !url.contains('@'));
        job.environment.env = without_secrets(&job.environment.env);
        job.verifier.env = without_secrets(&job.verifier.env);
        for agent in job.agents.iter_mut().flatten() {
            agent.env = without_secrets(&agent.env);
        }
        let mut fields = given(&job, &JobConfig::default());
        if let Some(agents) = &job.agents {
            let agents = agents.iter().map(|agent| given(agent, &AgentEntry::default()));
            fields.insert("agents".to_owned(), agents.map(Value::Object).collect());
        }
        let own = given(&own, &OwnConfig::default());
        if !own.is_empty() {
            fields.insert(OWN.to_owned(), Value::Object(own));
        }
        Value::Object(fields)
    }
}

/// Returns the keys of a table that differ from the default.
fn given<T: Serialize>(table: &T, default: &T) -> Map<String, Value> {
    match (serde_json::to_value(table), serde_json::to_value(default)) {
        (Ok(Value::Object(table)), Ok(Value::Object(default))) => difference(table, &default),
        _ => Map::new(),
    }
}

fn difference(table: Map<String, Value>, default: &Map<String, Value>) -> Map<String, Value> {
    let differs = |(key, value): (String, Value)| match (value, default.get(&key)) {
        (value, Some(default)) if value == *default => None,
        (Value::Object(table), Some(Value::Object(default))) => {
            Some((key, Value::Object(difference(table, default))))
        }
        (value, _) => Some((key, without_nulls(value))),
    };
    table.into_iter().filter_map(differs).collect()
}

/// Removes the absent keys of the tables in a list.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        Value::Object(fields) => {
            let is_given = |(_, value): &(String, Value)| !value.is_null();
            let given = fields.into_iter().filter(is_given).map(|(key, value)| (key, without_nulls(value)));
            Value::Object(given.collect())
        }
        value => value,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_file_is_written_as_it_was_read() {
        let file = json!({
            "job_name": "it",
            "n_attempts": 3,
            "quiet": true,
            "timeout_multiplier": 2.5,
            "retry": {"max_retries": 2},
            "environment": {"type": "docker", "override_cpus": 1.5, "delete": false, "env": {"MODE": "fast"}},
            "verifier": {"disable": true},
            "metrics": [{"type": "sum"}],
            "agents": [
                {"name": "terminal", "model_name": "m", "kwargs": {"max_turns": 7}, "n_concurrent": 2},
                {"name": "codex", "mcp_servers": [
                    {"name": "a", "transport": "stdio", "command": "c", "args": ["x"]},
                    {"name": "b", "transport": "sse", "url": "http://b", "headers": {}},
                ]},
            ],
            "datasets": [{"path": "tasks", "task_names": ["a-*"], "n_tasks": 4}],
            "tasks": [{"path": "one"}, {"git_url": "https://example.org/x.git", "path": "two"}],
            "artifacts": [{"source": "/a", "exclude": ["*.o"]}],
            "extra_instructions": ["Be brief."],
            "rolltap": {
                "upstream": ["http://127.0.0.1:8000"],
                "listen": "127.0.0.1:9000",
                "public_url": "http://h:9000",
                "history": "sampled",
                "sampling": {"temperature": 0.5},
                "reward": "a=0.5,b=1",
                "task_rewards": {"x-*": "mean"},
                "trial_deadline_sec": 60.0,
            },
        });
        let once = JobFile::of(file).unwrap().to_value();
        let twice = JobFile::of(once.clone()).unwrap().to_value();
        assert_eq!(once, twice, "nothing is lost when it is read again");
        for pointer in [
            "/retry/max_retries",
            "/agents/1/mcp_servers/0/command",
            "/rolltap/reward",
            "/datasets/0/n_tasks",
        ] {
            assert!(once.pointer(pointer).is_some(), "{pointer}: {once}");
        }
        assert_eq!(
            once["agents"][0],
            json!({"name": "terminal", "model_name": "m", "kwargs": {"max_turns": 7}, "n_concurrent": 2})
        );
    }

    #[test]
    fn secrets_are_not_written() {
        let file = json!({
            "agents": [{"name": "codex", "env": {"API_KEY": "sk-1", "MODE": "x"}}],
            "rolltap": {"upstream_api_key": "sk-2", "upstream_http_proxy": "http://user:word@proxy.example:3128"},
        });
        let written = JobFile::of(file).unwrap().to_value();
        assert_eq!(
            written,
            json!({"agents": [{"name": "codex", "env": {"API_KEY": "${API_KEY}", "MODE": "x"}}]})
        );
    }
}
