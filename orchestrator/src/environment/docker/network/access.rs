//! Which networks a container is on, and the change from one phase's to the next one's.

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

/// Where a container stands.
///
/// One whose task leaves everything reachable at all times is on the first network and stays there. Any other is on
/// the isolated one from beginning to end, where its model is always reached at the same place, and on the first network
/// too for as long as everything may be reached.
pub(crate) enum NetworkAccess {
    Open,
    Isolated {
        now: Mutex<NetworkPolicy>,
        /// Some phase reaches everything, so names must be looked up as ever.
        sometimes_open: bool,
        /// On the isolated network; asked for once.
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

    /// What the container is created on.
    pub(crate) fn first_network(&self, job: &Job) -> String {
        self.isolated_network(job).unwrap_or_else(|| job.network.name.clone())
    }

    /// The engine looks names up for its containers also where they reach no network, and a name can carry data out. Told
    /// to ask the gateway, where nothing answers, it looks none up.
    pub(crate) fn name_servers(&self, job: &Job) -> Option<Vec<String>> {
        match (self, job.isolation.get()) {
            (Self::Isolated { sometimes_open: false, .. }, Some(isolation)) => {
                Some(vec![isolation.network.gateway.to_string()])
            }
            _ => None,
        }
    }

    /// The isolated network, if the container is to be on it.
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
        let (NetworkAccess::Isolated { now, address, .. }, Some(isolation)) =
            (&self.access, self.isolation())
        else {
            return Ok(());
        };
        if before == *policy {
            return Ok(());
        }
        // Less is reached before more is.
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

    /// Another container may have this one's address later.
    pub(crate) fn forget_permit(&self) {
        if let (NetworkAccess::Isolated { address, .. }, Some(isolation)) = (&self.access, self.isolation())
            && let Some(address) = address.get()
        {
            isolation.egress.revoke(*address);
        }
    }

    pub(in crate::environment) async fn model_url(&self, url: &str) -> Result<String, EnvironmentError> {
        match self.isolation() {
            Some(isolation) => isolation.model_url(url).await,
            None => Ok(url.to_owned()),
        }
    }

    /// What a command sets itself stays.
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
