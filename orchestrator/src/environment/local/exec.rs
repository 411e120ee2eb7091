//! Runs commands in a local environment.

use std::collections::BTreeMap;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::{timeout, timeout_at};
use uuid::Uuid;

use super::processes::{COMMAND_MARK, kill_group, kill_marked, kill_marked_now};
use super::{LocalEnvironment, forks};
use crate::environment::output::Head;
use crate::environment::{EnvironmentError, Exec, ExecOutput};

/// The limit for remaining output after a command has ended. A background process may hold the output open for ever; a
/// detached task reads it on, so that the process does not block.
const LINGER: Duration = Duration::from_secs(1);
const CHUNK: usize = 64 * 1024;

/// A command whose processes are killed if the caller drops it before its end.
struct Running {
    child: Child,
    mark: String,
    ended: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            kill_group(self.child.id());
            kill_marked_now(COMMAND_MARK, &self.mark);
        }
    }
}

impl LocalEnvironment {
    pub(in crate::environment) async fn exec(&self, exec: Exec) -> Result<ExecOutput, EnvironmentError> {
        let deadline = exec.timeout.map(|limit| tokio::time::Instant::now() + limit);
        if let Some(user) = &exec.user {
            self.warn_of_user(user);
        }
        let mut running = self.spawn(&exec)?;
        let stdout = Pump::start(running.child.stdout.take());
        let stderr = Pump::start(running.child.stderr.take());
        let waited = match deadline {
            Some(deadline) => timeout_at(deadline, running.child.wait()).await.ok(),
            None => Some(running.child.wait().await),
        };
        let timed_out = waited.is_none();
        if timed_out {
            // The group is killed at once. The mark finds processes that left it.
            kill_group(running.child.id());
            if !kill_marked(COMMAND_MARK, &running.mark).await {
                tracing::warn!("processes of a command out of time could not be killed");
            }
        }
        let status: ExitStatus = match waited {
            Some(status) => status,
            None => running.child.wait().await,
        }
        .map_err(|source| EnvironmentError::Spawn { program: self.shell(), source })?;
        // From here on, background processes of the command may continue.
        running.ended = true;
        let (stdout, stderr) = tokio::join!(stdout.finish(), stderr.finish());
        Ok(ExecOutput {
            exit_code: status.code().map(i64::from).filter(|_| !timed_out),
            truncated: stdout.truncated() || stderr.truncated(),
            stdout: stdout.into_bytes(),
            stderr: stderr.into_bytes(),
            timed_out,
        })
    }

    fn spawn(&self, exec: &Exec) -> Result<Running, EnvironmentError> {
        let cwd = match &exec.cwd {
            Some(cwd) => self.place(cwd)?,
            None => self.paths().workdir.clone().into(),
        };
        let mark = Uuid::now_v7().to_string();
        let mut env: BTreeMap<String, String> = self.env().clone();
        env.extend(exec.env.clone());
        env.insert(COMMAND_MARK.to_owned(), mark.clone());
        let mut command = Command::new(self.shell());
        command
            .arg("-c")
            .arg(&exec.command)
            // Variables of this process may hold secrets.
            .env_clear()
            .envs(&env)
            .current_dir(&cwd)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let child = forks::allowed(|| command.spawn())
            .map_err(|source| EnvironmentError::Spawn { program: self.shell(), source })?;
        Ok(Running { child, mark, ended: false })
    }
}

/// Reads an output as long as a process holds it open.
struct Pump {
    head: Arc<Mutex<Head>>,
    task: JoinHandle<()>,
}

impl Pump {
    fn start(output: Option<impl AsyncRead + Send + Unpin + 'static>) -> Self {
        let head = Arc::new(Mutex::new(Head::default()));
        let target = Arc::clone(&head);
        let task = tokio::spawn(async move {
            let Some(mut output) = output else { return };
            let mut chunk = vec![0; CHUNK];
            while let Ok(length @ 1..) = output.read(&mut chunk).await {
                let bytes = chunk.get(..length).unwrap_or_default();
                target.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
            }
        });
        Self { head, task }
    }

    /// Returns the output so far, once it has ended or `LINGER` has passed.
    async fn finish(self) -> Head {
        let _ = timeout(LINGER, self.task).await;
        std::mem::take(&mut *self.head.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
