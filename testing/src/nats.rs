//! NATS servers with JetStream, for the tests of clusters.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::relay::{Cut, Relay};
use crate::{free_port, until};

/// The lines of a server's log that a test prints when it fails.
const LOG_LINES: usize = 30;

/// NATS servers on loopback that form one NATS cluster. They are killed when this is dropped.
#[derive(Debug)]
pub struct NatsServers {
    servers: Vec<NatsServer>,
    /// Variables for the configuration of the servers.
    variables: Vec<(String, String)>,
    /// The relays between servers, each with the numbers of the server that connects and of the other one.
    routes: Vec<(usize, usize, Relay)>,
    dir: TempDir,
}

/// How servers start.
#[derive(Clone, Debug)]
pub struct NatsSetup<'a> {
    /// The number of servers.
    pub count: usize,
    /// Further arguments of `nats-server`.
    pub arguments: &'a [&'a str],
    /// Variables for the file of `-c`.
    pub variables: &'a [(&'a str, &'a str)],
    /// Whether the network between servers can fail.
    pub has_relays: bool,
    /// The disk of server 0, if it has its own.
    pub disk: Option<NatsDisk>,
}

/// A disk in a mount namespace.
#[derive(Clone, Debug)]
pub struct NatsDisk {
    /// The words before a command that runs in the namespace.
    pub entry: Vec<String>,
    /// The directory of the disk.
    pub dir: PathBuf,
}

#[derive(Debug)]
struct NatsServer {
    port: u16,
    monitor: u16,
    /// The program and its arguments.
    command: Vec<String>,
    /// `None` while the server is stopped.
    child: Option<Child>,
}

impl<'a> NatsSetup<'a> {
    /// The setup of this number of servers, without any further options.
    pub fn of(count: usize) -> Self {
        Self { count, arguments: &[], variables: &[], has_relays: false, disk: None }
    }
}

impl NatsServers {
    /// Starts servers, and waits until JetStream works on each. Requires the variable `ROLLTAP_TESTBED_NATS`.
    pub fn start(count: usize) -> Self {
        Self::start_as(&NatsSetup::of(count))
    }

    /// Starts servers with this setup.
    pub fn start_as(setup: &NatsSetup<'_>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let routes: Vec<u16> = (0..setup.count).map(|_| free_port()).collect();
        let pairs = (0..setup.count).flat_map(|from| (0..setup.count).map(move |to| (from, to)));
        let pairs = pairs.filter(|(from, to)| setup.has_relays && from != to);
        let relays: Vec<_> = pairs.map(|(from, to)| (from, to, Relay::to(routes[to]))).collect();
        let servers = (0..setup.count).map(|number| {
            let mut server = NatsServer::new(number, setup, dir.path());
            if setup.count > 1 {
                let own = relays.iter().filter(|(from, ..)| *from == number);
                let relayed: Vec<u16> = own.map(|(.., relay)| relay.port()).collect();
                server.join(number, routes[number], if setup.has_relays { &relayed } else { &routes });
            }
            if setup.has_relays {
                // Neither clients nor servers learn addresses that bypass relays.
                let closed = format!("127.0.0.1:{}", free_port());
                let hidden = ["--no_advertise=true", "--cluster_advertise", &closed];
                server.command.extend(hidden.map(str::to_owned));
            }
            server
        });
        let servers = servers.collect();
        let variables = setup.variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut started = Self { servers, variables: variables.collect(), routes: relays, dir };
        (0..setup.count).for_each(|number| started.spawn(number));
        (0..setup.count).for_each(|number| started.wait(number));
        started
    }

    /// Lets the network between a server and the others fail. The server is the one at which requests arrive.
    pub fn cut(&self, number: usize, cut: Cut) {
        for (from, to, relay) in &self.routes {
            if *to == number {
                relay.cut(cut);
            } else if *from == number {
                relay.cut(cut.mirrored());
            }
        }
    }

    /// Lets the network between a server and the others work again.
    pub fn heal(&self, number: usize) {
        for (from, to, relay) in &self.routes {
            if *from == number || *to == number {
                relay.heal();
            }
        }
    }

    /// The ports at which clients reach the servers.
    pub fn ports(&self) -> Vec<u16> {
        self.servers.iter().map(|server| server.port).collect()
    }

    /// The URL of a server's monitor.
    pub fn monitor(&self, number: usize) -> String {
        format!("http://127.0.0.1:{}", self.servers[number].monitor)
    }

    /// The addresses of all servers, for `--cluster`.
    pub fn urls(&self) -> String {
        self.urls_with("")
    }

    /// The addresses of all servers with a user and a password, for `--cluster`.
    pub fn urls_of(&self, user: &str, password: &str) -> String {
        self.urls_with(&format!("{user}:{password}@"))
    }

    fn urls_with(&self, user: &str) -> String {
        let urls: Vec<String> =
            self.servers.iter().map(|server| format!("nats://{user}127.0.0.1:{}", server.port)).collect();
        urls.join(",")
    }

    /// Kills a server.
    pub fn kill(&mut self, number: usize) {
        if let Some(mut child) = self.server(number).child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts a server that was killed, on its files and its port, and waits until JetStream works.
    pub fn restart(&mut self, number: usize) {
        self.spawn(number);
        self.wait(number);
    }

    /// Starts a server that was killed. JetStream may not work for as long as other servers are missing.
    pub fn restart_at_once(&mut self, number: usize) {
        self.spawn(number);
    }

    /// Waits until JetStream works on all servers.
    pub fn wait_for_all(&mut self) {
        (0..self.servers.len()).for_each(|number| self.wait(number));
    }

    /// Returns the process id of a server that runs.
    pub fn id(&mut self, number: usize) -> u32 {
        self.server(number).child.as_ref().unwrap().id()
    }

    fn server(&mut self, number: usize) -> &mut NatsServer {
        self.servers.get_mut(number).unwrap()
    }

    fn spawn(&mut self, number: usize) {
        let log = File::options().create(true).append(true).open(self.log(number)).unwrap();
        let variables = self.variables.clone();
        let server = self.server(number);
        let (program, arguments) = server.command.split_first().unwrap();
        let mut command = Command::new(program);
        command.envs(variables).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        server.child = Some(command.spawn().unwrap());
    }

    /// Waits until a server is healthy: JetStream works, and it has caught up with the others.
    fn wait(&mut self, number: usize) {
        let monitor = self.server(number).monitor;
        let log = self.log(number);
        until(&format!("nats-server is healthy: {}", log.display()), || {
            let child = self.server(number).child.as_mut().unwrap();
            assert!(child.try_wait().unwrap().is_none(), "nats-server has ended: {}", log.display());
            is_healthy(monitor)
        });
    }

    /// Prints the end of a server's log, because the log goes with the servers of a test that fails.
    fn print_end_of_log(&self, number: usize) {
        let text = std::fs::read_to_string(self.log(number)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let end = lines.len().saturating_sub(LOG_LINES);
        println!("the end of the log of NATS server {number}:\n{}", lines[end..].join("\n"));
    }

    fn log(&self, number: usize) -> std::path::PathBuf {
        self.dir.path().join(format!("{number}.log"))
    }

    /// The folder with the files and logs of the servers.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}

impl NatsServer {
    /// A server that belongs to no NATS cluster.
    fn new(number: usize, setup: &NatsSetup<'_>, dir: &Path) -> Self {
        let program = std::env::var("ROLLTAP_TESTBED_NATS")
            .expect("ROLLTAP_TESTBED_NATS is not set: run ./scripts/testbed, and source its env");
        let (port, monitor) = (free_port(), free_port());
        let disk = setup.disk.as_ref().filter(|_| number == 0);
        let mut command = disk.map_or_else(Vec::new, |disk| disk.entry.clone());
        command.extend([program.as_str(), "-js", "-a", "127.0.0.1"].map(str::to_owned));
        let place = disk.map_or_else(|| dir.to_owned(), |disk| disk.dir.clone()).join(number.to_string());
        let own =
            [("-p", port.to_string()), ("-m", monitor.to_string()), ("-sd", place.display().to_string())];
        command.extend(own.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]));
        command.extend(setup.arguments.iter().map(|argument| (*argument).to_owned()));
        Self { port, monitor, command, child: None }
    }

    /// Lets the server accept routes at a port, and connect to these ports.
    fn join(&mut self, number: usize, port: u16, others: &[u16]) {
        let url = |port: &u16| format!("nats://127.0.0.1:{port}");
        let others: Vec<String> = others.iter().map(url).collect();
        let (name, listen, routes) = (format!("server-{number}"), url(&port), others.join(","));
        let own = ["-n", &name, "--cluster_name", "tests", "--cluster", &listen, "--routes", &routes];
        self.command.extend(own.map(str::to_owned));
    }
}

impl Drop for NatsServers {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (0..self.servers.len()).for_each(|number| self.print_end_of_log(number));
        }
        (0..self.servers.len()).for_each(|number| self.kill(number));
    }
}

fn is_healthy(port: u16) -> bool {
    use std::io::{Read, Write};
    let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", port)) else { return false };
    let request = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let mut answer = String::new();
    stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut answer)).is_ok()
        && answer.starts_with("HTTP/1.1 200")
}
