//! The oracle: uploads the task's `solution/` and runs `solve.sh`, as Harbor's oracle does.

use std::collections::BTreeMap;

use serde_json::{Map, json};

use super::{AgentOutcome, Assignment};
use crate::environment::{EnvironmentError, Exec, ExecOutput};

pub(super) async fn run(assignment: &Assignment<'_>) -> AgentOutcome {
    let output = match solve(assignment).await {
        Ok(output) => output,
        Err(error) => return error.into(),
    };
    let log = assignment.logs.join("oracle.txt");
    if let Err(error) = tokio::fs::write(log, [output.stdout, output.stderr].concat()).await {
        return error.into();
    }
    if output.timed_out {
        return AgentOutcome::timed_out(assignment);
    }
    if let Some(code) = output.exit_code.filter(|code| *code != 0) {
        // As in Harbor, the exit code is only recorded, and the tests decide.
        let note = tokio::fs::write(assignment.logs.join("exit-code.txt"), code.to_string()).await;
        if let Err(error) = note {
            return error.into();
        }
    }
    let exit_code = ("exit_code".to_owned(), json!(output.exit_code));
    AgentOutcome { metadata: Map::from_iter([exit_code]), ..AgentOutcome::default() }
}

async fn solve(assignment: &Assignment<'_>) -> Result<ExecOutput, EnvironmentError> {
    let Assignment { task, environment, .. } = assignment;
    let solution = &environment.paths().solution;
    environment.upload(&task.solution_dir(), solution).await?;
    let mut env = BTreeMap::from([("DEBIAN_FRONTEND".to_owned(), "noninteractive".to_owned())]);
    env.extend(task.config.solution.env.clone());
    let (make_ready, run) = (format!("chmod +x '{solution}/solve.sh'"), format!("'{solution}/solve.sh'"));
    let user = task.config.agent.user.clone();
    let exec =
        |command| Exec { command, env, user: user.clone(), timeout: assignment.timeout, ..Exec::default() };
    if environment.runs_as_root(user.as_deref()) {
        return environment.exec(exec(format!("{make_ready} && {run}"))).await;
    }
    // A user without root may not change the mode of uploaded files.
    let root = Exec { command: make_ready, user: Some("0".to_owned()), ..Exec::default() };
    environment.exec(root).await?;
    environment.exec(exec(run)).await
}
