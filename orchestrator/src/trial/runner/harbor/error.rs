//! Errors of Harbor's runner, worded for the person who runs the job.

use std::io;
use std::path::PathBuf;

use crate::environment::EnvironmentError;

/// Why Harbor cannot run trials.
#[derive(Debug, thiserror::Error)]
pub enum HarborError {
    /// The Python program cannot be started.
    #[error(
        "cannot start {} for environment harbor: name a Python that has harbor 0.25 with --harbor-python or \
         ROLLTAP_HARBOR_PYTHON",
        python.display()
    )]
    NoPython {
        /// The program.
        python: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The Python does not have the package `harbor`.
    #[error(
        "{} has no package harbor: `uv pip install harbor==0.25.0` there, or name another Python with --harbor-python or \
         ROLLTAP_HARBOR_PYTHON",
        .0.display()
    )]
    NoHarbor(PathBuf),
    /// The package has a version that rolltap does not support.
    #[error(
        "{} has harbor {found}, and rolltap drives 0.25: `uv pip install harbor==0.25.0` there, or name another Python with \
         --harbor-python or ROLLTAP_HARBOR_PYTHON",
        python.display()
    )]
    Version {
        /// The Python with the package.
        python: PathBuf,
        /// The version of the package.
        found: String,
    },
    /// The worker ended before its first message.
    #[error("the worker that drives harbor ended at once ({}):\n{last_words}", python.display())]
    Worker {
        /// The Python of the worker.
        python: PathBuf,
        /// The last lines of its log.
        last_words: String,
    },
    /// The worker did not answer in time.
    #[error("the worker that drives harbor did not answer within {seconds} s ({})", python.display())]
    Silent {
        /// The Python of the worker.
        python: PathBuf,
        /// The time limit in seconds.
        seconds: u64,
    },
    /// Harbor refuses the job, for these reasons.
    #[error("harbor refuses: {}", .0.join("; "))]
    Refused(Vec<String>),
    /// A remote sandbox cannot reach a proxy of this process.
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
    /// The Docker engine failed. It is used if Harbor's environment is `docker`.
    #[error(transparent)]
    Engine(#[from] EnvironmentError),
    /// A file of the job directory cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
}
