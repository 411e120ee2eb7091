//! `rolltap demo`: a job on embedded parts only. It has a simulated model with a scripted policy, the terminal agent,
//! the local environment, and two bundled tasks.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use futures_util::future::BoxFuture;
use jiff::Zoned;
use rolltap_sim as sim;

use crate::agents::{AgentSpec, TerminalOptions};
use crate::common::cancellation::Cancellation;
use crate::environment::EnvironmentKind;
use crate::job::tasks::JobTask;
use crate::job::{JobError, JobReport, JobSettings, Progress, ProxyChoice, Upstreams, run_job};
use crate::job_dir::default_job_name;
use crate::task::{self, TaskError};
use crate::trial::JobAgent;

/// The default seed. With it, both tasks have samples that pass and samples that fail.
pub const DEFAULT_SEED: u64 = 6;

const SAMPLES: NonZeroU32 = NonZeroU32::new(4).unwrap();

/// The script of the simulated model, whose answers are mostly correct.
const POLICY: &str = include_str!("demo/policy.toml");

macro_rules! task_files {
    ($($path:literal),+ $(,)?) => {
        [$(($path, include_str!(concat!("../../examples/tasks/", $path)))),+]
    };
}

/// The bundled tasks. They are compiled in, so that the program needs no other file.
const TASK_FILES: [(&str, &str); 10] = task_files![
    "hello-file/task.toml",
    "hello-file/instruction.md",
    "hello-file/solution/solve.sh",
    "hello-file/tests/test.sh",
    "count-errors/task.toml",
    "count-errors/instruction.md",
    "count-errors/environment/Dockerfile",
    "count-errors/environment/server.log",
    "count-errors/solution/solve.sh",
    "count-errors/tests/test.sh",
];

/// The settings of one demo.
#[derive(Debug)]
pub struct Settings {
    /// The directory in which the job's directory is created.
    pub jobs_dir: PathBuf,
    /// The job's name. If `None`, it is `demo-` and the time.
    pub job_name: Option<String>,
    /// The seed of the simulated model, which decides which samples fail.
    pub seed: u64,
}

/// Why the demo did not run.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The bundled tasks cannot be unpacked.
    #[error("cannot unpack the bundled tasks to a temporary directory")]
    Unpack(#[from] std::io::Error),
    /// The bundled tasks are wrong.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// The bundled policy is wrong.
    #[error(transparent)]
    Policy(#[from] sim::ScriptError),
    /// The simulated model did not start.
    #[error("cannot start the simulated model")]
    Sim(#[from] sim::StartError),
    /// The job did not start.
    #[error(transparent)]
    Job(#[from] JobError),
}

/// Runs the demo. Leaves only the job's directory on disk.
///
/// # Errors
/// The errors of [`run_job`], which occur only before any trial starts, and those of the bundled parts.
pub fn run(
    settings: Settings,
    progress: Progress,
    cancellation: Cancellation,
) -> BoxFuture<'static, Result<JobReport, DemoError>> {
    // Boxed for the reason given at `run_job`.
    Box::pin(run_demo(settings, progress, cancellation))
}

async fn run_demo(
    settings: Settings,
    progress: Progress,
    cancellation: Cancellation,
) -> Result<JobReport, DemoError> {
    // Removed when this function returns, after the job.
    let bundle = tempfile::tempdir()?;
    unpack(bundle.path())?;
    let tasks = task::discover(bundle.path())?;
    let script = Some(sim::Script::from_toml(POLICY, "of the demo")?);
    let model = sim::start(sim::Settings { script, seed: settings.seed, ..sim::Settings::default() }).await?;
    let upstream = format!("http://{}", model.addr()).parse().map_err(JobError::from)?;
    let job_name = settings.job_name.unwrap_or_else(|| format!("demo-{}", default_job_name(&Zoned::now())));
    let options = TerminalOptions { max_turns: Some(10), ..TerminalOptions::default() };
    let agent = JobAgent::new(AgentSpec::Terminal(Box::new(options)), None);
    let proxy = ProxyChoice::from(Upstreams { addresses: vec![upstream], ..Upstreams::default() });
    let tasks = tasks.into_iter().map(JobTask::from).collect();
    // The model draws its random numbers in the order of the calls. Trials run one after the other, so that the same
    // seed gives the same demo.
    let job = JobSettings {
        samples: SAMPLES,
        has_own_tasks: true,
        job_name: Some(job_name),
        ..JobSettings::new(tasks, vec![agent], EnvironmentKind::Local, settings.jobs_dir, proxy)
    };
    let report = run_job(job, progress, cancellation).await;
    // Before the job's result is returned, so that an error leaves no server.
    model.shutdown().await;
    Ok(report?)
}

fn unpack(bundle: &Path) -> std::io::Result<()> {
    for (path, text) in TASK_FILES {
        let path = bundle.join(path);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(path, text)?;
    }
    Ok(())
}
