//! An agent that a shell command starts. It gets the model's URL and key in the usual environment variables, and the
//! instruction in a variable and in a file.

use std::collections::BTreeMap;

use serde_json::{Map, json};

use super::instruction::INSTRUCTION_FILE;
use super::{AgentOutcome, Assignment};
use crate::environment::{EnvironmentError, Exec, ExecOutput};
use crate::failure::{Cause, Phase, TrialFailure};

/// Linux limits a single environment variable to 128 KiB. A longer instruction is only in the file.
const LONGEST_VARIABLE: usize = 100 * 1024;
/// The folder in the agent's logs for the task's trajectory. A trajectory in the logs themselves would be taken for the
/// agent's own record.
const HANDED_OVER: &str = "given";
const TRAJECTORY_FILE: &str = "trajectory.json";

pub(super) async fn run(
    command: &str,
    extra: &BTreeMap<String, String>,
    assignment: &Assignment<'_>,
) -> AgentOutcome {
    let worked = async {
        let instruction = super::instruction::put(assignment, "").await?;
        let output = execute(command, extra, &instruction, assignment).await;
        let output =
            output.map_err(|error| TrialFailure::from_error(Phase::Agent, Cause::Environment, &error))?;
        keep_output(&output, assignment).await?;
        Ok::<_, TrialFailure>(output)
    };
    match worked.await {
        Ok(output) => judge(&output, assignment),
        Err(failure) => failure.into(),
    }
}

/// Writes the agent's output to the trial's `agent/` folder.
pub(super) async fn keep_output(
    output: &ExecOutput,
    assignment: &Assignment<'_>,
) -> Result<(), TrialFailure> {
    let (stdout, stderr) = (assignment.logs.join("stdout.txt"), assignment.logs.join("stderr.txt"));
    let written =
        tokio::try_join!(tokio::fs::write(stdout, &output.stdout), tokio::fs::write(stderr, &output.stderr));
    let failed = |error: std::io::Error| TrialFailure::from_error(Phase::Agent, Cause::Internal, &error);
    written.map(drop).map_err(failed)
}

async fn execute(
    command: &str,
    extra: &BTreeMap<String, String>,
    instruction: &str,
    assignment: &Assignment<'_>,
) -> Result<ExecOutput, EnvironmentError> {
    let mut env = variables(assignment);
    let inside = &assignment.environment.paths().agent_logs;
    env.insert("ROLLTAP_INSTRUCTION_FILE".to_owned(), format!("{inside}/{INSTRUCTION_FILE}"));
    if instruction.len() <= LONGEST_VARIABLE {
        env.insert("ROLLTAP_INSTRUCTION".to_owned(), instruction.to_owned());
    }
    env.extend(handed_over(assignment).await?);
    // The user's own variables have priority over all others.
    env.extend(extra.clone());
    let exec = Exec {
        // As in the instruction, Harbor's paths are replaced by those of the local environment.
        command: assignment.environment.instruction(command),
        env,
        user: assignment.task.config.agent.user.clone(),
        timeout: assignment.timeout,
        // Background processes of the agent must not outlive its time limit.
        kills_orphans: true,
        ..Exec::default()
    };
    assignment.environment.exec(exec).await
}

/// Returns variables for MCP servers, skills and trajectory, each only if the task has it.
async fn handed_over(assignment: &Assignment<'_>) -> Result<BTreeMap<String, String>, EnvironmentError> {
    let Assignment { environment, task, mcp_servers, skills_dir, .. } = assignment;
    let mut env = BTreeMap::new();
    if !mcp_servers.is_empty() {
        env.insert("ROLLTAP_MCP_SERVERS".to_owned(), json!(mcp_servers).to_string());
    }
    if let Some(dir) = skills_dir {
        env.insert("ROLLTAP_SKILLS_DIR".to_owned(), environment.instruction(dir));
    }
    if let Some(trajectory) = &task.trajectory {
        let staging = |source| EnvironmentError::Io { action: "copy", path: trajectory.clone(), source };
        let dir = tempfile::tempdir().map_err(staging)?;
        tokio::fs::copy(trajectory, dir.path().join(TRAJECTORY_FILE)).await.map_err(staging)?;
        let inside = format!("{}/{HANDED_OVER}", environment.paths().agent_logs);
        environment.upload(dir.path(), &inside).await?;
        env.insert("ROLLTAP_TRAJECTORY_FILE".to_owned(), format!("{inside}/{TRAJECTORY_FILE}"));
    }
    Ok(env)
}

/// Returns the same URL and key under every name that agents read (Claude Code, Codex, mini-swe-agent, OpenHands,
/// Gemini CLI, litellm and the official clients).
fn variables(assignment: &Assignment<'_>) -> BTreeMap<String, String> {
    let urls = assignment.urls_inside;
    let key = &assignment.trial.key;
    let mut pairs = vec![
        ("OPENAI_BASE_URL", &urls.openai),
        ("OPENAI_API_BASE", &urls.openai),
        ("LLM_BASE_URL", &urls.openai),
        ("ANTHROPIC_BASE_URL", &urls.anthropic),
        ("GOOGLE_GEMINI_BASE_URL", &urls.gemini),
        ("OPENAI_API_KEY", key),
        ("ANTHROPIC_API_KEY", key),
        ("GEMINI_API_KEY", key),
        ("LLM_API_KEY", key),
    ];
    let model = assignment.model.map(str::to_owned);
    if let Some(model) = &model {
        pairs.extend([("OPENAI_MODEL", model), ("ANTHROPIC_MODEL", model), ("LLM_MODEL", model)]);
    }
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value.clone())).collect()
}

/// Judges the agent by its exit code.
pub(super) fn judge(output: &ExecOutput, assignment: &Assignment<'_>) -> AgentOutcome {
    let mut outcome = match output.exit_code {
        _ if output.timed_out => AgentOutcome::timed_out(assignment),
        Some(0) => AgentOutcome::default(),
        Some(code) => AgentOutcome::failed(
            Cause::NonZeroAgentExitCode,
            format!("the agent's command ended with exit code {code}"),
        ),
        None => {
            AgentOutcome::failed(Cause::NonZeroAgentExitCode, "the agent's command was killed by a signal")
        }
    };
    outcome.metadata = Map::from_iter([
        ("exit_code".to_owned(), json!(output.exit_code)),
        ("output_truncated".to_owned(), json!(output.truncated)),
    ]);
    outcome
}
