//! NATS servers with JetStream, for the tests of clusters.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::{free_port, until};

/// NATS servers on loopback that form one NATS cluster. They are killed when this is dropped.
#[derive(Debug)]
pub struct NatsServers {
    servers: Vec<NatsServer>,
    /// Variables for the configuration of the servers.
    variables: Vec<(String, String)>,
    dir: TempDir,
}

#[derive(Debug)]
struct NatsServer {
    port: u16,
    monitor: u16,
    arguments: Vec<String>,
    /// `None` while the server is stopped.
    child: Option<Child>,
}

impl NatsServers {
    /// Starts servers, and waits until JetStream works on each. Requires the variable `ROLLTAP_TESTBED_NATS`.
    pub fn start(count: usize) -> Self {
        Self::start_with(count, &[])
    }

    /// Starts servers with further arguments of `nats-server`.
    pub fn start_with(count: usize, more: &[&str]) -> Self {
        Self::start_with_variables(count, more, &[])
    }

    /// Starts servers with further arguments, and with variables for the file of `-c`.
    pub fn start_with_variables(count: usize, more: &[&str], variables: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let routes: Vec<u16> = (0..count).map(|_| free_port()).collect();
        let all_routes: Vec<String> = routes.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect();
        let server = |(number, route): (usize, &u16)| {
            let (port, monitor) = (free_port(), free_port());
            let mut arguments: Vec<String> = ["-js", "-a", "127.0.0.1"].map(str::to_owned).to_vec();
            let place = dir.path().join(number.to_string()).display().to_string();
            let own = [("-p", port.to_string()), ("-m", monitor.to_string()), ("-sd", place)];
            arguments.extend(own.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]));
            arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
            if count > 1 {
                let cluster = format!("nats://127.0.0.1:{route}");
                let named = ["-n".to_owned(), format!("server-{number}"), "--cluster_name".to_owned()];
                arguments.extend(named);
                let others = ["tests".to_owned(), "--cluster".to_owned(), cluster, "--routes".to_owned()];
                arguments.extend(others);
                arguments.push(all_routes.join(","));
            }
            NatsServer { port, monitor, arguments, child: None }
        };
        let servers = routes.iter().enumerate().map(server).collect();
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut started = Self { servers, variables: variables.collect(), dir };
        (0..count).for_each(|number| started.spawn(number));
        (0..count).for_each(|number| started.wait(number));
        started
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

    /// Returns the process id of a server that runs.
    pub fn id(&mut self, number: usize) -> u32 {
        self.server(number).child.as_ref().unwrap().id()
    }

    fn server(&mut self, number: usize) -> &mut NatsServer {
        self.servers.get_mut(number).unwrap()
    }

    fn spawn(&mut self, number: usize) {
        let program = std::env::var_os("ROLLTAP_TESTBED_NATS");
        assert!(
            program.is_some(),
            "ROLLTAP_TESTBED_NATS is not set: run ./scripts/testbed, and source its env"
        );
        let program = program.unwrap();
        let log = File::options().create(true).append(true).open(self.log(number)).unwrap();
        let variables = self.variables.clone();
        let server = self.server(number);
        let mut command = Command::new(program);
        command
            .envs(variables)
            .args(&server.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        server.child = Some(command.spawn().unwrap());
    }

    /// Waits until a server is healthy: JetStream works, and it has caught up with the others.
    fn wait(&mut self, number: usize) {
        let monitor = self.server(number).monitor;
        let log = self.log(number);
        until(&format!("nats-server is healthy: {}", log.display()), || is_healthy(monitor));
    }

    fn log(&self, number: usize) -> std::path::PathBuf {
        self.dir.path().join(format!("{number}.log"))
    }

    /// The folder with the files and logs of the servers.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for NatsServers {
    fn drop(&mut self) {
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
