//! The networks that all jobs share, and the networks of one trial's services. On the first shared network, containers
//! reach the host and the internet, on the second one only the host's gateway. On neither do they reach each other.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU32, Ordering};

use bollard::errors::Error;
use bollard::models::{Ipam, IpamConfig, Network as EngineNetwork, NetworkCreateRequest};
use bollard::query_parameters::ListNetworksOptions;
use uuid::Uuid;

use crate::environment::EnvironmentError;
use crate::environment::docker::cleanup::{labels, sweep};
use crate::environment::docker::engine::Engine;

/// The address range for subnets if the engine's own pools are exhausted; stock Docker has room for 31 networks. The
/// range is reserved for benchmarks, so neither private networks nor the Internet use it.
const OWN_RANGE: &str = "198.18.0.0/15";
/// The prefix length of `OWN_RANGE`.
const OWN_BITS: u32 = 15;
/// The prefix length of a shared network: 4096 addresses, more than the containers that a bridge supports.
const SHARED_BITS: u32 = 20;
/// The prefix length of a trial's network: 32 addresses, enough services for one trial.
const TRIAL_BITS: u32 = 27;

/// The hosts that containers of a network reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Every host that this host reaches.
    World,
    /// Only this host, at its address in the network.
    Gateway,
}

impl Access {
    /// Returns the value of the network's label. If the settings of a network change, it needs another value, so that
    /// existing networks are not used for it.
    fn label(self) -> &'static str {
        match self {
            Self::World => "world",
            Self::Gateway => "inside",
        }
    }
}

/// A network that all jobs share. It remains for later jobs.
///
/// With many starts and stops at once, an engine can lose count of a network's endpoints (seen on 20.10 with 32
/// concurrent trials). It then refuses to remove the network until it restarts. With a network per job, each such case
/// would leave another network.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) name: String,
    /// The host's address in the network.
    pub(crate) gateway: IpAddr,
}

impl Network {
    /// Returns the shared network with this access, and creates it if there is none.
    pub(crate) async fn shared(engine: &Engine, access: Access) -> Result<Self, EnvironmentError> {
        let network = match oldest(engine, access).await? {
            Some(network) => network,
            None => create_shared(engine, access).await?,
        };
        let name = network.name.clone().unwrap_or_default();
        let gateway = gateway(network).ok_or_else(|| EnvironmentError::Engine {
            action: format!("tell the gateway of network {name}"),
            source: Error::DockerStreamError { error: "no address in its description".to_owned() },
        })?;
        Ok(Self { name, gateway })
    }
}

/// Creates a shared network. If several processes do so at once, all use the oldest one and remove their own.
async fn create_shared(engine: &Engine, access: Access) -> Result<EngineNetwork, EnvironmentError> {
    let made = labels::unique_name(access.label(), Uuid::now_v7());
    let request = NetworkCreateRequest {
        name: made.clone(),
        driver: Some("bridge".to_owned()),
        labels: Some(labels::of_shared_network(access.label())),
        internal: Some(access == Access::Gateway),
        options: Some(HashMap::from([(
            "com.docker.network.bridge.enable_icc".to_owned(),
            "false".to_owned(),
        )])),
        ..NetworkCreateRequest::default()
    };
    // The engine chooses the addresses, as its administrator configured. Only without free ones does rolltap choose.
    match engine.api.create_network(request.clone()).await {
        Err(error) if is_about_addresses(&error) => {
            create_in_own_range(engine, request, SHARED_BITS, std::process::id()).await?;
        }
        created => {
            created.map_err(EnvironmentError::engine(format!("create network {made}")))?;
        }
    }
    let network = oldest(engine, access).await?.ok_or_else(|| EnvironmentError::Engine {
        action: format!("find network {made}"),
        source: Error::DockerStreamError { error: "somebody removed it".to_owned() },
    })?;
    if network.name.as_deref() != Some(&made) {
        let removed = sweep::tolerate(engine.api.remove_network(&made).await, &[404]);
        removed.map_err(EnvironmentError::engine(format!("remove network {made}")))?;
    }
    Ok(network)
}

async fn oldest(engine: &Engine, access: Access) -> Result<Option<EngineNetwork>, EnvironmentError> {
    let label = format!("{}={}", labels::SHARED_NETWORK, access.label());
    let filters = Some(HashMap::from([("label".to_owned(), vec![label])]));
    let listed = engine.api.list_networks(Some(ListNetworksOptions { filters })).await;
    let networks = listed.map_err(EnvironmentError::engine("list networks"))?;
    // Every process must choose the same network, so the id breaks ties.
    Ok(networks.into_iter().min_by(|one, other| (&one.created, &one.id).cmp(&(&other.created, &other.id))))
}

/// Creates the network of one trial's services, on which they reach each other. Its addresses are never from the
/// engine's own pools. Stock Docker has room for 31 networks there, and other users need them too.
pub(crate) async fn create_for_services(
    engine: &Engine,
    name: &str,
    labels: HashMap<String, String>,
    access: Access,
) -> Result<(), EnvironmentError> {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let request = NetworkCreateRequest {
        name: name.to_owned(),
        driver: Some("bridge".to_owned()),
        labels: Some(labels),
        internal: Some(access == Access::Gateway),
        ..NetworkCreateRequest::default()
    };
    // Processes and trials start at different blocks, so that they rarely try the same one.
    let first = std::process::id().wrapping_mul(61).wrapping_add(LAST.fetch_add(1, Ordering::Relaxed));
    create_in_own_range(engine, request, TRIAL_BITS, first).await
}

/// Creates a network in the first free block, starting at block `first`.
async fn create_in_own_range(
    engine: &Engine,
    mut request: NetworkCreateRequest,
    bits: u32,
    first: u32,
) -> Result<(), EnvironmentError> {
    let blocks = 1 << (bits - OWN_BITS);
    let mut last = None;
    for block in (0..blocks).map(|next| first.wrapping_add(next) % blocks) {
        request.ipam = Some(own_addresses(block, bits));
        match engine.api.create_network(request.clone()).await {
            Err(error) if is_about_addresses(&error) => last = Some(error),
            created => {
                let action = format!("create network {}", request.name);
                return created.map(drop).map_err(EnvironmentError::engine(action));
            }
        }
    }
    let unknown = || Error::DockerStreamError { error: "no block was tried".to_owned() };
    Err(EnvironmentError::NoSubnet { range: OWN_RANGE, source: last.unwrap_or_else(unknown) })
}

/// Whether the pools are exhausted, or another network has the block.
fn is_about_addresses(error: &Error) -> bool {
    let Error::DockerResponseServerError { message, .. } = error else { return false };
    ["non-overlapping", "fully subnetted", "Pool overlaps", "overlaps with", "conflicts with network"]
        .iter()
        .any(|words| message.contains(words))
}

fn own_addresses(block: u32, bits: u32) -> Ipam {
    let first = Ipv4Addr::new(198, 18, 0, 0).to_bits() + (block << (32 - bits));
    let config = IpamConfig {
        subnet: Some(format!("{}/{bits}", Ipv4Addr::from_bits(first))),
        gateway: Some(Ipv4Addr::from_bits(first + 1).to_string()),
        ..IpamConfig::default()
    };
    Ipam { config: Some(vec![config]), ..Ipam::default() }
}

fn gateway(network: EngineNetwork) -> Option<IpAddr> {
    let addresses = network.ipam?.config?.into_iter().filter_map(|config| {
        let gateway = config.gateway?;
        gateway.split('/').next()?.parse::<IpAddr>().ok()
    });
    addresses.min_by_key(IpAddr::is_ipv6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_addresses_stay_in_their_range() {
        let subnet = |block, bits| own_addresses(block, bits).config.unwrap().remove(0).subnet.unwrap();
        assert_eq!(subnet(0, SHARED_BITS), "198.18.0.0/20");
        assert_eq!(subnet(1, SHARED_BITS), "198.18.16.0/20");
        assert_eq!(subnet(16, SHARED_BITS), "198.19.0.0/20");
        assert_eq!(subnet(31, SHARED_BITS), "198.19.240.0/20");
        assert_eq!(subnet(1, TRIAL_BITS), "198.18.0.32/27");
        assert_eq!(subnet(4095, TRIAL_BITS), "198.19.255.224/27");
    }
}
