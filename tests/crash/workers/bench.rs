//! The parts of a cluster with workers, each a process: NATS, a simulated vLLM, a proxy, workers, and jobs.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rolltap_testing::{NatsServers, free_port, until};
use serde_json::Value;
use tempfile::TempDir;

use super::super::part::{self, Part};

/// A shell command that waits for the gate, and then calls the model once.
pub(super) const AGENT: &str = "while [ ! -e GATE ]; do sleep 0.1; done; \
    curl -sf \"$OPENAI_BASE_URL/chat/completions\" -H \"authorization: Bearer $OPENAI_API_KEY\" \
    -H 'content-type: application/json' -d '{\"model\": \"sim\", \"max_tokens\": 8, \"messages\": \
    [{\"role\": \"user\", \"content\": \"hello\"}]}' > /dev/null";

/// The cluster. Its processes are killed when this is dropped. The token of its workers has the roles `open` and `reward`
/// alone.
pub(super) struct Bench {
    _servers: NatsServers,
    dir: TempDir,
    _parts: Vec<Part>,
    cluster: Vec<String>,
    upstream: String,
    admin: String,
}

impl Bench {
    pub(super) fn start() -> Self {
        let servers = NatsServers::start(1);
        let dir = tempfile::tempdir().unwrap();
        let at = |port: u16| format!("127.0.0.1:{port}");
        let (sim, agents, admin) = (at(free_port()), at(free_port()), at(free_port()));
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let upstream = format!("http://{sim}");
        let sim = Part::start(dir.path(), "sim", &words(&["sim", "--listen", &sim]));
        make_token(dir.path(), "worker", &["open", "reward"]);
        make_token(dir.path(), "job", &["open", "reward", "read"]);
        let proxy =
            ["proxy", "--upstream", &upstream, "--listen", &agents, "--admin", &admin, "--data", "data"];
        let guard = ["--admin-tokens", "tokens.toml", "--audit-log", "audit.jsonl"];
        let proxy = Part::start(dir.path(), "proxy", &words(&[&proxy[..], &guard].concat()));
        let objects = format!("file://{}", dir.path().join("objects").display());
        let urls = servers.urls();
        let cluster = words(&["--cluster", &urls, "--cluster-replicas", "1", "--cluster-objects", &objects]);
        proxy.until_said("admin plane listens", 1);
        let admin = format!("http://{admin}");
        Self { _servers: servers, dir, _parts: vec![sim, proxy], cluster, upstream, admin }
    }

    /// Starts a worker. It takes trials once a job has created the queue.
    pub(super) fn worker(&self, name: &str, slots: usize, environment: &str) -> Part {
        self.worker_of(&self.admin, name, slots, environment)
    }

    /// Starts a worker whose trials call the proxy with this admin plane.
    pub(super) fn worker_of(&self, admin: &str, name: &str, slots: usize, environment: &str) -> Part {
        let slots = slots.to_string();
        let own = ["worker", "-n", &slots, "-e", environment, "--name", name, "--dir", name];
        let own = own.iter().chain(&["--proxy-token-file", "worker.token", "--proxy"]);
        let own = own.map(|word| (*word).to_owned()).chain([admin.to_owned()]);
        Part::start(self.dir.path(), name, &own.chain(self.cluster.iter().cloned()).collect::<Vec<_>>())
    }

    /// Starts a job of a task whose agent waits for the gate.
    pub(super) fn gated_job(&self, name: &str, samples: usize) -> Part {
        let gate = self.gate(name).display().to_string();
        let command = AGENT.replace("GATE", &gate);
        let samples = samples.to_string();
        let more = ["-a", "command", "--agent-command", &command, "-k", &samples];
        self.job(name, &[&["-p", "hello-file"], &more[..]].concat(), true)
    }

    /// Starts a job of tasks of the examples.
    pub(super) fn job(&self, name: &str, more: &[&str], on_workers: bool) -> Part {
        let environment = if more.contains(&"-e") { &[][..] } else { &["-e", "local"] };
        let own = ["run", "-m", "sim", "--job-name", name, "--proxy", &self.admin];
        let token = ["--proxy-token-file", "job.token"];
        let arguments = own.iter().chain(&token).chain(environment).chain(more).map(|word| {
            let task = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/tasks").join(word);
            if task.is_dir() && !word.is_empty() { task.display().to_string() } else { (*word).to_owned() }
        });
        let cluster = self.cluster.iter().filter(|_| on_workers).cloned();
        Part::start(self.dir.path(), &format!("job-{name}"), &arguments.chain(cluster).collect::<Vec<_>>())
    }

    /// Starts a service on workers, with its agent plane at the first port and its admin plane at the second one. Its agents
    /// wait for the gate.
    pub(super) fn service(&self, ports: [u16; 2]) -> Part {
        let command = AGENT.replace("GATE", &self.gate("service").display().to_string());
        let [agents, admin] = ports.map(|port| format!("127.0.0.1:{port}"));
        let public = format!("http://{agents}");
        let task = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/tasks/hello-file");
        let options = [
            ("-p", task.to_str().unwrap()),
            ("-a", "command"),
            ("--agent-command", &command),
            ("-e", "local"),
            ("-m", "sim"),
            ("--upstream", &self.upstream),
            ("--listen", &agents),
            ("--public-url", &public),
            ("--admin", &admin),
        ];
        let options = options.iter().flat_map(|(flag, value)| [(*flag).to_owned(), (*value).to_owned()]);
        let arguments = ["serve".to_owned()].into_iter().chain(options).chain(self.cluster.iter().cloned());
        Part::start(self.dir.path(), "service", &arguments.collect::<Vec<_>>())
    }

    /// Resumes a job on workers.
    pub(super) fn resumed(&self, name: &str) -> Part {
        let job = format!("jobs/{name}");
        let own = ["resume", &job, "--proxy", &self.admin, "--proxy-token-file", "job.token"];
        let own = own.iter().map(|word| (*word).to_owned());
        let arguments: Vec<_> = own.chain(self.cluster.iter().cloned()).collect();
        Part::start(self.dir.path(), &format!("job-{name}-resumed"), &arguments)
    }

    /// The file for which the agents of a job wait.
    pub(super) fn gate(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("gate-{name}"))
    }

    pub(super) fn open_gate(&self, name: &str) {
        fs::write(self.gate(name), "").unwrap();
    }

    pub(super) fn job_dir(&self, name: &str) -> PathBuf {
        self.dir.path().join("jobs").join(name)
    }

    /// The directories of the trials of a job.
    pub(super) fn trials(&self, name: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.job_dir(name)).unwrap().map(|entry| entry.unwrap().path());
        let mut trials: Vec<_> = entries.filter(|path| path.join("config.json").is_file()).collect();
        trials.sort();
        trials
    }

    /// The records of the proxy's audit log.
    pub(super) fn audit(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.dir.path().join("audit.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Writes a file of the cluster's directory. Returns its path.
    pub(super) fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, content).unwrap();
        path
    }

    /// Waits until this number of trials of a job have been begun by workers.
    pub(super) fn until_running(&self, name: &str, trials: usize) {
        let runs = |dir: &PathBuf| {
            fs::read_to_string(dir.join("trial.log")).is_ok_and(|log| log.contains("runs on worker"))
        };
        until(&format!("{trials} running trials of {name}"), || {
            self.job_dir(name).is_dir() && self.trials(name).iter().filter(|dir| runs(dir)).count() >= trials
        });
    }

    /// Checks the captures of a job.
    pub(super) fn check(&self, name: &str) {
        part::check(&self.job_dir(name), &[]);
    }
}

/// Adds a token with these roles to `tokens.toml`, and writes the token to `NAME.token`.
fn make_token(dir: &Path, name: &str, roles: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rolltap"));
    command.current_dir(dir).args(["admin-token", "--file", "tokens.toml", "--name", name]);
    let output = command.args(roles.iter().flat_map(|role| ["--role", role])).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let token = dir.join(format!("{name}.token"));
    fs::write(&token, output.stdout).unwrap();
    fs::set_permissions(&token, Permissions::from_mode(0o600)).unwrap();
}

/// Reads a JSON file.
pub(super) fn json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}
