//! Runs a task's tests in an environment and downloads their logs.

use std::path::Path;
use std::time::Duration;

use super::reward_files::{self, JSON, TEXT};
use super::{Rewards, VerificationContext, VerifierError, verifier_failure};
use crate::environment::{Environment, EnvironmentError, Exec, ExecOutput, LogDirs, OUTPUT_LIMIT};
use crate::failure::{Phase, TimeoutPolicy, TrialFailure, environment_failure};
use crate::task::Task;

pub(super) const OUTPUT: &str = "test-stdout.txt";
/// A marker that the script prints if the tests did not begin.
const NOT_READY: &str = "rolltap-not-ready";

/// A task's tests in an environment that has the tests' network access.
pub(crate) struct Tests<'a> {
    task: &'a Task,
    environment: &'a Environment,
}

impl<'a> Tests<'a> {
    /// Gives the environment the network access of the tests.
    ///
    /// # Errors
    /// Fails if the environment fails.
    pub(crate) async fn prepare(
        task: &'a Task,
        environment: &'a Environment,
    ) -> Result<Self, EnvironmentError> {
        let network = match &task.separate_verifier {
            Some(separate) => &separate.environment.network,
            None => &task.network,
        };
        environment.set_network(&network.verifier).await?;
        Ok(Self { task, environment })
    }

    /// Runs the tests within the task's time limit under this policy.
    ///
    /// # Errors
    /// Those of [`verify`].
    pub(crate) async fn run(
        &self,
        logs: &LogDirs,
        timeouts: &TimeoutPolicy,
    ) -> Result<Rewards, VerifierError> {
        let limit = timeouts.verifier(self.task.config.verifier.timeout_sec);
        verify(self.task, self.environment, logs, limit).await
    }
}

/// Prepares and runs the tests of a trial or an episode. The environment is the task's separate verifier's, if it has
/// one.
///
/// # Errors
/// Returns the failure if there are no rewards.
pub(crate) async fn run_tests<C: VerificationContext>(
    context: &C,
    environment: &Environment,
    task: &Task,
    logs: &LogDirs,
) -> Result<Rewards, TrialFailure> {
    let prepared = Tests::prepare(task, environment).await;
    let tests = prepared.map_err(|error| environment_failure(Phase::Verifier, &error))?;
    let run = Box::pin(tests.run(logs, context.timeouts()));
    context.bounded(run).await?.map_err(|error| verifier_failure(&error))
}

/// Uploads `tests/`, runs `test.sh`, downloads all logs, and reads the reward. The output of the tests goes to
/// `logs.verifier`, with all files that they left in `/logs/verifier`.
///
/// The exit code of `test.sh` does not count. Rewards from before the tests do not count either.
///
/// # Errors
/// Fails if there is no valid reward, the time limit passes, or the environment or this host fails.
pub async fn verify(
    task: &Task,
    env: &Environment,
    logs: &LogDirs,
    limit: Option<Duration>,
) -> Result<Rewards, VerifierError> {
    let separate = task.separate_verifier.as_deref();
    upload(task, env, logs).await?;
    reward_files::remove_stale(&logs.verifier).await?;
    let run = run_script(task, env, limit).await?;
    let mut truncated = Vec::new();
    if run.truncated {
        truncated.push(format!("{OUTPUT}: only the first {OUTPUT_LIMIT} bytes are stored"));
    }
    let downloaded = match separate {
        // The other log directories of this environment have no files of the agent.
        Some(_) => fetch_verifiers(env, logs, &mut truncated).await,
        None => fetch(env, logs, &mut truncated).await,
    };
    let output = logs.verifier.join(OUTPUT);
    // The output is written even after a failed download, because the errors below refer to it.
    let written = tokio::fs::write(&output, &run.stdout).await;
    written.map_err(|source| VerifierError::Io { action: "write", path: output.clone(), source })?;
    if run.timed_out {
        return Err(VerifierError::Timeout { seconds: limit.unwrap_or_default().as_secs_f64(), output });
    }
    match downloaded {
        // A directory that the tests removed is the same as an empty one.
        Ok(()) | Err(EnvironmentError::NoSuchPath(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let read = |file| reward_files::read(&logs.verifier, file);
    let rewards = reward_files::parse(read(JSON)?.as_deref(), read(TEXT)?.as_deref())?;
    let rewards = rewards.ok_or(VerifierError::RewardFileNotFound { exit_code: run.exit_code, output })?;
    Ok(Rewards { truncated, ..Rewards::from(rewards) })
}

/// Uploads the tests, unless they are in the image. Uploads the agent's logs of this host too, for tests that inspect
/// how the agent worked.
async fn upload(task: &Task, env: &Environment, logs: &LogDirs) -> Result<(), EnvironmentError> {
    let separate = task.separate_verifier.as_deref();
    let paths = env.paths();
    let mut contents: Vec<(&Path, &str)> = Vec::new();
    if !separate.is_some_and(|separate| separate.has_tests) {
        let there = task.tests_dirs().filter(|dir| dir.is_dir());
        contents.extend(there.map(|dir| (dir, paths.tests.as_str())));
    }
    let has_logs = || logs.agent.read_dir().is_ok_and(|mut dir| dir.next().is_some());
    if separate.is_none() && has_logs() {
        let with_logs = [&[(logs.agent.as_path(), paths.agent_logs.as_str())], contents.as_slice()].concat();
        match env.upload_all(&with_logs).await {
            Ok(()) => return Ok(()),
            Err(error) => tracing::warn!(%error, "the tests do not see the agent's logs"),
        }
    }
    if contents.is_empty() { Ok(()) } else { env.upload_all(&contents).await }
}

/// Downloads all logs. If they are too large, downloads only the verifier's, which have the reward.
async fn fetch(
    env: &Environment,
    logs: &LogDirs,
    truncated: &mut Vec<String>,
) -> Result<(), EnvironmentError> {
    match env.download_logs(logs).await {
        Err(error @ EnvironmentError::TooLarge { .. }) => {
            tracing::warn!(%error, "the logs are not collected whole");
            truncated.push(format!("logs of the agent and artifacts are not stored: {error}"));
            fetch_verifiers(env, logs, truncated).await
        }
        fetched => fetched.map(drop),
    }
}

/// Downloads the verifier's logs. If they are too large, downloads only the reward.
async fn fetch_verifiers(
    env: &Environment,
    logs: &LogDirs,
    truncated: &mut Vec<String>,
) -> Result<(), EnvironmentError> {
    let dir = &env.paths().verifier_logs;
    let error = match env.download(dir, &logs.verifier).await {
        Err(error @ EnvironmentError::TooLarge { .. }) => error,
        fetched => return fetched.map(drop),
    };
    tracing::warn!(%error, "only the reward of the verifier's logs is collected");
    truncated.push(format!("logs of the verifier, except the reward, are not stored: {error}"));
    for file in [JSON, TEXT] {
        match env.fetch(&format!("{dir}/{file}"), &logs.verifier.join(file), &[]).await {
            Ok(_) | Err(EnvironmentError::NoSuchPath(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Runs `test.sh`. Before, removes rewards that the agent may have left, and makes the script executable as root. The
/// `stdout` of the result has all output of the tests. If possible this is one command, because each command costs
/// about 50 ms.
async fn run_script(
    task: &Task,
    env: &Environment,
    limit: Option<Duration>,
) -> Result<ExecOutput, VerifierError> {
    let (tests, dir, paths) = (&env.paths().tests, &env.paths().verifier_logs, env.paths());
    // The agent may have removed these directories, or replaced them by links.
    let there = [&paths.agent_logs, dir, &paths.artifacts]
        .map(|dir| {
            format!(
                "{{ [ -d '{dir}' ] && [ ! -L '{dir}' ] || {{ rm -rf '{dir}' && mkdir -p '{dir}' && chmod 777 '{dir}'; }}; }} && "
            )
        })
        .concat();
    let make_ready = format!(
        "{there}rm -rf '{dir}/{JSON}' '{dir}/{TEXT}' && chmod +x '{tests}/test.sh' || {{ echo {NOT_READY} >&2; exit 1; }}"
    );
    let run = format!("exec 2>&1; '{tests}/test.sh'");
    let config = &task.config.verifier;
    let tests =
        Exec { env: config.env.clone(), user: config.user.clone(), timeout: limit, ..Exec::default() };
    let output = if env.runs_as_root(config.user.as_deref()) {
        env.exec(Exec { command: format!("{make_ready}\n{run}"), ..tests }).await?
    } else {
        let root = Exec { command: make_ready, user: Some("0".to_owned()), ..Exec::default() };
        let ready = env.exec(root).await?;
        if ready.exit_code == Some(0) { env.exec(Exec { command: run, ..tests }).await? } else { ready }
    };
    // The tests' standard error is redirected, so this text is not theirs. A shell may also complain here about a
    // locale.
    let complaint = String::from_utf8_lossy(&output.stderr);
    match complaint.trim_end().strip_suffix(NOT_READY) {
        Some(message) => Err(EnvironmentError::NotReady(message.trim().to_owned()).into()),
        None => Ok(output),
    }
}
