//! The errors of environments, for the person who runs the job.

use std::path::PathBuf;
use std::sync::Arc;

/// Why an environment cannot be created, used or removed. Causes are in `source()`.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// No Docker engine answers.
    #[error(
        "no Docker engine answers at {endpoint} ({origin}): start one (`systemctl start docker`, or `dockerd` as root), \
         point DOCKER_HOST at one, see that you may use it (group \"docker\"), or choose `-e local`"
    )]
    NoEngine {
        /// The address of the engine.
        endpoint: String,
        /// The source of the address.
        origin: &'static str,
        /// The connection's error.
        source: bollard::errors::Error,
    },
    /// Harbor runs whole trials. rolltap cannot create an environment of this kind.
    #[error("harbor makes its environments itself")]
    HarborsOwn,
    /// `DOCKER_HOST` has a form that rolltap cannot use.
    #[error("DOCKER_HOST = {0:?}: expected unix:///path/to/docker.sock or tcp://host:port")]
    DockerHost(String),
    /// The engine rejected a request.
    #[error("the Docker engine cannot {action}")]
    Engine {
        /// The requested action.
        action: String,
        /// The engine's answer.
        source: bollard::errors::Error,
    },
    /// The connection to a terminal could not be upgraded to a byte stream.
    #[error("cannot open a terminal in the container: {0}")]
    Terminal(String),
    /// There is no free address range for the job's network.
    #[error(
        "no addresses left for the job's Docker network: the engine's address pools are exhausted and all of {range} is \
         taken; remove unused networks (`docker network prune`)"
    )]
    NoSubnet {
        /// The range in which rolltap searched.
        range: &'static str,
        /// The engine's last answer.
        source: bollard::errors::Error,
    },
    /// This process cannot listen at the gateway of the isolated network, which is the only address that its containers
    /// reach.
    #[error(
        "cannot listen at {gateway}, the gateway of the network for trials without internet: the Docker engine must be one \
         of this machine for tasks with a network mode other than \"public\""
    )]
    GatewayNotHere {
        /// The host's address in that network.
        gateway: std::net::IpAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// A trial without internet cannot be connected to this address of its model.
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
        /// The engine's message.
        message: String,
        /// The last lines of the build's output.
        tail: String,
    },
    /// A Dockerfile needs BuildKit, which is not available.
    #[error(
        "cannot build the image of {task}: {instruction:?} in its Dockerfile needs BuildKit, and {reason}; install Docker's \
         command line with its buildx plugin (`docker buildx version`)"
    )]
    NoBuildKit {
        /// The task's name.
        task: String,
        /// The instruction that needs BuildKit.
        instruction: String,
        /// The missing part.
        reason: String,
    },
    /// The services of a task's `docker-compose.yaml` cannot be read, built or started.
    #[error("cannot {action} the services of {task}: {message}")]
    Compose {
        /// The failed action.
        action: &'static str,
        /// The task's name.
        task: String,
        /// The last output of Docker's command line, or the problem in the file.
        message: String,
    },
    /// An image that a task names is not at the engine and cannot be pulled.
    #[error(
        "image {image} is not on this machine and cannot be pulled (if it needs a login: `docker pull {image}` first)"
    )]
    Pull {
        /// The image's name.
        image: String,
        /// The engine's answer.
        source: bollard::errors::Error,
    },
    /// Another trial of the task met the same error first.
    #[error(transparent)]
    Shared(Arc<EnvironmentError>),
    /// The container no longer runs.
    #[error("the container has ended{}{}", exit(.exit_code), last_words(.tail))]
    Ended {
        /// The exit code of its main process, if it is known.
        exit_code: Option<i64>,
        /// The last lines of its main process's output.
        tail: String,
    },
    /// The environment could not be prepared for the agent or the tests.
    #[error("cannot make the environment ready: {0}")]
    NotReady(String),
    /// The environment has no service of this name.
    #[error("there is no service {0:?} in the environment")]
    NoSuchService(String),
    /// There is no such path in the environment.
    #[error("there is no {0} in the environment")]
    NoSuchPath(String),
    /// A download from an environment exceeds a limit.
    #[error(
        "{inside} in the environment is over the limit for a download ({limit}); the rest of it was left behind"
    )]
    TooLarge {
        /// The path in the environment.
        inside: String,
        /// The exceeded limit.
        limit: String,
    },
    /// A file operation on this host failed.
    #[error("cannot {action} {}", .path.display())]
    Io {
        /// The failed action.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A program could not be started on this host.
    #[error("cannot start {program} on this host")]
    Spawn {
        /// The program's name.
        program: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// Containers, networks or processes of a job that could not be removed.
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

/// Runs `work`, which reads or writes files, on a thread where it blocks no other task.
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
