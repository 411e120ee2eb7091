//! Why Harbor cannot be driven, in words for the person who runs the job.

use std::io;
use std::path::PathBuf;

use crate::environment::EnvironmentError;

/// Why no trial can be run by Harbor.
#[derive(Debug, thiserror::Error)]
pub enum HarborError {
    /// No such program.
    #[error(
        "cannot start {} for environment harbor: name a Python that has harbor 0.25 with --harbor-python or \
         ROLLTAP_HARBOR_PYTHON",
        python.display()
    )]
    NoPython {
        /// What was tried.
        python: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A Python without the package.
    #[error(
        "{} has no package harbor: `uv pip install harbor==0.25.0` there, or name another Python with --harbor-python or \
         ROLLTAP_HARBOR_PYTHON",
        .0.display()
    )]
    NoHarbor(PathBuf),
    /// A version whose trials are not known to go as rolltap takes them to.
    #[error(
        "{} has harbor {found}, and rolltap drives 0.25: `uv pip install harbor==0.25.0` there, or name another Python with \
         --harbor-python or ROLLTAP_HARBOR_PYTHON",
        python.display()
    )]
    Version {
        /// Whose package.
        python: PathBuf,
        /// Its version.
        found: String,
    },
    /// The worker ended before it could say anything.
    #[error("the worker that drives harbor ended at once ({}):\n{last_words}", python.display())]
    Worker {
        /// The Python that it ran in.
        python: PathBuf,
        /// The last lines that it wrote.
        last_words: String,
    },
    /// The worker is silent.
    #[error("the worker that drives harbor did not answer within {seconds} s ({})", python.display())]
    Silent {
        /// The Python that it runs in.
        python: PathBuf,
        /// How long it was waited for.
        seconds: u64,
    },
    /// What Harbor itself has against the job.
    #[error("harbor refuses: {}", .0.join("; "))]
    Refused(Vec<String>),
    /// A sandbox elsewhere cannot reach a proxy of this process.
    #[error(
        "agent {agent:?} works inside harbor's environment {environment:?}, from where this process cannot be reached: run \
         `rolltap proxy --public-url URL` where it can and name it with --proxy, or give --listen and --public-url where this \
         machine can be reached"
    )]
    OutOfReach {
        /// The agent.
        agent: String,
        /// Harbor's environment.
        environment: String,
    },
    /// The Docker engine, where Harbor's environment is docker.
    #[error(transparent)]
    Engine(#[from] EnvironmentError),
    /// A file of the job's directory.
    #[error("cannot write {}", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}
