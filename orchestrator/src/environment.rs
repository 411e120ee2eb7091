//! The environments of trials: a Docker container, or a temporary directory of this host, which is no sandbox.
//!
//! [`Host`] holds the parts that a job shares (engine, network, images). [`Environment`] belongs to one trial.

mod build_context;
mod command;
mod docker;
mod dockerfile;
mod error;
mod folder;
mod host;
mod kind;
mod local;
mod mount;
mod output;
mod paths;
pub(crate) mod transfer;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use rolltap_agent::terminal::TerminalSize;
use rolltap_proxy::api::BaseUrls;
use tokio::io::{AsyncRead, AsyncWrite};

pub(crate) use docker::{ComposeProjects, has_services};

pub use command::{Exec, ExecOutput, OUTPUT_LIMIT};
pub use docker::{Cleaner, Container, EngineObject, FoundKind, OwnerState};
pub use error::EnvironmentError;
pub(crate) use folder::{pack_folder, unpack_folder};
pub(crate) use host::warn_of_missing_sandbox;
pub use host::{Host, Prepared};
pub use kind::{EnvironmentKind, UnknownEnvironment};
pub use local::LocalEnvironment;
pub use mount::{Mount, MountKind, Share};
pub(crate) use output::Tail;
pub use paths::{LogDirs, Paths};
pub use transfer::fetch::Fetched;
pub use transfer::unpack::Downloaded;

use crate::task::NetworkPolicy;

/// The label of everything that a job creates at the engine, so that people recognise it.
#[derive(Clone, Debug)]
pub struct JobLabel(String);

impl JobLabel {
    /// Makes a label from the job's name. Two jobs may have the same name, so cleanup identifies a job by more labels.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }
}

/// The label of everything that a trial creates at the engine.
#[derive(Clone, Debug)]
pub struct TrialLabel(String);

impl TrialLabel {
    /// Makes a label from the trial's name.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    fn name(&self) -> &str {
        &self.0
    }
}

/// Both ends of a pseudo-terminal in an environment. Dropping them does not end its processes; [`Environment::stop`]
/// does.
pub struct TerminalStreams {
    /// The output of the terminal.
    pub reader: Box<dyn AsyncRead + Send + Unpin>,
    /// The input of the terminal.
    pub writer: Box<dyn AsyncWrite + Send + Unpin>,
}

/// The time limit for removing one environment. After it, the end of the job or server removes the environment.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// The environment of one trial.
#[derive(Debug)]
pub enum Environment {
    /// A Docker container.
    Docker(Container),
    /// A directory and processes of this host.
    Local(LocalEnvironment),
}

impl Environment {
    /// Returns the kind of the environment.
    pub fn kind(&self) -> EnvironmentKind {
        match self {
            Self::Docker(_) => EnvironmentKind::Docker,
            Self::Local(_) => EnvironmentKind::Local,
        }
    }

    /// Returns Harbor's directories, as paths in the environment.
    pub fn paths(&self) -> &Paths {
        match self {
            Self::Docker(container) => container.paths(),
            Self::Local(local) => local.paths(),
        }
    }

    /// Returns an instruction with the paths of this environment. The local environment has its own paths for Harbor's
    /// directories.
    pub fn instruction(&self, text: &str) -> String {
        match self {
            Self::Docker(_) => text.to_owned(),
            Self::Local(local) => local.map_text(text),
        }
    }

    /// Returns another service of the trial. Agents and tests work in the main service. All services end with this
    /// environment.
    ///
    /// # Errors
    /// There is no service of this name.
    pub async fn service(&self, name: &str) -> Result<Self, EnvironmentError> {
        match self {
            Self::Docker(container) => container.service(name).await.map(Self::Docker),
            Self::Local(_) => Err(EnvironmentError::NoSuchService(name.to_owned())),
        }
    }

    /// Changes the network access from now on. Commands that start later have variables with the proxy for allowed
    /// hosts. The local environment always has full access.
    ///
    /// # Errors
    /// The environment fails.
    pub async fn set_network(&self, policy: &NetworkPolicy) -> Result<(), EnvironmentError> {
        match self {
            Self::Docker(container) => container.set_network(policy).await,
            Self::Local(_) => Ok(()),
        }
    }

    /// Returns the addresses of the trial's model, as they are reached from inside in every phase. `here` are those for
    /// programs of this host, and `public` those for other machines.
    ///
    /// # Errors
    /// An address cannot be reached from inside.
    pub async fn model_urls(&self, here: &BaseUrls, public: &BaseUrls) -> Result<BaseUrls, EnvironmentError> {
        // The local environment has the network of this host.
        let Self::Docker(container) = self else { return Ok(here.clone()) };
        Ok(BaseUrls {
            openai: container.model_url(&here.openai, &public.openai).await?,
            anthropic: container.model_url(&here.anthropic, &public.anthropic).await?,
            gemini: container.model_url(&here.gemini, &public.gemini).await?,
        })
    }

    /// Whether a command with this [`Exec::user`] has every right that any user has in the environment.
    pub fn runs_as_root(&self, user: Option<&str>) -> bool {
        match self {
            Self::Docker(container) => container.runs_as_root(user),
            Self::Local(_) => true,
        }
    }

    /// Runs a command to its end, or to its timeout.
    ///
    /// # Errors
    /// The environment fails. A failure or timeout of the command is no error.
    pub async fn exec(&self, exec: Exec) -> Result<ExecOutput, EnvironmentError> {
        match self {
            Self::Docker(container) => container.exec(exec).await,
            Self::Local(local) => local.exec(exec).await,
        }
    }

    /// Runs a command of rolltap as root, to prepare the environment for other commands.
    ///
    /// # Errors
    /// The environment fails, or the command fails: the end of its output.
    pub(crate) async fn arrange(&self, command: String) -> Result<(), EnvironmentError> {
        // The id 0 is root in every image, also in one without user names.
        let user = (!self.runs_as_root(None)).then(|| "0".to_owned());
        let done = self.exec(Exec { command, user, ..Exec::default() }).await?;
        match done.exit_code {
            Some(0) => Ok(()),
            _ => Err(EnvironmentError::NotReady(done.last_words())),
        }
    }

    /// Opens a shell as this [`Exec::user`] on a pseudo-terminal of this size, in the workdir and with
    /// `TERM=xterm-256color`.
    ///
    /// # Errors
    /// The environment fails.
    pub async fn open_terminal(
        &self,
        size: TerminalSize,
        env: BTreeMap<String, String>,
        user: Option<&str>,
    ) -> Result<TerminalStreams, EnvironmentError> {
        match self {
            Self::Docker(container) => container.open_terminal(size, env, user).await,
            Self::Local(local) => local.open_terminal(size, env, user),
        }
    }

    /// Copies the contents of `host_dir` into the directory `inside`, which is created if it is missing. Preserves
    /// modes.
    ///
    /// # Errors
    /// `host_dir` cannot be read, or the environment fails.
    pub async fn upload(&self, host_dir: &Path, inside: &str) -> Result<(), EnvironmentError> {
        match self {
            Self::Docker(container) => container.upload(&[(host_dir, inside)]).await,
            Self::Local(local) => local.upload(host_dir, inside).await,
        }
    }

    /// As [`Self::upload`], for several directories. Files of a later directory replace those of an earlier one. It is
    /// one request, since each costs an engine about 70 ms.
    ///
    /// # Errors
    /// Those of [`Self::upload`].
    pub async fn upload_all(&self, contents: &[(&Path, &str)]) -> Result<(), EnvironmentError> {
        match self {
            Self::Docker(container) => container.upload(contents).await,
            Self::Local(local) => {
                for (host_dir, inside) in contents {
                    local.upload(host_dir, inside).await?;
                }
                Ok(())
            }
        }
    }

    /// Copies the contents of the directory `inside` into `host_dir`, which is created if it is missing. The content is
    /// not trusted: nothing is written outside `host_dir`, and sizes are limited.
    ///
    /// # Errors
    /// There is no such directory, its content is too large, or the environment fails.
    pub async fn download(&self, inside: &str, host_dir: &Path) -> Result<Downloaded, EnvironmentError> {
        match self {
            Self::Docker(container) => container.download(inside, host_dir).await,
            Self::Local(local) => local.download(inside, host_dir).await,
        }
    }

    /// Copies the file or directory `inside` to the path `to`, without the names that the `tar --exclude` patterns
    /// match in a directory. The rules of [`Self::download`] hold.
    ///
    /// # Errors
    /// There is no such file or directory, it is too large, or the environment fails.
    pub async fn fetch(
        &self,
        inside: &str,
        to: &Path,
        exclude: &[String],
    ) -> Result<Fetched, EnvironmentError> {
        match self {
            Self::Docker(container) => container.fetch(inside, to, exclude).await,
            Self::Local(local) => local.fetch(inside, to, exclude).await,
        }
    }

    /// Copies the contents of the log directories to this host, by the rules of [`Self::download`]. It is one request,
    /// since each costs an engine about 100 ms.
    ///
    /// # Errors
    /// There are no such directories, they are too large, or the environment fails.
    pub async fn download_logs(&self, to: &LogDirs) -> Result<Downloaded, EnvironmentError> {
        match self {
            Self::Docker(container) => container.download_logs(to).await,
            Self::Local(local) => local.download_logs(to).await,
        }
    }

    /// Returns the name of the container that remains after the trial, or `None` if none does.
    pub fn kept_as(&self) -> Option<&str> {
        match self {
            Self::Docker(container) => container.kept_as(),
            Self::Local(_) => None,
        }
    }

    /// Kills every process of the environment and removes it, unless it is to remain. Succeeds if it is gone already.
    ///
    /// # Errors
    /// The environment could not be removed.
    pub async fn stop(self) -> Result<(), EnvironmentError> {
        match self {
            Self::Docker(container) => container.stop().await,
            Self::Local(local) => local.stop().await,
        }
    }
}
