//! Runs Harbor's Terminus-2: a process of this host, in a Python that has Harbor. The agent calls the model through the
//! proxy. It sends requests for commands in the environment to rolltap as lines of JSON ([`DRIVER`]).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use super::{AgentOutcome, Assignment, LayerError};
use crate::environment::Exec;
use crate::failure::{Cause, Phase, TrialFailure};

/// The Python program on the other side of the protocol.
const DRIVER: &str = include_str!("terminus_2.py");

/// Terminus-2 with its options, which are those of Harbor's class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Terminus2 {
    #[serde(flatten)]
    options: Map<String, Value>,
    #[serde(skip)]
    env: BTreeMap<String, String>,
    /// The Python that has Harbor.
    #[serde(skip)]
    python: PathBuf,
}

/// A message from the agent.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Said {
    /// A request to run a command.
    Exec(Terminus2Request),
    /// The agent ended by itself.
    Done(Map<String, Value>),
    /// The agent ended with an exception.
    Failed { kind: String, message: String },
}

#[derive(Debug, PartialEq, Deserialize)]
struct Terminus2Request {
    command: String,
    cwd: Option<String>,
    env: BTreeMap<String, String>,
    timeout_sec: Option<f64>,
    user: Option<String>,
}

impl Terminus2 {
    /// Creates the agent with this Python. `None` for `python3` from `PATH`.
    pub(super) fn new(
        options: Map<String, Value>,
        env: BTreeMap<String, String>,
        python: Option<&Path>,
    ) -> Self {
        Self { options, env, python: crate::agents::harbor_agent::python(python) }
    }

    /// Checks before the first trial that the Python has Harbor.
    pub(super) async fn find(&self) -> Result<(), LayerError> {
        let mut command = Command::new(&self.python);
        command
            .args(["-c", "from harbor.agents.terminus_2 import Terminus2"])
            .stdin(Stdio::null())
            .kill_on_drop(true);
        match command.output().await {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                Err(no_harbor(&self.python, said.trim().lines().last().unwrap_or_default()))
            }
            Err(error) => Err(no_harbor(&self.python, &error.to_string())),
        }
    }

    pub(super) async fn run(&self, assignment: &Assignment<'_>) -> AgentOutcome {
        let limit = assignment.timeout.unwrap_or(Duration::MAX);
        // At the timeout the future is dropped, which kills the process.
        match tokio::time::timeout(limit, Box::pin(self.work(assignment))).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(failure)) => failure.into(),
            Err(_) => AgentOutcome::timed_out(assignment),
        }
    }

    async fn work(&self, assignment: &Assignment<'_>) -> Result<AgentOutcome, TrialFailure> {
        let instruction = super::instruction::put(assignment, "").await?;
        let mut child = self.spawn(assignment.logs).map_err(|error| internal(&error))?;
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(TrialFailure::new(
                Phase::Agent,
                Cause::Internal,
                "Terminus-2 was started without pipes",
            ));
        };
        let start = json!({
            "key": assignment.trial.key, "base_url": assignment.trial.base_urls.openai, "model": assignment.model,
            "session_id": assignment.trial.trial_id, "user": assignment.task.config.agent.user,
            "logs": assignment.logs, "options": self.options, "instruction": instruction,
            "mcp_servers": assignment.mcp_servers, "skills_dir": assignment.skills_dir,
        });
        tell(&mut stdin, &start).await?;
        let mut lines = BufReader::new(stdout).lines();
        while let Some(line) = lines.next_line().await.map_err(|error| internal(&error))? {
            match understand(&line)? {
                Said::Exec(request) => tell(&mut stdin, &obey(request, assignment).await).await?,
                Said::Done(metadata) => return Ok(AgentOutcome { metadata, ..AgentOutcome::default() }),
                Said::Failed { kind, message } => return Err(failure(&kind, &message)),
            }
        }
        // The output ended without a final message.
        Err(died(&mut child, assignment.logs).await)
    }

    fn spawn(&self, logs: &Path) -> std::io::Result<Child> {
        // A pipe would need a reader beside the protocol, or the process would block on it.
        let errors = std::fs::File::create(logs.join("stderr.txt"))?;
        let mut command = Command::new(&self.python);
        // LiteLLM would fetch a list of prices at import, and Harbor would send telemetry.
        command.args(["-u", "-c", DRIVER]).envs(&self.env);
        command.env("LITELLM_LOCAL_MODEL_COST_MAP", "True").env("HARBOR_TELEMETRY", "0");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors).kill_on_drop(true).spawn()
    }
}

fn no_harbor(python: &Path, why: &str) -> LayerError {
    LayerError::NoHarbor { python: python.to_owned(), why: why.to_owned() }
}

fn internal(error: &dyn std::error::Error) -> TrialFailure {
    TrialFailure::from_error(Phase::Agent, Cause::Internal, error)
}

fn understand(line: &str) -> Result<Said, TrialFailure> {
    serde_json::from_str(line).map_err(|error| internal(&error))
}

async fn tell(stdin: &mut ChildStdin, value: &Value) -> Result<(), TrialFailure> {
    stdin.write_all(format!("{value}\n").as_bytes()).await.map_err(|error| internal(&error))
}

/// Runs a requested command. An error of the environment is returned to the agent, which may try again.
async fn obey(request: Terminus2Request, assignment: &Assignment<'_>) -> Value {
    let Terminus2Request { command, cwd, env, timeout_sec, user } = request;
    let exec = Exec {
        command: assignment.environment.instruction(&command),
        env,
        cwd,
        user: user.or_else(|| assignment.task.config.agent.user.clone()),
        timeout: timeout_sec.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
        kills_orphans: false,
    };
    match assignment.environment.exec(exec).await {
        Ok(output) => json!({
            "error": null, "timed_out": output.timed_out, "return_code": output.exit_code.unwrap_or(-1),
            "stdout": String::from_utf8_lossy(&output.stdout), "stderr": String::from_utf8_lossy(&output.stderr),
        }),
        Err(error) => json!({"error": crate::failure::chain(&error)}),
    }
}

fn failure(kind: &str, message: &str) -> TrialFailure {
    let cause = match kind {
        "ContextLengthExceededError" => Cause::ContextLengthExceeded,
        _ => Cause::ModelApi,
    };
    TrialFailure::new(Phase::Agent, cause, format!("Terminus-2 ended with {kind}: {message}"))
}

async fn died(child: &mut Child, logs: &Path) -> TrialFailure {
    let ended = child.wait().await.map_or_else(|error| error.to_string(), |status| status.to_string());
    let said = tokio::fs::read_to_string(logs.join("stderr.txt")).await.unwrap_or_default();
    let last = said.trim().lines().last().unwrap_or_default();
    TrialFailure::new(Phase::Agent, Cause::Internal, format!("Terminus-2 died ({ended}): {last}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_failures_have_harbors_names() {
        let line = r#"{"failed": {"kind": "ContextLengthExceededError", "message": "too long"}}"#;
        let Said::Failed { kind, message } = understand(line).unwrap() else { panic!("no failure") };
        let failed = failure(&kind, &message);
        assert_eq!(failed.cause, Cause::ContextLengthExceeded);
        assert_eq!(failed.message, "Terminus-2 ended with ContextLengthExceededError: too long");
        assert_eq!(failure("APIError", "").cause, Cause::ModelApi);
    }

    proptest::proptest! {
        #[test]
        fn any_line_is_understood_or_refused(line in "\\PC{0,80}", command in "\\PC{0,40}") {
            let _ = understand(&line);
            let exec = json!({"exec": {"command": command, "cwd": null, "env": {}, "timeout_sec": 1.5, "user": null}});
            let Said::Exec(request) = understand(&exec.to_string()).unwrap() else { panic!("no command") };
            proptest::prop_assert_eq!(request.command, command);
        }
    }
}
