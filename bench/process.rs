//! A process under test: this program again, on its own core, and its figures in `/proc`.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rolltap_proxy::{PoolSettings, Settings, UpstreamTls};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

/// A child process that is killed on drop.
pub(crate) struct Process {
    child: Child,
    pub(crate) address: SocketAddr,
    /// The address of the admin plane, if the process is the proxy.
    pub(crate) admin: Option<SocketAddr>,
}

impl Process {
    /// Starts this program in another role on these cores.
    pub(crate) fn start_on(cores: &[usize], role: &[&str]) -> Self {
        let mut command = pinned(cores, &std::env::current_exe().unwrap());
        let mut child = command.args(role).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let mut addresses = line.split_whitespace().map(|address| address.parse().unwrap());
        Self { address: addresses.next().unwrap(), admin: addresses.next(), child }
    }

    /// Starts another program on these cores, and waits until it accepts connections at this address.
    pub(crate) fn start_server(cores: &[usize], program: &[&str], address: SocketAddr) -> Self {
        let mut command = pinned(cores, Path::new(program[0]));
        let mut process = Self { child: command.args(&program[1..]).spawn().unwrap(), address, admin: None };
        while std::net::TcpStream::connect(address).is_err() {
            let ended = process.child.try_wait().unwrap();
            assert!(ended.is_none(), "{program:?} does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        process
    }

    /// Starts `rolltap proxy` on these cores.
    pub(crate) fn start_program(cores: &[usize], program: &Path, upstream: SocketAddr, data: &Path) -> Self {
        let mut command = pinned(cores, program);
        command.args(["proxy", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--until-stdin-ends"]);
        command.args(["--upstream", &format!("http://{upstream}"), "--data"]).arg(data);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut address =
            || lines.next().unwrap().unwrap().rsplit_once("http://").unwrap().1.parse().unwrap();
        Self { address: address(), admin: Some(address()), child }
    }

    /// Stops `rolltap proxy` and returns whether it could write all its records.
    pub(crate) fn stop(mut self) -> bool {
        drop(self.child.stdin.take());
        self.child.wait().unwrap().success()
    }

    /// Opens a trial and returns its key.
    pub(crate) async fn open_trial(&self) -> String {
        let url = format!("http://{}/v1/trials", self.admin.unwrap());
        let sent = rolltap_testing::http_client().post(url).json(&json!({"task_id": "bench"})).send();
        let opened: Value = sent.await.unwrap().json().await.unwrap();
        opened["key"].as_str().unwrap().to_owned()
    }

    /// Returns the processor time of all its threads, in seconds.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        let tasks = std::fs::read_dir(self.of_process("task")).unwrap();
        let nanoseconds = tasks.map(|task| {
            let stat = std::fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap_or_default();
            stat.split(' ').next().and_then(|first| first.parse::<u64>().ok()).unwrap_or(0)
        });
        nanoseconds.sum::<u64>() as f64 / 1e9
    }

    /// Returns its resident memory, in KiB.
    pub(crate) fn resident_kib(&self) -> f64 {
        let status = std::fs::read_to_string(self.of_process("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    fn of_process(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.child.id()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn pinned(cores: &[usize], program: &Path) -> Command {
    let list: Vec<_> = cores.iter().map(usize::to_string).collect();
    let mut command = Command::new("taskset");
    command.args(["-c", &list.join(",")]).arg(program);
    command
}

/// Builds a runtime with that many threads, as the program does: with one, there is no pool.
pub(crate) fn runtime(workers: &str) -> Runtime {
    let mut builder = match workers.parse().unwrap() {
        1 => Builder::new_current_thread(),
        workers => {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(workers);
            builder
        }
    };
    builder.enable_all().build().unwrap()
}

/// Runs the proxy, prints its addresses on stdout, and serves until it is killed. The upstream is a URL. The file
/// `authority` has the certificate of its authority, for a URL with https.
pub(crate) fn run_proxy(upstream: &str, data: &str, workers: &str, authority: Option<&str>) -> ! {
    runtime(workers).block_on(async {
        let tls =
            UpstreamTls { authorities: authority.map(PathBuf::from).into_iter().collect(), identity: None };
        let pool = PoolSettings { tls, ..PoolSettings::default() };
        let settings =
            Settings { pool, ..Settings::on_loopback(vec![upstream.parse().unwrap()], data.into()) };
        let proxy = rolltap_proxy::start(settings).await.unwrap();
        println!("{} {}", proxy.agent_addrs()[0], proxy.admin_addr());
        loop {
            std::future::pending::<()>().await;
        }
    })
}
