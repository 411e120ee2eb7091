//! Runs the task's own commands before artifacts are collected.

use std::time::Duration;

use crate::environment::{Environment, EnvironmentError, Exec};
use crate::failure::chain;
use crate::task::{Collect, MAIN_SERVICE};

/// Runs a command of the task before artifacts are collected.
///
/// # Errors
/// Returns the problem as a predicate, to be written after the command's name.
pub(crate) async fn run_hook(environment: &Environment, hook: &Collect) -> Result<(), String> {
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
        code => Err(format!("ended with {code:?}: {}", output.last_words())),
    }
}
