//! Failures of containers and engines in the middle of a job: the trial fails as one whose environment failed, the job
//! continues, and nothing is left.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rolltap_testing::until;
use serde_json::Value;
use tempfile::TempDir;

use crate::program::{Job, text};

/// Makes a task whose solution takes `seconds` and then passes its tests.
fn task(seconds: u32) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let image = std::env::var("ROLLTAP_TESTBED_PREBUILT").unwrap();
    for (name, text) in [
        ("task.toml", format!("[environment]\ndocker_image = \"{image}\"\n")),
        ("instruction.md", "Wait.".to_owned()),
        ("tests/test.sh", "cat /app/done >/logs/verifier/reward.txt\n".to_owned()),
        ("solution/solve.sh", format!("echo begun >/logs/agent/begun; sleep {seconds}; echo 1 >/app/done\n")),
    ] {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

/// Runs `docker` at the given engine, or at the machine's own.
fn docker(host: Option<&str>, arguments: &[&str]) -> Output {
    let mut command = Command::new("docker");
    if let Some(host) = host {
        command.env("DOCKER_HOST", host);
    }
    command.args(arguments).output().unwrap()
}

/// Returns the containers of a job in which the agent has begun its work.
fn at_work(host: Option<&str>, job: &Job) -> Vec<String> {
    let label = format!("label=dev.rolltap.job={}", job.name);
    let running = text(&docker(host, &["ps", "-q", "--filter", &label]).stdout);
    let begun = |id: &&str| docker(host, &["exec", id, "test", "-e", "/logs/agent/begun"]).status.success();
    running.lines().filter(begun).map(str::to_owned).collect()
}

/// Returns the reward and the failure's name of each trial.
fn results(job: &Job) -> Vec<(Value, Value)> {
    let folders = fs::read_dir(job.dir()).unwrap().map(|entry| entry.unwrap().path().join("result.json"));
    let mut results: Vec<_> = folders
        .filter(|path| path.is_file())
        .map(|path| serde_json::from_slice::<Value>(&fs::read(path).unwrap()).unwrap())
        .map(|result| {
            let reward = result["verifier_result"]["rewards"]["reward"].clone();
            (reward, result["exception_info"]["exception_type"].clone())
        })
        .collect();
    results.sort_by_key(|(_, failure)| failure.to_string());
    results
}

fn one_lost_and_one_solved() -> Vec<(Value, Value)> {
    vec![(Value::Null, "RuntimeRequestError".into()), (1.0.into(), Value::Null)]
}

#[test]
#[ignore = "needs Docker: run ./scripts/test"]
fn a_container_that_is_killed_costs_its_trial_alone() {
    let (job, task) = (Job::new("killed"), task(10));
    let mut command = job.command(&["-a", "oracle", "-k", "2", "-n", "2", "-p"]);
    command.arg(task.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let run = command.spawn().unwrap();
    until("two agents at work", || at_work(None, &job).len() == 2);
    assert!(docker(None, &["kill", &at_work(None, &job)[0]]).status.success());
    let output = run.wait_with_output().unwrap();
    let said = format!("{}\n{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(results(&job), one_lost_and_one_solved(), "{said}");
    assert_eq!(job.left_in_docker(), Vec::<String>::new());
}

/// A network namespace of its own, for changes that must not affect the machine.
struct Network(Child);

impl Network {
    fn new() -> Self {
        let holder = Command::new("unshare")
            .args(["--net", "sh", "-c", "ip link set lo up && exec sleep 600"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let network = Self(holder);
        // Before `unshare` has its own namespace, the process has that of the machine, in which lo is up too.
        let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
        let is_own = || namespace(&network.0.id().to_string()) != namespace("self");
        let is_up =
            || network.inside(&Command::new("ip")).args(["link", "show", "up", "lo"]).output().unwrap();
        until("a network", || is_own() && is_up().stdout.starts_with(b"1: lo"));
        network
    }

    /// Returns the same command in this network namespace.
    fn inside(&self, command: &Command) -> Command {
        let mut inside = Command::new("nsenter");
        inside
            .arg(format!("--net=/proc/{}/ns/net", self.0.id()))
            .arg(command.get_program())
            .args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        if let Some(dir) = command.get_current_dir() {
            inside.current_dir(dir);
        }
        inside
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// A second engine, which a test may stop or restart. It has its own network, because in the machine's network it would
/// remove the first engine's bridge.
struct Engine {
    dir: TempDir,
    process: Child,
    network: Network,
}

impl Engine {
    fn start() -> Self {
        let (dir, network) = (tempfile::tempdir().unwrap(), Network::new());
        let process = Self::launch(dir.path(), &network);
        let engine = Self { dir, process, network };
        engine.wait();
        engine
    }

    fn launch(dir: &Path, network: &Network) -> Child {
        let place = |name: &str| dir.join(name).display().to_string();
        let log = fs::OpenOptions::new().create(true).append(true).open(dir.join("log")).unwrap();
        let mut dockerd = Command::new("dockerd");
        dockerd
            .args(["--data-root", &place("data"), "--exec-root", &place("exec"), "--pidfile", &place("pid")])
            .args(["--host", &format!("unix://{}", place("docker.sock")), "--bridge", "none"])
            .args(["--iptables=false", "--ip6tables=false", "--ip-masq=false"]);
        network.inside(&dockerd).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap()
    }

    fn restart(&mut self) {
        self.stop();
        self.process = Self::launch(self.dir.path(), &self.network);
        self.wait();
    }

    fn host(&self) -> String {
        format!("unix://{}", self.dir.path().join("docker.sock").display())
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    fn wait(&self) {
        until("the engine answers", || docker(Some(&self.host()), &["version"]).status.success());
    }

    fn stop(&mut self) {
        assert!(Command::new("kill").arg(self.process.id().to_string()).status().unwrap().success());
        self.process.wait().unwrap();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Ok(None) = self.process.try_wait() {
            self.stop();
        }
    }
}

#[test]
#[ignore = "needs Docker and root: run ./scripts/test"]
fn an_engine_that_is_restarted_costs_the_trials_that_run_alone() {
    let mut engine = Engine::start();
    let host = engine.host();
    let image = std::env::var("ROLLTAP_TESTBED_PREBUILT").unwrap();
    let copy = "docker save \"$1\" | docker --host \"$2\" load";
    let copied = Command::new("sh").args(["-c", copy, "sh", &image, &host]).output().unwrap();
    assert!(copied.status.success(), "{}", text(&copied.stderr));
    let (job, task) = (Job::new("restarted"), task(10));
    let mut command = job.command(&["-a", "oracle", "-k", "2", "-n", "1", "-p"]);
    command.arg(task.path()).env("DOCKER_HOST", &host);
    let run = engine.network.inside(&command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("an agent at work", || at_work(Some(&host), &job).len() == 1);
    engine.restart();
    let output = run.wait_with_output().unwrap();
    let log = fs::read_to_string(engine.log()).unwrap();
    let said = format!("{}\n{}\n{log}", text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(results(&job), one_lost_and_one_solved(), "{said}");
    let of_job = format!("label=dev.rolltap.job={}", job.name);
    assert_eq!(text(&docker(Some(&host), &["ps", "-aq", "--filter", &of_job]).stdout), "");
    // The network that is left for later jobs is removed on request.
    let shared = ["network", "ls", "-q", "--filter", "label=dev.rolltap.network"];
    assert_eq!(text(&docker(Some(&host), &shared).stdout).lines().count(), 1);
    let mut clean = Command::new(env!("CARGO_BIN_EXE_rolltap"));
    clean.args(["clean", "--networks"]).env("DOCKER_HOST", &host);
    let cleaned = engine.network.inside(&clean).output().unwrap();
    assert!(cleaned.status.success(), "{}{}", text(&cleaned.stdout), text(&cleaned.stderr));
    assert_eq!(text(&docker(Some(&host), &shared).stdout), "");
}
