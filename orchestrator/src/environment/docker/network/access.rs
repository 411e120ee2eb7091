//! The networks of a container, and their change between the phases of a trial.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use bollard::models::{NetworkConnectRequest, NetworkDisconnectRequest};
use bollard::query_parameters::InspectContainerOptions;
use tokio::sync::OnceCell;

use super::isolation::Isolation;
use crate::environment::EnvironmentError;
use crate::environment::docker::Job;
use crate::environment::docker::container::Container;
use crate::task::NetworkPlan;
use crate::task::NetworkPolicy;

/// The network access of a container.
///
/// If every phase of the task is public, the container is on the shared network throughout. Every other container is on
/// the isolated network throughout, where its model always has the same address. In its public phases it is also on the
/// shared network.
pub(crate) enum NetworkAccess {
    Open,
    Isolated {
        now: Mutex<NetworkPolicy>,
        /// Whether some phase is public, so that names must be resolved normally.
        sometimes_open: bool,
        /// The container's address on the isolated network, which is looked up once.
        address: OnceCell<IpAddr>,
    },
}

impl NetworkAccess {
    pub(crate) async fn of(job: &Job, plan: &NetworkPlan) -> Result<Self, EnvironmentError> {
        if plan.is_always_public() {
            return Ok(Self::Open);
        }
        job.isolation().await?;
        Ok(Self::Isolated {
            now: Mutex::new(NetworkPolicy::NoNetwork),
            sometimes_open: plan.is_sometimes_public(),
            address: OnceCell::new(),
        })
    }

    /// Returns the network on which the container is created.
    pub(crate) fn first_network(&self, job: &Job) -> String {
        self.isolated_network(job).unwrap_or_else(|| job.network.name.clone())
    }

    /// Returns name servers that block lookups, if no phase is public. The engine resolves names even for a container
    /// without a network, and a name can carry data out. With the gateway as name server, where no server answers, it
    /// resolves none.
    pub(crate) fn name_servers(&self, job: &Job) -> Option<Vec<String>> {
        match (self, job.isolation.get()) {
            (Self::Isolated { sometimes_open: false, .. }, Some(isolation)) => {
                Some(vec![isolation.network.gateway.to_string()])
            }
            _ => None,
        }
    }

    /// Returns the isolated network, if the container must be on it.
    pub(crate) fn isolated_network(&self, job: &Job) -> Option<String> {
        match self {
            Self::Open => None,
            Self::Isolated { .. } => Some(job.isolation.get()?.network.name.clone()),
        }
    }

    fn now(&self) -> NetworkPolicy {
        match self {
            Self::Open => NetworkPolicy::Public,
            Self::Isolated { now, .. } => now.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

impl Container {
    fn isolation(&self) -> Option<&Isolation> {
        match self.access {
            NetworkAccess::Open => None,
            NetworkAccess::Isolated { .. } => self.job().isolation.get(),
        }
    }

    pub(in crate::environment) async fn set_network(
        &self,
        policy: &NetworkPolicy,
    ) -> Result<(), EnvironmentError> {
        let before = self.access.now();
        // A container without isolation always has full access.
        let (NetworkAccess::Isolated { now, address, .. }, Some(isolation)) =
            (&self.access, self.isolation())
        else {
            return Ok(());
        };
        if before == *policy {
            return Ok(());
        }
        // The old access ends before the new one begins, so that both never hold at once.
        match (&before, policy) {
            (NetworkPolicy::Public, _) => self.leave_world().await?,
            (NetworkPolicy::Allowlist(_), _) => self.forget_permit(),
            (NetworkPolicy::NoNetwork, _) => {}
        }
        match policy {
            NetworkPolicy::Public => self.join_world().await?,
            NetworkPolicy::Allowlist(hosts) => {
                let address = address.get_or_try_init(|| self.address_on(&isolation.network.name)).await?;
                isolation.egress.permit(*address, hosts.clone());
            }
            NetworkPolicy::NoNetwork => {}
        }
        *now.lock().unwrap_or_else(PoisonError::into_inner) = policy.clone();
        Ok(())
    }

    /// Revokes the container's permit. Another container may have its address later.
    pub(crate) fn forget_permit(&self) {
        if let (NetworkAccess::Isolated { address, .. }, Some(isolation)) = (&self.access, self.isolation())
            && let Some(address) = address.get()
        {
            isolation.egress.revoke(*address);
        }
    }

    pub(in crate::environment) async fn model_url(
        &self,
        here: &str,
        public: &str,
    ) -> Result<String, EnvironmentError> {
        match self.isolation() {
            // The forwarding port is of this host.
            Some(isolation) => isolation.model_url(here).await,
            None => Ok(public.to_owned()),
        }
    }

    /// Adds the proxy's variables. Variables that the command sets itself take precedence.
    pub(crate) fn with_network_variables(
        &self,
        mut env: BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        if let (NetworkPolicy::Allowlist(_), Some(isolation)) = (self.access.now(), self.isolation()) {
            for (name, value) in isolation.proxy_variables() {
                env.entry(name).or_insert(value);
            }
        }
        env
    }

    async fn join_world(&self) -> Result<(), EnvironmentError> {
        let request = NetworkConnectRequest { container: self.id().to_owned(), endpoint_config: None };
        let connected = self.api().connect_network(&self.job().network.name, request).await;
        connected
            .map_err(EnvironmentError::engine("connect a container to the network that reaches the world"))
    }

    async fn leave_world(&self) -> Result<(), EnvironmentError> {
        let request = NetworkDisconnectRequest { container: self.id().to_owned(), force: Some(true) };
        let disconnected = self.api().disconnect_network(&self.job().network.name, request).await;
        disconnected
            .map_err(EnvironmentError::engine("take a container off the network that reaches the world"))
    }

    async fn address_on(&self, network: &str) -> Result<IpAddr, EnvironmentError> {
        let action = "tell a container's address";
        let inspected = self.api().inspect_container(self.id(), None::<InspectContainerOptions>).await;
        let settings = inspected.map_err(EnvironmentError::engine(action))?.network_settings;
        let endpoint = settings.and_then(|settings| settings.networks?.remove(network));
        let address = endpoint.and_then(|endpoint| endpoint.ip_address?.parse().ok());
        address.ok_or_else(|| EnvironmentError::Ended { exit_code: None, tail: String::new() })
    }
}
