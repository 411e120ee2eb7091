//! What a trial costs beside its agent's own work: trivial trials in Docker, one at a time, eight at once, and many.
//!
//! `just bench trials` provides Docker and the image, runs this, and then Harbor at the same trials. It prints figures and
//! judges nothing but that every trial passes and that nothing is left: machines are noisy.
//!
//! The arguments are the number of trials and how many of them run at once; `--many-only` leaves out the small jobs.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark that fails panics, and prints its figures"
)]

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rolltap_orchestrator::agents::{AgentOptions, AgentSpec};
use rolltap_orchestrator::common::cancellation::Cancellation;
use rolltap_orchestrator::environment::{Cleaner, EnvironmentKind};
use rolltap_orchestrator::job::tasks::JobTask;
use rolltap_orchestrator::job::{JobReport, JobSettings, Progress, ProxyChoice, Upstreams, run_job};
use rolltap_orchestrator::task::Task;
use rolltap_orchestrator::trial::JobAgent;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

/// An image that is there, nothing to build: what remains is the cost of a trial itself.
const TASK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/tasks/hello-prebuilt");
const ROUNDS: usize = 5;
const JOB: &str = "rolltap-bench";
const ENGINE: &str = "/var/run/docker.sock";

#[tokio::main]
async fn main() {
    if std::env::var("BENCH_COUNTED").is_ok() {
        job("oracle", 8, 8).await;
        return;
    }
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [trials, at_once] => measure(trials.parse().unwrap(), at_once.parse().unwrap(), true).await,
        [trials, at_once, "--many-only"] => {
            measure(trials.parse().unwrap(), at_once.parse().unwrap(), false).await;
        }
        _ => println!("usage: TRIALS AT_ONCE [--many-only]"),
    }
}

async fn measure(trials: u32, at_once: u32, few_too: bool) {
    count_calls().await;
    if few_too {
        for agent in ["nop", "oracle"] {
            for at_once in [1, 8] {
                report(agent, at_once, at_once, ROUNDS).await;
            }
        }
    }
    report("oracle", trials, at_once, 1).await;
    println!("left at the engine: {}", left().await);
}

async fn report(agent: &str, trials: u32, at_once: u32, rounds: usize) {
    let mut overheads = Vec::new();
    let mut jobs = Vec::new();
    for _ in 0..rounds {
        let (report, took) = job(agent, trials, at_once).await;
        overheads.extend(report.trials.iter().map(overhead));
        jobs.push(took);
    }
    println!(
        "{agent:<6} {trials} trials, {at_once} at once: overhead per trial {}, whole job {}",
        spread(&mut overheads),
        spread(&mut jobs)
    );
}

/// Of this benchmark's jobs.
async fn left() -> usize {
    let found = Cleaner::connect().await.unwrap().find().await.unwrap();
    found.iter().filter(|found| found.job.as_deref() == Some(JOB)).count()
}

/// Counts what a job of eight trials asks of the engine, on the way there: each request's head begins a write of its own.
/// A process of its own makes them, as the engine's place is in its environment.
async fn count_calls() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("docker.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let calls = Arc::new(Mutex::new(BTreeMap::<String, usize>::new()));
    let counted = Arc::clone(&calls);
    let counting = tokio::spawn(async move {
        while let Ok((inside, _)) = listener.accept().await {
            tokio::spawn(carry(inside, Arc::clone(&counted)));
        }
    });
    let mut counted = tokio::process::Command::new(std::env::current_exe().unwrap());
    counted.env("BENCH_COUNTED", "yes").env("DOCKER_HOST", format!("unix://{}", socket.display()));
    assert!(counted.status().await.unwrap().success());
    counting.abort();
    let calls = calls.lock().unwrap();
    let total: usize = calls.values().sum();
    println!(
        "engine calls of a job of 8 trials, its own included: {total}, {:.1} per trial",
        total as f64 / 8.0
    );
    for (call, count) in calls.iter() {
        println!("  {count:>4}  {call}");
    }
}

async fn carry(inside: UnixStream, calls: Arc<Mutex<BTreeMap<String, usize>>>) {
    let outside = UnixStream::connect(ENGINE).await.unwrap();
    let ((mut from, mut back), (mut answers, mut to)) = (inside.into_split(), outside.into_split());
    tokio::spawn(async move { tokio::io::copy(&mut answers, &mut back).await });
    let mut chunk = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut chunk).await {
        let head = String::from_utf8_lossy(chunk.get(..length.min(200)).unwrap()).into_owned();
        if let Some(call) = name_of_call(&head) {
            *calls.lock().unwrap().entry(call).or_default() += 1;
        }
        if to.write_all(chunk.get(..length).unwrap()).await.is_err() {
            return;
        }
    }
}

/// Method and path, without version and identifiers.
fn name_of_call(head: &str) -> Option<String> {
    let (method, rest) = head.split_once(' ')?;
    let path = rest.split([' ', '?']).next()?;
    if !["GET", "POST", "PUT", "DELETE", "HEAD"].contains(&method) || !path.starts_with('/') {
        return None;
    }
    let is_id = |part: &str| part.len() >= 32 || part.starts_with("rolltap-") || part.contains("%2F");
    let parts = path.split('/').filter(|part| !part.is_empty() && !part.starts_with("v1."));
    let parts: Vec<_> = parts.map(|part| if is_id(part) { "…" } else { part }).collect();
    Some(format!("{method} /{}", parts.join("/")))
}

async fn job(agent: &str, trials: u32, at_once: u32) -> (JobReport, Duration) {
    let jobs = tempfile::tempdir().unwrap();
    let task = JobTask::from(Task::load(Path::new(TASK)).unwrap());
    let agent = JobAgent::new(AgentSpec::new(agent, AgentOptions::default()).unwrap(), None);
    let (kind, proxy) = (EnvironmentKind::Docker, ProxyChoice::from(Upstreams::default()));
    let settings = JobSettings {
        samples: NonZeroU32::new(trials).unwrap(),
        concurrency: NonZeroUsize::new(at_once as usize).unwrap(),
        job_name: Some(JOB.to_owned()),
        ..JobSettings::new(vec![task], vec![agent], kind, jobs.path().to_owned(), proxy)
    };
    let begun = Instant::now();
    let report = run_job(settings, Progress::for_stderr(true), Cancellation::default()).await.unwrap();
    assert!(report.is_clean(), "{:?}, {:?}", report.problems, report.trials);
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
