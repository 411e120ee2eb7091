//! The oracle: uploads the task's `solution/` and runs `solve.sh`, as Harbor's does.

use std::collections::BTreeMap;

use super::{AgentOutcome, Assignment};
use crate::environment::{EnvironmentError, Exec, ExecOutput};
use crate::trial::Cause;

pub(super) async fn run(assignment: &Assignment<'_>) -> AgentOutcome {
    let output = match solve(assignment).await {
        Ok(output) => output,
        Err(error) => return error.into(),
    };
    let log = assignment.logs.join("oracle.txt");
    if let Err(error) = tokio::fs::write(log, [output.stdout, output.stderr].concat()).await {
        return error.into();
    }
    match output.exit_code {
        _ if output.timed_out => AgentOutcome::timed_out(assignment),
        // Unlike Harbor's, which leaves a note and lets the tests tell: a solution that fails is worth a name.
        Some(code) if code != 0 => {
            AgentOutcome::failed(Cause::NonZeroAgentExitCode, format!("solve.sh ended with exit code {code}"))
        }
        _ => AgentOutcome::default(),
    }
}

async fn solve(assignment: &Assignment<'_>) -> Result<ExecOutput, EnvironmentError> {
    let Assignment { task, environment, .. } = assignment;
    let solution = &environment.paths().solution;
    environment.upload(&task.solution_dir(), solution).await?;
    let mut env = BTreeMap::from([("DEBIAN_FRONTEND".to_owned(), "noninteractive".to_owned())]);
    env.extend(task.config.solution.env.clone());
    let command = format!("chmod +x '{solution}/solve.sh' && '{solution}/solve.sh'");
    environment.exec(Exec { command, env, timeout: assignment.timeout, ..Exec::default() }).await
}
