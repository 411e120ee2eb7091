//! Where a trial's commands run: a Docker container, or (no sandbox) a temporary directory of this host.
//!
//! [`Host`] is the job's share (engine, network, images), [`Environment`] the trial's.

mod build_context;
mod command;
mod docker;
mod dockerfile;
mod error;
mod host;
mod kind;
mod local;
mod mount;
mod output;
mod paths;
pub(crate) mod transfer;

use std::collections::BTreeMap;
use std::path::Path;

use rolltap_agent::terminal::TerminalSize;
use rolltap_proxy::api::BaseUrls;
use tokio::io::{AsyncRead, AsyncWrite};

pub(crate) use docker::{ComposeProjects, has_services};

pub use command::{Exec, ExecOutput, OUTPUT_LIMIT};
pub use docker::{Cleaner, Container, EngineObject, FoundKind, OwnerState};
pub use error::EnvironmentError;
pub use host::{Host, Prepared};
pub use kind::{EnvironmentKind, UnknownEnvironment};
pub use local::LocalEnvironment;
pub use mount::{Mount, MountKind, Share};
pub(crate) use output::Tail;
pub use paths::{LogDirs, Paths};
pub use transfer::fetch::Fetched;
pub use transfer::unpack::Downloaded;

use crate::task::NetworkPolicy;

/// What everything of a job is marked with, so that a person can tell whose it is.
#[derive(Clone, Debug)]
pub struct JobLabel(String);

impl JobLabel {
    /// The job's name. Two jobs may share one: what is removed at the end is told apart by more.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }
}

/// What everything of a trial is marked with.
#[derive(Clone, Debug)]
pub struct TrialLabel(String);

impl TrialLabel {
    /// The trial's name.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }
}

/// Both ends of a pseudo-terminal inside. Dropping them does not end what runs there; [`Environment::stop`] does.
pub struct TerminalStreams {
    /// What the terminal shows.
    pub reader: Box<dyn AsyncRead + Send + Unpin>,
    /// What is typed.
    pub writer: Box<dyn AsyncWrite + Send + Unpin>,
}

/// Where one trial's commands run.
#[derive(Debug)]
pub enum Environment {
    /// In a container.
    Docker(Container),
    /// On this host.
    Local(LocalEnvironment),
}

impl Environment {
    /// Which kind this is.
    pub fn kind(&self) -> EnvironmentKind {
        match self {
            Self::Docker(_) => EnvironmentKind::Docker,
            Self::Local(_) => EnvironmentKind::Local,
        }
    }

    /// Harbor's places, as seen from inside.
    pub fn paths(&self) -> &Paths {
        match self {
            Self::Docker(container) => container.paths(),
            Self::Local(local) => local.paths(),
        }
    }

    /// An instruction as it reads here: the local environment has its own spelling of Harbor's places.
    pub fn instruction(&self, text: &str) -> String {
        match self {
            Self::Docker(_) => text.to_owned(),
            Self::Local(local) => local.map_text(text),
        }
    }

    /// Another service of the trial, beside the main one in which agents and tests work. It ends with this environment.
    ///
    /// # Errors
    /// There is none of this name.
    pub async fn service(&self, name: &str) -> Result<Self, EnvironmentError> {
        match self {
            Self::Docker(container) => container.service(name).await.map(Self::Docker),
            Self::Local(_) => Err(EnvironmentError::NoSuchService(name.to_owned())),
        }
    }

    /// Changes what may be reached from now on. Commands that are started later are told by variables how they reach
    /// allowed hosts. The local environment can only leave everything reachable.
    ///
    /// # Errors
    /// The environment's own trouble.
    pub async fn set_network(&self, policy: &NetworkPolicy) -> Result<(), EnvironmentError> {
        match self {
            Self::Docker(container) => container.set_network(policy).await,
            Self::Local(_) => Ok(()),
        }
    }

    /// The addresses of the trial's model, as they are reached from inside, in every phase.
    ///
    /// # Errors
    /// One cannot be reached.
    pub async fn model_urls(&self, urls: &BaseUrls) -> Result<BaseUrls, EnvironmentError> {
        let Self::Docker(container) = self else { return Ok(urls.clone()) };
        Ok(BaseUrls {
            openai: container.model_url(&urls.openai).await?,
            anthropic: container.model_url(&urls.anthropic).await?,
            gemini: container.model_url(&urls.gemini).await?,
        })
    }

    /// Whether a command of this [`Exec::user`] may do anything inside that anyone may.
    pub fn runs_as_root(&self, user: Option<&str>) -> bool {
        match self {
            Self::Docker(container) => container.runs_as_root(user),
            Self::Local(_) => true,
        }
    }

    /// Runs a command to its end, or to its timeout.
    ///
    /// # Errors
    /// The environment's own trouble. A command that fails or runs out of time is no error.
    pub async fn exec(&self, exec: Exec) -> Result<ExecOutput, EnvironmentError> {
        match self {
            Self::Docker(container) => container.exec(exec).await,
            Self::Local(local) => local.exec(exec).await,
        }
    }

    /// Runs a command of ours as a user who may do anything inside, for what must be so before others go on.
    ///
    /// # Errors
    /// The environment's own trouble, or what the command said when it failed.
    pub(crate) async fn arrange(&self, command: String) -> Result<(), EnvironmentError> {
        let user = (!self.runs_as_root(None)).then(|| "0".to_owned());
        let done = self.exec(Exec { command, user, ..Exec::default() }).await?;
        match done.exit_code {
            Some(0) => Ok(()),
            _ => Err(EnvironmentError::NotReady(done.last_words())),
        }
    }

    /// A shell of this [`Exec::user`] on a pseudo-terminal of this size in the workdir, with `TERM=xterm-256color`.
    ///
    /// # Errors
    /// The environment's own trouble.
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

    /// Puts the contents of `host_dir` into the directory `inside` (made if need be), modes kept.
    ///
    /// # Errors
    /// `host_dir` cannot be read, or the environment's own trouble.
    pub async fn upload(&self, host_dir: &Path, inside: &str) -> Result<(), EnvironmentError> {
        match self {
            Self::Docker(container) => container.upload(&[(host_dir, inside)]).await,
            Self::Local(local) => local.upload(host_dir, inside).await,
        }
    }

    /// The same for several directories, a later one over those before it. One upload, because each costs an engine some
    /// 70 ms.
    ///
    /// # Errors
    /// As of [`Self::upload`].
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

    /// Puts the contents of the directory `inside` into `host_dir` (made if need be). What is inside is not trusted:
    /// nothing is written outside `host_dir`, and sizes are limited.
    ///
    /// # Errors
    /// No such directory, too much in it, or the environment's own trouble.
    pub async fn download(&self, inside: &str, host_dir: &Path) -> Result<Downloaded, EnvironmentError> {
        match self {
            Self::Docker(container) => container.download(inside, host_dir).await,
            Self::Local(local) => local.download(inside, host_dir).await,
        }
    }

    /// Puts the file or directory `inside` in the place of `to`, but for what patterns of `tar --exclude` leave out of a
    /// directory. The rules of [`Self::download`] hold.
    ///
    /// # Errors
    /// No such file or directory, too much in it, or the environment's own trouble.
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

    /// Puts the contents of the log directories into those of this host (made if need be), by the rules of
    /// [`Self::download`]. One download, because each costs an engine some 100 ms.
    ///
    /// # Errors
    /// No such directories, too much in them, or the environment's own trouble.
    pub async fn download_logs(&self, to: &LogDirs) -> Result<Downloaded, EnvironmentError> {
        match self {
            Self::Docker(container) => container.download_logs(to).await,
            Self::Local(local) => local.download_logs(to).await,
        }
    }

    /// The name under which the user finds it when the trial is over, where it stays.
    pub fn kept_as(&self) -> Option<&str> {
        match self {
            Self::Docker(container) => container.kept_as(),
            Self::Local(_) => None,
        }
    }

    /// Kills everything that runs inside and removes the environment, unless it is to stay. Fine if it is gone already.
    ///
    /// # Errors
    /// It is still there.
    pub async fn stop(self) -> Result<(), EnvironmentError> {
        match self {
            Self::Docker(container) => container.stop().await,
            Self::Local(local) => local.stop().await,
        }
    }
}
