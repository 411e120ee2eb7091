//! One address for all nodes: a balancer of connections that asks each node whether it is ready, as Kubernetes does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rolltap_testing::client_builder;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use super::super::proxy::Place;

/// The time in which a node must report that it is ready.
const READY: Duration = Duration::from_secs(1);

/// The addresses of the balancer of both planes.
pub(super) struct Balancer {
    pub(super) place: Place,
    agents: TcpListener,
    admin: TcpListener,
}

struct Nodes {
    places: Vec<Place>,
    turn: AtomicUsize,
    http: reqwest::Client,
}

impl Balancer {
    /// Chooses the addresses.
    pub(super) async fn bind() -> Self {
        let bind = async || TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (agents, admin) = (bind().await, bind().await);
        let url = |listener: &TcpListener| format!("http://{}", listener.local_addr().unwrap());
        Self { place: Place { agents: url(&agents), admin: url(&admin) }, agents, admin }
    }

    /// Accepts connections for these nodes until the runtime ends.
    pub(super) fn serve(self, places: Vec<Place>) {
        let http = client_builder().timeout(READY).build().unwrap();
        let nodes = Arc::new(Nodes { places, turn: AtomicUsize::new(0), http });
        tokio::spawn(accept(self.agents, Arc::clone(&nodes), |place| &place.agents));
        tokio::spawn(accept(self.admin, nodes, |place| &place.admin));
    }
}

async fn accept(listener: TcpListener, nodes: Arc<Nodes>, plane: fn(&Place) -> &String) {
    loop {
        let Ok((mut client, _)) = listener.accept().await else { continue };
        let nodes = Arc::clone(&nodes);
        tokio::spawn(async move {
            let Some(place) = nodes.next().await else { return };
            let address = plane(place).trim_start_matches("http://");
            let Ok(mut node) = TcpStream::connect(address).await else { return };
            let _ = copy_bidirectional(&mut client, &mut node).await;
        });
    }
}

impl Nodes {
    /// Returns the next node that is ready.
    async fn next(&self) -> Option<&Place> {
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        for number in 0..self.places.len() {
            let place = &self.places[(first + number) % self.places.len()];
            let answer = self.http.get(format!("{}/readyz", place.admin)).send().await;
            if answer.is_ok_and(|answer| answer.status().is_success()) {
                return Some(place);
            }
        }
        None
    }
}
