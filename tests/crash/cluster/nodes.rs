//! The nodes of a cluster, each a process.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rolltap_testing::{client_builder, free_port, limit};
use tokio::process::{Child, Command};

use super::super::proxy::Place;
use super::super::rng::Chance;
use super::network::Reach;

/// The time in which some node answers after any fault.
const RECOVERY_SECONDS: u64 = 60;
const PAUSE: Duration = Duration::from_millis(20);

/// The nodes, which are killed when this is dropped.
pub(super) struct Nodes {
    nodes: Vec<Node>,
    shards: usize,
    http: reqwest::Client,
}

/// The numbers of nodes and of shards.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) nodes: usize,
    pub(super) shards: usize,
}

struct Node {
    place: Place,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    log: PathBuf,
    /// `None` while the node is down.
    child: Option<Child>,
}

/// Sends a signal to a process of this test.
pub(super) fn send(id: u32, signal: &str) {
    let status = std::process::Command::new("kill").args([format!("-{signal}"), id.to_string()]).status();
    assert!(status.unwrap().success());
}

impl Nodes {
    /// Starts nodes with these further arguments, and waits until each shard has a holder. `reach` gives the network of each node.
    pub(super) async fn start(
        dir: &Path,
        upstream: &str,
        size: Size,
        more: &[&str],
        reach: impl Fn(usize) -> Reach,
    ) -> Self {
        let node = |number: usize| {
            let Reach { servers, variables } = reach(number);
            let (agents, admin) = (free_port(), free_port());
            let at = |port: u16| format!("127.0.0.1:{port}");
            let data = dir.join(format!("data-{number}"));
            let arguments = [
                ("--listen", at(agents)),
                ("--admin", at(admin)),
                ("--upstream", upstream.to_owned()),
                ("--data", data.display().to_string()),
                ("--cluster", servers),
                ("--cluster-shards", size.shards.to_string()),
            ];
            let arguments = arguments.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
            let arguments = arguments.chain(more.iter().map(|argument| (*argument).to_owned())).collect();
            let url = |port: u16| format!("http://127.0.0.1:{port}");
            let place = Place { agents: url(agents), admin: url(admin) };
            Node { place, arguments, variables, log: dir.join(format!("node-{number}.log")), child: None }
        };
        let http = client_builder().timeout(Duration::from_secs(2)).build().unwrap();
        let nodes = (0..size.nodes).map(node).collect();
        let mut nodes = Self { nodes, shards: size.shards, http };
        nodes.restart_ended().await;
        nodes.holders(None).await;
        nodes
    }

    /// Waits until each shard has a holder, and returns the holders. `without` is a node that counts for none.
    pub(super) async fn holders(&mut self, without: Option<usize>) -> Vec<usize> {
        let deadline = Instant::now() + limit(RECOVERY_SECONDS);
        loop {
            let mut holders = Vec::new();
            for (number, node) in self.nodes.iter().enumerate() {
                if without != Some(number) && self.readiness(node).await.as_deref() == Some("ready\n") {
                    holders.push(number);
                }
            }
            if holders.len() >= self.shards {
                return holders;
            }
            assert!(Instant::now() < deadline, "a shard has no holder: {}", self.logs());
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Returns a random holder.
    pub(super) async fn holder(&mut self, chance: &mut Chance) -> usize {
        let holders = self.holders(None).await;
        holders[chance.among(0..holders.len() as u64) as usize]
    }

    /// Returns a random node that holds no shard.
    pub(super) async fn standby(&mut self, chance: &mut Chance) -> usize {
        let holders = self.holders(None).await;
        let others: Vec<usize> = (0..self.nodes.len()).filter(|number| !holders.contains(number)).collect();
        others[chance.among(0..others.len() as u64) as usize]
    }

    /// Returns the text of a node that is ready.
    async fn readiness(&self, node: &Node) -> Option<String> {
        let answer = self.http.get(format!("{}/readyz", node.place.admin)).send().await.ok()?;
        let is_ready = answer.status().is_success();
        answer.text().await.ok().filter(|_| is_ready)
    }

    /// Returns the place of a random node that is ready, or of a holder.
    pub(super) async fn any(&mut self, chance: &mut Chance, only_holder: bool) -> Place {
        let holder = self.holder(chance).await;
        let chosen = chance.among(0..self.nodes.len() as u64) as usize;
        let is_ready = !only_holder && self.readiness(&self.nodes[chosen]).await.is_some();
        self.nodes[if is_ready { chosen } else { holder }].place.clone()
    }

    pub(super) fn place(&self, number: usize) -> Place {
        self.nodes[number].place.clone()
    }

    pub(super) async fn kill(&mut self, number: usize) {
        if let Some(mut child) = self.nodes[number].child.take() {
            child.kill().await.unwrap();
        }
    }

    /// Kills a node, unless it has ended by itself. Returns whether it ran.
    pub(super) fn kill_at_once(&mut self, number: usize) -> bool {
        let node = &mut self.nodes[number];
        node.runs() && node.child.as_mut().is_some_and(|child| child.start_kill().is_ok())
    }

    /// Sends a signal to a node, unless it has ended by itself. Returns whether it ran.
    pub(super) fn try_signal(&mut self, number: usize, signal: &str) -> bool {
        let runs = self.nodes[number].runs();
        if runs {
            self.signal(number, signal);
        }
        runs
    }

    /// Starts the nodes that have ended, except these.
    pub(super) fn start_ended_except(&mut self, down: &[usize]) {
        for (number, node) in self.nodes.iter_mut().enumerate() {
            if !down.contains(&number) {
                node.start_if_ended();
            }
        }
    }

    pub(super) fn signal(&self, number: usize, signal: &str) {
        send(self.nodes[number].child.as_ref().unwrap().id().unwrap(), signal);
    }

    /// Waits until a node that woke up has noticed that another holds its shard.
    pub(super) async fn ends_because_it_was_replaced(&mut self, number: usize) {
        let child = self.nodes[number].child.as_mut().unwrap();
        let ended = tokio::time::timeout(limit(20), child.wait()).await;
        let log = std::fs::read_to_string(&self.nodes[number].log).unwrap();
        let code =
            ended.unwrap_or_else(|_| panic!("a node that was replaced still runs: {log}")).unwrap().code();
        assert!(code != Some(0) && log.contains("has taken over the shard of this one"), "{code:?}: {log}");
        self.nodes[number].child = None;
    }

    /// Starts the nodes that are down, and waits until all nodes are ready. A node that was replaced may end meanwhile.
    pub(super) async fn restart_ended(&mut self) {
        let deadline = Instant::now() + limit(RECOVERY_SECONDS);
        for number in 0..self.nodes.len() {
            loop {
                self.nodes[number].start_if_ended();
                if self.readiness(&self.nodes[number]).await.is_some() {
                    break;
                }
                assert!(Instant::now() < deadline, "a node is not ready: {}", self.logs());
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Stops all nodes as an operator does, each with exit status 0.
    pub(super) async fn stop_all(mut self) {
        for number in 0..self.nodes.len() {
            self.signal(number, "TERM");
            let child = self.nodes[number].child.as_mut().unwrap();
            let ended = tokio::time::timeout(limit(60), child.wait()).await;
            assert_eq!(ended.expect("a node stops").unwrap().code(), Some(0), "{}", self.logs());
        }
    }

    pub(super) fn logs(&self) -> String {
        let log = |node: &Node| {
            let text = std::fs::read_to_string(&node.log).unwrap_or_default();
            format!("{}:\n{text}", node.log.display())
        };
        self.nodes.iter().map(log).collect::<Vec<_>>().join("\n")
    }
}

impl Node {
    fn start_if_ended(&mut self) {
        if !self.runs() {
            self.child = Some(self.spawn());
        }
    }

    fn runs(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| child.try_wait().unwrap().is_none())
    }

    fn spawn(&self) -> Child {
        let log = OpenOptions::new().create(true).append(true).open(&self.log).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_rolltap"));
        command.arg("proxy").args(&self.arguments);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ROLLTAP_")) {
            command.env_remove(name);
        }
        command.envs(self.variables.iter().cloned());
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).kill_on_drop(true);
        command.spawn().unwrap()
    }
}
