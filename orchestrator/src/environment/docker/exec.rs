//! Runs commands in a container, and kills them at their timeout.

use std::collections::BTreeMap;
use std::time::Duration;

use bollard::container::LogOutput;
use bollard::errors::Error;
use bollard::exec::{StartExecOptions, StartExecResults};
use bollard::models::ExecConfig;
use futures_util::{Stream, StreamExt};
use tokio::time::{Instant, timeout, timeout_at};
use uuid::Uuid;

use super::Container;
use crate::environment::output::Head;
use crate::environment::{EnvironmentError, Exec, ExecOutput};

/// Prints its process id in the container and its start time in ticks since boot, then becomes the command. The engine
/// starts every exec as the leader of a session, so the id is also that of the session.
const RUN: &str = r#"command=$1
stat=; read -r stat 2>/dev/null </proc/$$/stat; set -- ${stat##*) }
echo "$$ ${20:-0}"
if command -v bash >/dev/null 2>&1; then exec bash -c "$command"; fi
exec sh -c "$command""#;

/// Kills the processes of a session, and those with a mark in their environment. It repeats until none is left, because
/// a process may fork while the list is read. It needs a shell, `/proc` and `grep`, and no procps.
///
/// The session finds processes of every user. The mark finds processes that left the session, if they run as the same
/// user. With a start time in ticks, it also kills later processes that were orphaned to the container's first process.
/// Such a process may have left the session and cleared its environment. Processes that the image's own services start
/// have those services as parents, and are not killed.
const KILL: &str = r#"session=$1 mark=$2 since=$3
for round in 1 2 3 4 5 6 7 8 9 10; do
  found=
  for stat in /proc/[0-9]*/stat; do
    line=; read -r line 2>/dev/null <"$stat" || continue
    pid=${line%% *}
    set -- ${line##*) }
    [ "$1" != Z ] && [ "$pid" != 1 ] || continue
    [ "$4" = "$session" ] || { [ "$since" ] && [ "$2" = 1 ] && [ "${20}" -ge "$since" ]; } || continue
    kill -9 "$pid" 2>/dev/null && found=yes
  done
  for environ in $(grep -lF "$mark" /proc/[0-9]*/environ 2>/dev/null); do
    pid=${environ#/proc/}; pid=${pid%/environ}
    [ "$pid" != 1 ] && kill -9 "$pid" 2>/dev/null && found=yes
  done
  [ "$found" ] || exit 0
  sleep 0.02 2>/dev/null
done
exit 1"#;

/// The variable that marks every process of an exec.
const MARK: &str = "ROLLTAP_EXEC";
/// The limit for the kill itself, and then for the killed processes to close their output.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// The exit code after SIGKILL: from the command itself, from the kernel for lack of memory, or with the whole
/// container.
const KILLED: i64 = 128 + 9;
/// The limit until an engine notices that a container has ended.
const ENDING_TIMEOUT: Duration = Duration::from_secs(10);
const ENDING_PAUSE: Duration = Duration::from_millis(100);
/// The engine may report the exit code a moment after the end of the output.
const EXIT_CODE_TRIES: u32 = 100;
const EXIT_CODE_PAUSE: Duration = Duration::from_millis(10);
/// The most bytes per read from the engine.
const CHUNK: usize = 64 * 1024;

/// The first line of output, which `RUN` prints before the command starts.
#[derive(Clone, Copy)]
struct Session {
    id: u32,
    /// The start time in ticks since boot. 0 if it is unknown.
    started: u64,
    /// The length of the line in bytes, which is removed from the output.
    told: usize,
}

#[derive(Default)]
struct Output {
    stdout: Head,
    stderr: Head,
}

impl Output {
    async fn read(
        &mut self,
        stream: &mut (impl Stream<Item = Result<LogOutput, Error>> + Unpin),
    ) -> Result<(), Error> {
        while let Some(chunk) = stream.next().await {
            match chunk? {
                LogOutput::StdErr { message } => self.stderr.push(&message),
                LogOutput::StdOut { message }
                | LogOutput::Console { message }
                | LogOutput::StdIn { message } => {
                    self.stdout.push(&message);
                }
            }
        }
        Ok(())
    }

    /// Parses the session from the first line. `None` if not even a shell could be started.
    fn session(&self) -> Option<Session> {
        let end = self.stdout.as_bytes().iter().position(|byte| *byte == b'\n')?;
        let line = std::str::from_utf8(self.stdout.as_bytes().get(..end)?).ok()?;
        let (id, started) = line.split_once(' ')?;
        Some(Session { id: id.parse().ok()?, started: started.parse().ok()?, told: end + 1 })
    }
}

impl Container {
    pub(in crate::environment) async fn exec(&self, exec: Exec) -> Result<ExecOutput, EnvironmentError> {
        // The start of the command counts too.
        let deadline = exec.timeout.map(|limit| Instant::now() + limit);
        let mark = Uuid::now_v7().to_string();
        let mut env = self.with_network_variables(exec.env);
        env.insert(MARK.to_owned(), mark.clone());
        let config = ExecConfig {
            cmd: Some(["sh", "-c", RUN, "rolltap", &exec.command].map(str::to_owned).to_vec()),
            env: Some(assignments(env)),
            working_dir: Some(exec.cwd.unwrap_or_else(|| self.paths().workdir.clone())),
            user: exec.user.clone(),
            ..ExecConfig::default()
        };
        let (id, mut stream) = self.start_exec(config).await?;
        let mut output = Output::default();
        let mut timed_out = false;
        let read = match deadline {
            Some(deadline) => match timeout_at(deadline, output.read(&mut stream)).await {
                Ok(read) => read,
                Err(_) => {
                    // The exit code would be that of the kill, so a timeout has none.
                    timed_out = true;
                    self.kill(output.session(), &mark, exec.user, exec.kills_orphans).await;
                    // A process that survived the kill may hold the output open, so the read has a limit.
                    timeout(KILL_TIMEOUT, output.read(&mut stream)).await.unwrap_or(Ok(()))
                }
            },
            None => output.read(&mut stream).await,
        };
        read.map_err(EnvironmentError::engine("read a command's output"))?;
        let exit_code = if timed_out { None } else { self.exit_code(&id).await? };
        // The kill may have been that of the whole container.
        if exit_code == Some(KILLED) {
            self.must_run().await?;
        }
        let truncated = output.stdout.truncated() || output.stderr.truncated();
        let told = output.session().map_or(0, |session| session.told);
        let mut stdout = output.stdout.into_bytes();
        stdout.drain(..told);
        Ok(ExecOutput { exit_code, stdout, stderr: output.stderr.into_bytes(), timed_out, truncated })
    }

    /// Checks after exit code `KILLED` that the container still runs. The engine may list a killed container as running
    /// for a while, so a trial command decides. If it succeeds, only the earlier command was killed, by itself or for
    /// its memory.
    ///
    /// # Errors
    /// The container has ended.
    async fn must_run(&self) -> Result<(), EnvironmentError> {
        let config = ExecConfig {
            cmd: Some(["sh", "-c", ":"].map(str::to_owned).to_vec()),
            working_dir: Some("/".to_owned()),
            ..ExecConfig::default()
        };
        let probe = async {
            let (id, mut stream) = self.start_exec(config).await.ok()?;
            Output::default().read(&mut stream).await.ok()?;
            self.exit_code(&id).await.ok()?
        };
        if probe.await == Some(0) {
            return Ok(());
        }
        // The trial command also fails if the container's own processes leave no room for another one.
        let until = Instant::now() + ENDING_TIMEOUT;
        while Instant::now() < until {
            if let Ok(Some(exit_code)) = self.ending().await {
                return Err(self.ended(exit_code).await);
            }
            tokio::time::sleep(ENDING_PAUSE).await;
        }
        Ok(())
    }

    async fn start_exec(
        &self,
        config: ExecConfig,
    ) -> Result<(String, impl Stream<Item = Result<LogOutput, Error>> + Unpin + use<>), EnvironmentError>
    {
        let config = ExecConfig { attach_stdout: Some(true), attach_stderr: Some(true), ..config };
        let id = self.create_exec(config).await?;
        let options = StartExecOptions { detach: false, tty: false, output_capacity: Some(CHUNK) };
        match self.api().start_exec(&id, Some(options)).await {
            Ok(StartExecResults::Attached { output, .. }) => Ok((id, output)),
            Err(source) => Err(self.explain("run a command in the container", source).await),
            Ok(StartExecResults::Detached) => Err(EnvironmentError::Engine {
                action: "attach to a command in the container".to_owned(),
                source: Error::DockerStreamError { error: "it was started detached".to_owned() },
            }),
        }
    }

    /// Creates an exec without starting it.
    pub(super) async fn create_exec(&self, config: ExecConfig) -> Result<String, EnvironmentError> {
        self.with_log_directories().await?;
        match self.api().create_exec(self.id(), config).await {
            Ok(created) => Ok(created.id),
            Err(source) => Err(self.explain("create a command in the container", source).await),
        }
    }

    async fn exit_code(&self, exec: &str) -> Result<Option<i64>, EnvironmentError> {
        for _ in 0..EXIT_CODE_TRIES {
            let told = self.api().inspect_exec(exec).await;
            let told = told.map_err(EnvironmentError::engine("tell a command's exit code"))?;
            if told.running != Some(true) && told.exit_code.is_some() {
                return Ok(told.exit_code);
            }
            tokio::time::sleep(EXIT_CODE_PAUSE).await;
        }
        Ok(None)
    }

    pub(in crate::environment) fn runs_as_root(&self, user: Option<&str>) -> bool {
        is_root(user.unwrap_or_else(|| self.image_user()))
    }

    /// Kills as root, who may kill any process, and as the command's user, who may read the mark of its own processes.
    async fn kill(&self, session: Option<Session>, mark: &str, user: Option<String>, orphans: bool) {
        let since = session.filter(|session| orphans && session.started > 0);
        let since = since.map(|session| session.started.to_string()).unwrap_or_default();
        // `none` is the id of no session.
        let session = session.map_or_else(|| "none".to_owned(), |session| session.id.to_string());
        let user = Some(user.unwrap_or_else(|| self.image_user().to_owned())).filter(|user| !is_root(user));
        let cmd = ["sh", "-c", KILL, "rolltap", &session, mark, &since].map(str::to_owned).to_vec();
        for user in [Some("0".to_owned()), user].into_iter().flatten() {
            let config = ExecConfig {
                cmd: Some(cmd.clone()),
                user: Some(user),
                working_dir: Some("/".to_owned()),
                ..ExecConfig::default()
            };
            let killing = async {
                let (id, mut stream) = self.start_exec(config).await?;
                let read = Output::default().read(&mut stream).await;
                read.map_err(EnvironmentError::engine("kill a command"))?;
                self.exit_code(&id).await
            };
            match timeout(KILL_TIMEOUT, killing).await {
                Ok(Ok(Some(0))) => {}
                Ok(Err(error)) => {
                    tracing::warn!(container = self.id(), %error, "cannot kill a command out of time")
                }
                Ok(Ok(_)) | Err(_) => {
                    tracing::warn!(
                        container = self.id(),
                        "a command out of time may live on until its container ends"
                    );
                }
            }
        }
    }
}

fn is_root(user: &str) -> bool {
    matches!(user.split(':').next(), Some("" | "0" | "root"))
}

pub(super) fn assignments(env: BTreeMap<String, String>) -> Vec<String> {
    env.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
}
