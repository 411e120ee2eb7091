//! Jobs one after the other whose trials run on workers, while workers and jobs die.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rolltap_testing::until;
use serde_json::Value;

use super::super::super::part::{self, Part};

/// The workers with trials as local processes, and all workers. The others use Docker.
const LOCAL: usize = 6;
pub(super) const WORKERS: usize = 8;
/// The longest time for which a worker is dead or paused. A worker is lost after 20 seconds.
pub(super) const LONGEST: Duration = Duration::from_secs(30);
/// The samples of a job.
const SAMPLES: usize = 6;

/// A conversation of three calls. Like agents, it repeats a call that fails.
const AGENT: &str = "for turn in 1 2 3; do curl -sf --retry 60 --retry-all-errors --retry-delay 1 --max-time 60 \
    \"$OPENAI_BASE_URL/chat/completions\" -H \"authorization: Bearer $OPENAI_API_KEY\" \
    -H 'content-type: application/json' -d '{\"model\": \"MODEL\", \"max_tokens\": 8, \"messages\": \
    [{\"role\": \"user\", \"content\": \"hello\"}]}' > /dev/null || exit 1; sleep 2; done";

/// The workers and the present job. All are killed when this is dropped.
pub(super) struct Jobs {
    dir: PathBuf,
    variables: Vec<(String, String)>,
    common: Vec<String>,
    workers: Vec<Part>,
    job: Part,
    /// The number of the present job.
    number: usize,
    /// The valid trials of the jobs that have ended.
    trials: Vec<String>,
}

impl Jobs {
    /// Starts all workers and the first job. `common` has the arguments of all of them.
    pub(super) fn start(dir: &Path, common: Vec<String>, variables: Vec<(String, String)>) -> Self {
        let workers = (0..WORKERS).map(|number| worker(dir, number, &common, &variables)).collect();
        let job = job(dir, 0, &common, &variables);
        Self { dir: dir.to_owned(), variables, common, workers, job, number: 0, trials: Vec::new() }
    }

    /// Kills a worker.
    pub(super) fn kill_worker(&mut self, number: usize) {
        self.workers[number].kill();
    }

    /// Starts a worker that was killed. It removes what it left behind.
    pub(super) fn start_worker(&mut self, number: usize) {
        self.workers[number] = worker(&self.dir, number, &self.common, &self.variables);
    }

    pub(super) fn signal_worker(&self, number: usize, signal: &str) {
        self.workers[number].send(signal);
    }

    /// Kills the present job. Returns whether it ran.
    pub(super) fn kill_job(&mut self) -> bool {
        let runs = self.job.runs();
        if runs {
            self.job.kill();
        }
        runs
    }

    /// Continues the job that was killed, or starts it again if it had not begun.
    pub(super) fn resume(&mut self) {
        let name = name(self.number);
        if !self.dir.join("jobs").join(&name).join("config.json").is_file() {
            self.job = job(&self.dir, self.number, &self.common, &self.variables);
            return;
        }
        let own = ["resume".to_owned(), format!("jobs/{name}")];
        let arguments: Vec<String> = own.into_iter().chain(self.common.iter().cloned()).collect();
        self.job = Part::start_with(&self.dir, &name, &arguments, &self.variables);
    }

    /// Verifies the present job and starts the next one, if the present one has ended.
    pub(super) fn follow(&mut self) {
        if self.has_ended() {
            self.verify();
            self.number += 1;
            self.job = job(&self.dir, self.number, &self.common, &self.variables);
        }
    }

    /// Whether the present job has ended. A job that begins without NATS ends with an error, and its operator continues it.
    fn has_ended(&mut self) -> bool {
        if self.job.runs() {
            return false;
        }
        if self.job.ended().code() != Some(2) {
            return true;
        }
        let said = self.job.said();
        assert!(said.lines().last().is_some_and(|line| line.contains("NATS")), "{said}");
        self.resume();
        false
    }

    /// Waits for the present job. Returns the number of jobs and the valid trials of all of them.
    pub(super) fn end(&mut self) -> (usize, &[String]) {
        until("the last job ends", || self.has_ended());
        self.verify();
        (self.number + 1, &self.trials)
    }

    /// The number of jobs that have ended.
    pub(super) fn ended(&self) -> usize {
        self.number
    }

    /// Checks that each sample of the present job has one valid trial, and that its captures are sound.
    fn verify(&mut self) {
        let status = self.job.ended();
        assert!(status.success(), "{status}: {}", self.job.said());
        let dir = self.dir.join("jobs").join(name(self.number));
        let mut valid: BTreeMap<u64, String> = BTreeMap::new();
        for entry in fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()) {
            let Ok(config) = fs::read_to_string(entry.join("config.json")) else { continue };
            let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
            let result = read(&fs::read_to_string(entry.join("result.json")).unwrap());
            if result["rolltap"]["reward_valid"] == true {
                let sample = read(&config)["rolltap"]["sample_index"].as_u64().unwrap();
                let trial = result["trial_name"].as_str().unwrap().to_owned();
                let twice = valid.insert(sample, trial);
                assert_eq!(twice, None, "{}: sample {sample} counts twice", dir.display());
            }
        }
        assert_eq!(valid.len(), SAMPLES, "{}: {valid:?}: {}", dir.display(), self.job.said());
        part::check(&dir, &[]);
        self.trials.extend(valid.into_values());
    }
}

fn name(number: usize) -> String {
    format!("job-{number}")
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn worker(dir: &Path, number: usize, common: &[String], variables: &[(String, String)]) -> Part {
    let name = format!("worker-{number}");
    let environment = if number < LOCAL { "local" } else { "docker" };
    let own = ["worker", "-n", "2", "-e", environment, "--name", &name, "--dir", &name];
    let arguments = [words(&own), common.to_vec()].concat();
    Part::start_with(dir, &name, &arguments, variables)
}

/// Starts a job: of real vLLM in Docker, of real vLLM, or of the simulator.
fn job(dir: &Path, number: usize, common: &[String], variables: &[(String, String)]) -> Part {
    let task = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/tasks").join(name);
        path.display().to_string()
    };
    let (model, environment, task) = match number % 3 {
        0 => ("tiny", "docker", task("count-errors")),
        1 => ("tiny", "local", task("hello-file")),
        _ => ("sim", "local", task("hello-file")),
    };
    let (job, samples) = (name(number), SAMPLES.to_string());
    let own =
        ["run", "--job-name", &job, "-m", model, "-e", environment, "-p", &task, "-k", &samples, "-r", "5"];
    let command = AGENT.replace("MODEL", model);
    let agent: &[&str] = match environment {
        // A model of random weights can fill its context with one answer.
        "docker" => &["-a", "terminal", "--max-turns", "3", "--agent-kwarg", "max_tokens=64"],
        _ => &["-a", "command", "--agent-command", &command],
    };
    Part::start_with(dir, &job, &[words(&own), words(agent), common.to_vec()].concat(), variables)
}
