//! The sockets of both planes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{ShutdownError, StartError};
use crate::admin_plane::PatientListener;
use crate::admin_plane::guard::Client;
use crate::agent_plane::public_url::PublicUrl;
use crate::agent_plane::responder::Responder;
use crate::agent_plane::server::{self, AgentListeners, ConnectionLimits};
use crate::common::metrics::Metrics;
use crate::common::tls::{PlaneTls, ServedTls};
use crate::settings::Settings;

/// How long shutdown waits for clients of the admin plane, which may have stopped reading.
const ADMIN_GRACE: Duration = Duration::from_secs(5);

/// The bound sockets of both planes. Nothing is accepted yet.
#[derive(Debug)]
pub(super) struct Sockets {
    agents: AgentListeners,
    admin: PatientListener,
    pub(super) agent_addrs: Vec<SocketAddr>,
    pub(super) admin_addr: SocketAddr,
    /// The first address of the agent plane.
    first: SocketAddr,
}

/// The tasks that serve both planes.
#[derive(Debug)]
pub(super) struct Serving {
    agents: JoinHandle<()>,
    admin: JoinHandle<()>,
    draining: CancellationToken,
    stopped: CancellationToken,
}

impl Sockets {
    /// Binds every address, so that a proxy that starts takes calls on all of them, and reads the certificates.
    pub(super) async fn bind(settings: &Settings, metrics: &Arc<Metrics>) -> Result<Self, StartError> {
        let bind = |(address, source)| StartError::Bind { address, source };
        let listeners = server::bind(&settings.listen).await.map_err(bind)?;
        let mut admins = server::bind(&[settings.admin]).await.map_err(bind)?;
        let agent_addrs: Vec<_> =
            listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect();
        let (Some(listener), Some(&first)) = (admins.pop(), agent_addrs.first()) else {
            return Err(StartError::NoListener);
        };
        let admin_addr = address(&listener, settings.admin);
        let served = |plane, tls: &Option<PlaneTls>| {
            tls.clone().map(|files| ServedTls::start(files, plane, metrics.tls_failures(plane))).transpose()
        };
        let limits = ConnectionLimits {
            all: settings.max_connections,
            of_address: settings.max_connections_per_address,
        };
        Ok(Self {
            agents: AgentListeners { listeners, tls: served("agent", &settings.agent_tls)?, limits },
            admin: PatientListener {
                listener,
                tls: served("admin", &settings.admin_tls)?,
                patience: settings.reader_patience,
                metrics: Arc::clone(metrics),
            },
            agent_addrs,
            admin_addr,
            first,
        })
    }

    /// The URL of the first address of the agent plane.
    pub(super) fn default_url(&self) -> PublicUrl {
        PublicUrl::of(self.first, self.agents.tls.is_some())
    }

    /// Serves both planes: the agent plane until `draining`, and the admin plane until `stopped`.
    pub(super) fn serve(
        self,
        responder: Responder,
        admin: Router,
        metrics: &Metrics,
        draining: CancellationToken,
        stopped: CancellationToken,
    ) -> Serving {
        let agents = server::serve(self.agents, responder, metrics.refusals(), draining.clone());
        let agents = tokio::spawn(agents);
        let router = admin.into_make_service_with_connect_info::<Client>();
        let (listener, until) = (self.admin, stopped.clone());
        let admin = tokio::spawn(async move {
            let serving = axum::serve(listener, router).with_graceful_shutdown(until.cancelled_owned());
            if let Err(error) = serving.await {
                tracing::error!(%error, "the admin plane ended");
            }
        });
        Serving { agents, admin, draining, stopped }
    }
}

impl Serving {
    /// Drains both planes: admits no further call, and waits up to `grace` for the calls in flight.
    ///
    /// # Errors
    /// Some calls did not finish, and were cut off.
    pub(super) async fn drain(mut self, grace: Duration) -> Result<(), ShutdownError> {
        self.draining.cancel();
        let all_finished = tokio::time::timeout(grace, &mut self.agents).await.is_ok();
        // Dropping the remaining connections cancels their calls, and each gets a record.
        self.agents.abort();
        self.stopped.cancel();
        if tokio::time::timeout(ADMIN_GRACE, self.admin).await.is_err() {
            tracing::warn!("a client of the admin plane was cut off");
        }
        if all_finished { Ok(()) } else { Err(ShutdownError::CutOff(grace)) }
    }
}

fn address(listener: &TcpListener, asked: SocketAddr) -> SocketAddr {
    listener.local_addr().unwrap_or(asked)
}
