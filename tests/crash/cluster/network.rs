//! The network of the nodes of a cluster, which can fail for each node.

use rolltap_testing::{Cut, NatsServers, Relay, S3Server};

/// The way of one node to the other parts.
#[derive(Clone, Debug, Default)]
pub(super) struct Reach {
    /// The addresses of the NATS servers, for `--cluster`.
    pub(super) servers: String,
    /// The variables of the process, among them those of the object storage.
    pub(super) variables: Vec<(String, String)>,
}

impl Reach {
    /// A network that does not fail, the same for all nodes.
    pub(super) fn direct(servers: &NatsServers, storage: Option<&S3Server>) -> Self {
        Self { servers: servers.urls(), variables: storage.map(variables).unwrap_or_default() }
    }
}

/// The variables with which a process uses the object storage.
pub(super) fn variables(storage: &S3Server) -> Vec<(String, String)> {
    storage.variables().into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Relays between each node and the NATS servers and the object storage.
pub(super) struct Network {
    nodes: Vec<Links>,
}

struct Links {
    servers: Vec<Relay>,
    storage: Relay,
}

impl Network {
    pub(super) fn start(nodes: usize, servers: &NatsServers, storage: &S3Server) -> Self {
        let links = |_| Links {
            servers: servers.ports().into_iter().map(Relay::to).collect(),
            storage: Relay::to(storage.port()),
        };
        Self { nodes: (0..nodes).map(links).collect() }
    }

    /// The way of a node through its relays.
    pub(super) fn reach(&self, node: usize, storage: &S3Server) -> Reach {
        let links = &self.nodes[node];
        let url = |relay: &Relay| format!("nats://127.0.0.1:{}", relay.port());
        let mut variables = variables(storage);
        let endpoint = format!("http://127.0.0.1:{}", links.storage.port());
        variables.push(("AWS_ENDPOINT_URL".to_owned(), endpoint));
        Reach { servers: links.servers.iter().map(url).collect::<Vec<_>>().join(","), variables }
    }

    /// Separates a node from NATS and from the object storage. Agents and other nodes still reach it.
    pub(super) fn cut(&self, node: usize, cut: Cut) {
        self.nodes[node].all().for_each(|relay| relay.cut(cut));
    }

    pub(super) fn heal(&self, node: usize) {
        self.nodes[node].all().for_each(Relay::heal);
    }

    /// Separates all nodes from the object storage.
    pub(super) fn cut_storage(&self, cut: Cut) {
        self.nodes.iter().for_each(|links| links.storage.cut(cut));
    }

    pub(super) fn heal_storage(&self) {
        self.nodes.iter().for_each(|links| links.storage.heal());
    }
}

impl Links {
    fn all(&self) -> impl Iterator<Item = &Relay> {
        self.servers.iter().chain([&self.storage])
    }
}
