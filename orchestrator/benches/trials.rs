//! What a trial costs beside its agent's own work: trivial trials in Docker, one at a time and eight at once.
//!
//! `just bench-trials` provides Docker and the image, and runs this. It prints figures and judges nothing: machines are
//! noisy.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark that fails panics, and prints its figures"
)]

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::Path;
use std::time::{Duration, Instant};

use rolltap_orchestrator::agents::{AgentOptions, AgentSpec};
use rolltap_orchestrator::cancellation::Cancellation;
use rolltap_orchestrator::environment::EnvironmentKind;
use rolltap_orchestrator::job::tasks::JobTask;
use rolltap_orchestrator::job::{
    JobAgent, JobReport, JobSettings, Progress, ProxyChoice, Upstreams, run_job,
};
use rolltap_orchestrator::task::Task;

/// An image that is there, nothing to build: what remains is the cost of a trial itself.
const TASK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/tasks/hello-prebuilt");
const ROUNDS: usize = 5;

#[tokio::main]
async fn main() {
    for agent in ["nop", "oracle"] {
        for at_once in [1, 8] {
            let mut overheads = Vec::new();
            let mut jobs = Vec::new();
            for _ in 0..ROUNDS {
                let (report, took) = job(agent, at_once).await;
                overheads.extend(report.trials.iter().map(overhead));
                jobs.push(took);
            }
            println!(
                "{agent:<6} {at_once} at once: overhead per trial {}, whole job {}",
                spread(&mut overheads),
                spread(&mut jobs)
            );
        }
    }
}

async fn job(agent: &str, at_once: u32) -> (JobReport, Duration) {
    let jobs = tempfile::tempdir().unwrap();
    let task = JobTask::from(Task::load(Path::new(TASK)).unwrap());
    let agent = JobAgent::new(AgentSpec::new(agent, AgentOptions::default()).unwrap(), None);
    let (kind, proxy) = (EnvironmentKind::Docker, ProxyChoice::Embedded(Upstreams::default()));
    let settings = JobSettings {
        samples: NonZeroU32::new(at_once).unwrap(),
        concurrency: NonZeroUsize::new(at_once as usize).unwrap(),
        job_name: Some("bench".to_owned()),
        ..JobSettings::new(vec![task], vec![agent], kind, jobs.path().to_owned(), proxy)
    };
    let begun = Instant::now();
    let report = run_job(settings, Progress::for_stderr(true), Cancellation::default()).await.unwrap();
    assert!(report.is_clean(), "{:?}", report.trials);
    (report, begun.elapsed())
}

/// All of a trial's time but the agent's.
fn overhead(trial: &rolltap_orchestrator::trial::TrialOutcome) -> Duration {
    let agent = trial.agent_execution.unwrap();
    let agents_time: Duration = agent.finished_at.duration_since(agent.started_at).try_into().unwrap();
    trial.duration().saturating_sub(agents_time)
}

fn spread(times: &mut [Duration]) -> String {
    times.sort();
    let seconds = |at: usize| times.get(at).unwrap().as_secs_f64();
    format!(
        "{:.2} s (median; {:.2} to {:.2})",
        seconds(times.len() / 2),
        seconds(0),
        seconds(times.len() - 1)
    )
}
