//! Tests the order of a verification with a context that records what is asked of it.

use std::sync::Mutex;

use super::*;
use crate::environment::Environment;
use crate::failure::TimeoutPolicy;
use crate::task::SeparateVerifier;

/// Records log lines and stops. Its time may be over from the beginning.
struct Recorder {
    host: Host,
    timeouts: TimeoutPolicy,
    time_is_over: bool,
    lines: Mutex<Vec<String>>,
}

impl Recorder {
    async fn new(time_is_over: bool) -> Self {
        let host = Host::connect(EnvironmentKind::Local, &JobLabel::new("test")).await.unwrap();
        Self { host, timeouts: TimeoutPolicy::default(), time_is_over, lines: Mutex::default() }
    }

    async fn start(&self, task: &Task) -> Environment {
        let prepared = self.host.prepare(task).await.unwrap();
        self.host.start(&prepared, task, &TrialLabel::new("trial")).await.unwrap()
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }
}

impl VerificationContext for Recorder {
    type Separate = Box<Environment>;

    fn timeouts(&self) -> &TimeoutPolicy {
        &self.timeouts
    }

    fn log_line(&self, line: String) {
        self.lines.lock().unwrap().push(line);
    }

    fn time_is_over(&self) -> Option<TrialFailure> {
        self.time_is_over.then(|| TrialFailure::out_of_time(Phase::Verifier))
    }

    async fn bounded<T>(&self, work: impl Future<Output = T>) -> Result<T, TrialFailure> {
        match self.time_is_over() {
            Some(failure) => Err(failure),
            None => Ok(work.await),
        }
    }

    async fn download<T>(&self, _subject: &str, work: impl Future<Output = T>) -> Option<T> {
        Some(work.await)
    }

    async fn start_separate(&self, separate: &SeparateVerifier) -> Result<Box<Environment>, TrialFailure> {
        Ok(Box::new(self.start(&separate.environment).await))
    }

    async fn stop_separate(&self, environment: Box<Environment>) {
        environment.stop().await.unwrap();
        self.log_line("stopped".to_owned());
    }
}

const HOOKS: &str = "
    [[verifier.collect]]
    command = \"echo no >&2; exit 3\"
    [[verifier.collect]]
    command = \"echo late >work\"
";

#[tokio::test]
async fn every_command_of_the_task_runs_and_a_failed_one_is_logged() {
    let (_dir, task) = task("", HOOKS);
    let context = Recorder::new(false).await;
    let environment = context.start(&task).await;
    run_hooks(&context, &environment, &task).await;
    let work = Exec { command: "cat work".to_owned(), ..Exec::default() };
    assert_eq!(environment.exec(work).await.unwrap().stdout, b"late\n");
    environment.stop().await.unwrap();
    let lines = context.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("exit 3") && lines[0].contains("ended with exit code 3: no"), "{lines:?}");
}

#[tokio::test]
async fn no_command_of_the_task_starts_after_the_time() {
    let (_dir, task) = task("", HOOKS);
    let context = Recorder::new(true).await;
    let environment = context.start(&task).await;
    run_hooks(&context, &environment, &task).await;
    let work = Exec { command: "ls".to_owned(), ..Exec::default() };
    assert_eq!(environment.exec(work).await.unwrap().stdout, b"");
    environment.stop().await.unwrap();
    assert!(context.lines().iter().all(|line| line.starts_with("not run before collecting: ")));
}

#[tokio::test]
async fn a_separate_environment_gets_the_artifacts_and_is_stopped_in_every_case() {
    let script = "#!/bin/bash\ncat /app/work >/logs/verifier/reward.txt; ls /app >/logs/verifier/files\n";
    let toml = "artifacts = [\"/app/work\"]\n[verifier]\nenvironment_mode = \"separate\"\n";
    let (_dir, task) = task(script, toml);
    let separate = task.separate_verifier.as_deref().unwrap();
    for time_is_over in [false, true] {
        let context = Recorder::new(time_is_over).await;
        let environment = context.start(&task).await;
        let work = Exec { command: "echo 0.5 >work; echo x >other".to_owned(), ..Exec::default() };
        environment.exec(work).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let logs = LogDirs::below(dir.path());
        let artifacts = Artifacts::new(&task.config.artifacts, dir.path().join("artifacts"));
        collect(&context, &environment, &task, &artifacts).await;
        assert!(download_logs(&context, &environment, &logs).await);
        environment.stop().await.unwrap();
        let verdict = verify_apart(&context, separate, &task, &artifacts, &logs).await;
        match (time_is_over, verdict) {
            (false, Ok(rewards)) => {
                assert_eq!(rewards.reward, Some(0.5));
                assert_eq!(fs::read_to_string(dir.path().join("verifier/files")).unwrap(), "work\n");
            }
            (true, Err(failure)) => assert_eq!(failure.cause, Cause::TrialDeadline),
            (_, verdict) => panic!("{verdict:?}"),
        }
        assert_eq!(context.lines(), ["stopped"]);
    }
}
