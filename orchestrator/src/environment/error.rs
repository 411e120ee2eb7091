//! What can go wrong with environments, in words for the person who runs the job.

use std::path::PathBuf;
use std::sync::Arc;

/// Why an environment cannot be had, used or removed. Causes are in `source()`.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// No Docker engine answers.
    #[error(
        "no Docker engine answers at {endpoint} ({origin}): start one (`systemctl start docker`, or `dockerd` as root), \
         point DOCKER_HOST at one, see that you may use it (group \"docker\"), or choose `-e local`"
    )]
    NoEngine {
        /// Where it was looked for.
        endpoint: String,
        /// Why there.
        origin: &'static str,
        /// What happened.
        source: bollard::errors::Error,
    },
    /// Harbor runs whole trials; nobody else is given an environment of its.
    #[error("harbor makes its environments itself")]
    HarborsOwn,
    /// `DOCKER_HOST` is of a kind that rolltap cannot use.
    #[error("DOCKER_HOST = {0:?}: expected unix:///path/to/docker.sock or tcp://host:port")]
    DockerHost(String),
    /// The engine refused something.
    #[error("the Docker engine cannot {action}")]
    Engine {
        /// What was asked of it.
        action: String,
        /// Its answer.
        source: bollard::errors::Error,
    },
    /// The engine's stream of a terminal could not be taken over.
    #[error("cannot open a terminal in the container: {0}")]
    Terminal(String),
    /// No addresses left for the job's network.
    #[error(
        "no addresses left for the job's Docker network: the engine's address pools are exhausted and all of {range} is \
         taken; remove unused networks (`docker network prune`)"
    )]
    NoSubnet {
        /// Where rolltap looked itself.
        range: &'static str,
        /// The engine's last answer.
        source: bollard::errors::Error,
    },
    /// Containers without a network reach what listens at the gateway, and nothing of this process can listen there.
    #[error(
        "cannot listen at {gateway}, the gateway of the network for trials without internet: the Docker engine must be one \
         of this machine for tasks with a network mode other than \"public\""
    )]
    GatewayNotHere {
        /// The host's address in that network.
        gateway: std::net::IpAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// A model that a trial without internet cannot be led to.
    #[error(
        "a trial without internet cannot reach its model at {0}: only plain http:// is led through to it; give the proxy a \
         --public-url of this kind"
    )]
    UnreachableModel(String),
    /// The image of a task could not be built.
    #[error("cannot build the image of {task}: {message}\nlast lines of the build:\n{tail}")]
    Build {
        /// The task's name.
        task: String,
        /// The engine's word.
        message: String,
        /// The last lines of the build's output.
        tail: String,
    },
    /// A Dockerfile needs BuildKit, and there is none to be had.
    #[error(
        "cannot build the image of {task}: {instruction:?} in its Dockerfile needs BuildKit, and {reason}; install Docker's \
         command line with its buildx plugin (`docker buildx version`)"
    )]
    NoBuildKit {
        /// The task's name.
        task: String,
        /// The instruction.
        instruction: String,
        /// What is missing.
        reason: String,
    },
    /// The services of a task's `docker-compose.yaml` cannot be read, built or started.
    #[error("cannot {action} the services of {task}: {message}")]
    Compose {
        /// What was tried.
        action: &'static str,
        /// The task's name.
        task: String,
        /// What Docker's command line said last, or what is wrong with the file.
        message: String,
    },
    /// An image that a task names is not here and cannot be pulled.
    #[error(
        "image {image} is not on this machine and cannot be pulled (if it needs a login: `docker pull {image}` first)"
    )]
    Pull {
        /// Its name.
        image: String,
        /// The engine's word.
        source: bollard::errors::Error,
    },
    /// Another trial of the task met the same error first.
    #[error(transparent)]
    Shared(Arc<EnvironmentError>),
    /// The container is not running any more.
    #[error("the container has ended{}{}", exit(.exit_code), last_words(.tail))]
    Ended {
        /// Its main process's, where known.
        exit_code: Option<i64>,
        /// The last lines of its main process's output.
        tail: String,
    },
    /// The environment could not be made ready for the agent or the tests.
    #[error("cannot make the environment ready: {0}")]
    NotReady(String),
    /// The environment has no service of this name.
    #[error("there is no service {0:?} in the environment")]
    NoSuchService(String),
    /// There is no such path inside.
    #[error("there is no {0} in the environment")]
    NoSuchPath(String),
    /// More came out of an environment than may.
    #[error(
        "{inside} in the environment is over the limit for a download ({limit}); the rest of it was left behind"
    )]
    TooLarge {
        /// The path inside.
        inside: String,
        /// Which limit.
        limit: String,
    },
    /// Something failed on this host.
    #[error("cannot {action} {}", .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A program could not be started on this host.
    #[error("cannot start {program} on this host")]
    Spawn {
        /// Its name.
        program: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// Things of a job that are still there.
    #[error("not everything of the job could be removed: {}", .0.join("; "))]
    Leftovers(Vec<String>),
}

fn exit(code: &Option<i64>) -> String {
    code.map(|code| format!(" with exit code {code}")).unwrap_or_default()
}

fn last_words(tail: &str) -> String {
    if tail.is_empty() { String::new() } else { format!("\nlast lines of its output:\n{tail}") }
}

impl EnvironmentError {
    pub(super) fn engine(action: impl Into<String>) -> impl FnOnce(bollard::errors::Error) -> Self {
        move |source| Self::Engine { action: action.into(), source }
    }

    pub(super) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { action, path: path.into(), source }
    }
}

/// Runs `work`, which reads or writes files, where it holds up no other task.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, EnvironmentError> + Send + 'static,
) -> Result<T, EnvironmentError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(died) => Err(EnvironmentError::Io {
            action: "work with files below",
            path: std::env::temp_dir(),
            source: std::io::Error::other(died),
        }),
    }
}
