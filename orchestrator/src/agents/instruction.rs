//! Writes the instruction to a file in the environment, because it may be longer than an argument or a variable.

use super::Assignment;
use crate::failure::{Cause, Phase, TrialFailure};

/// The name of the file in the agent's logs.
pub(super) const INSTRUCTION_FILE: &str = "instruction.md";

/// Writes the instruction, followed by `more`, to the environment. Returns its text.
pub(super) async fn put(assignment: &Assignment<'_>, more: &str) -> Result<String, TrialFailure> {
    let instruction = assignment.environment.instruction(&format!("{}{more}", assignment.task.instruction));
    let file = assignment.logs.join(INSTRUCTION_FILE);
    let written = tokio::fs::write(file, &instruction).await;
    written.map_err(|error| TrialFailure::from_error(Phase::Agent, Cause::Internal, &error))?;
    let inside = &assignment.environment.paths().agent_logs;
    let uploaded = assignment.environment.upload(assignment.logs, inside).await;
    uploaded.map_err(|error| TrialFailure::from_error(Phase::Agent, Cause::Environment, &error))?;
    Ok(instruction)
}
