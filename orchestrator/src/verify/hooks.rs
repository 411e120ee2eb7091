//! Runs the task's own commands after the agent's time, before artifacts are collected.

use std::time::Duration;

use super::VerificationContext;
use crate::environment::{Environment, EnvironmentError, Exec};
use crate::failure::chain;
use crate::task::{Collect, MAIN_SERVICE, Task};

/// Runs all commands in their order. A failed command is logged and does not prevent the tests.
pub(crate) async fn run_hooks<C: VerificationContext>(context: &C, environment: &Environment, task: &Task) {
    for hook in &task.config.verifier.collect {
        // A command of the task may take long, so none starts after the trial's time.
        if let Some(failure) = context.time_is_over() {
            context.log_line(format!("not run before collecting: {:?}: {failure}", hook.command));
            continue;
        }
        let problem = match context.bounded(Box::pin(run_hook(environment, hook))).await {
            Ok(Ok(())) => continue,
            Ok(Err(problem)) => problem,
            Err(failure) => format!("did not end: {failure}"),
        };
        context.log_line(format!("the command before collecting, {:?}, {problem}", hook.command));
    }
}

/// Runs one command.
///
/// # Errors
/// Returns the problem as a predicate, to be written after the command's name.
async fn run_hook(environment: &Environment, hook: &Collect) -> Result<(), String> {
    let not_run = |error: EnvironmentError| format!("did not run: {}", chain(&error));
    let service = match hook.service.as_str() {
        MAIN_SERVICE => None,
        name => Some(environment.service(name).await.map_err(not_run)?),
    };
    let environment = service.as_ref().unwrap_or(environment);
    let exec = Exec {
        command: environment.instruction(&hook.command),
        user: hook.user.clone(),
        timeout: Duration::try_from_secs_f64(hook.timeout_sec).ok(),
        ..Exec::default()
    };
    let output = Box::pin(environment.exec(exec)).await.map_err(not_run)?;
    match output.exit_code {
        Some(0) => Ok(()),
        _ if output.timed_out => Err("ran out of time".to_owned()),
        Some(code) => Err(format!("ended with exit code {code}: {}", output.last_words())),
        None => Err(format!("was killed: {}", output.last_words())),
    }
}
