//! Waits until an environment is healthy, by the rules of Docker's HEALTHCHECK and of Harbor.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::common::words::counted;
use crate::environment::{Environment, EnvironmentError, Exec, ExecOutput, Tail};
use crate::task::Healthcheck;

/// Why an environment is not ready.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HealthcheckError {
    /// The check failed too often.
    #[error("the health check failed {} in a row: {command:?}{last}", counted(u64::from(*.retries), "time"))]
    Unhealthy { retries: u32, command: String, last: String },
    /// The check cannot run.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
}

/// Runs the check as this user until it exits with 0. Failures within the start period do not count. A check that
/// exceeds its time limit counts as a failure, whereas Harbor then gives up at once.
pub(crate) async fn wait_until_healthy(
    environment: &Environment,
    check: &Healthcheck,
    user: Option<&str>,
) -> Result<(), HealthcheckError> {
    let once = || {
        environment.exec(Exec {
            command: environment.instruction(&check.command),
            user: user.map(str::to_owned),
            timeout: Some(seconds(check.timeout_sec)),
            ..Exec::default()
        })
    };
    let start_period_end = Instant::now() + seconds(check.start_period_sec);
    let mut failures = 0;
    loop {
        // Measured before the check: a check that begins in the start period belongs to it.
        let in_start_period = Instant::now() < start_period_end;
        let output = once().await?;
        if output.exit_code == Some(0) {
            return Ok(());
        }
        if in_start_period {
            sleep(seconds(check.start_interval_sec)).await;
            continue;
        }
        failures += 1;
        if failures >= check.retries {
            let (retries, command) = (failures, check.command.clone());
            return Err(HealthcheckError::Unhealthy { retries, command, last: last_words(&output) });
        }
        sleep(seconds(check.interval_sec)).await;
    }
}

fn last_words(output: &ExecOutput) -> String {
    let mut tail = Tail::default();
    for stream in [&output.stdout, &output.stderr] {
        tail.push(&String::from_utf8_lossy(stream));
    }
    let text = tail.text();
    let line = text.lines().next_back().unwrap_or_default().trim();
    match output.exit_code {
        _ if output.timed_out => "; the last one ran out of time".to_owned(),
        Some(code) if line.is_empty() => format!("; the last one ended with exit code {code}"),
        Some(code) => format!("; the last one ended with exit code {code}: {line}"),
        None => "; the last one was killed".to_owned(),
    }
}

/// Converts seconds to a duration. The task's loader has checked that they are valid.
fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value).unwrap_or_default()
}
