//! The networks that jobs share: on one containers reach the host and the world, on the other the host's gateway alone; on
//! neither each other. And those of one trial's services.

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

/// Where subnets are taken from when the engine's own pools are exhausted (stock Docker has room for 31 networks). The
/// range is reserved for benchmarks, so neither private networks nor the Internet use it.
const OWN_RANGE: &str = "198.18.0.0/15";
/// Of its addresses so many first bits are fixed.
const OWN_BITS: u32 = 15;
/// Blocks of 4096 addresses: more containers than a bridge takes.
const SHARED_BITS: u32 = 20;
/// Blocks of 32 addresses: enough services for one trial.
const TRIAL_BITS: u32 = 27;

/// What containers of a network reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Whatever the host does.
    World,
    /// The host, at its address in the network.
    Gateway,
}

impl Access {
    /// A network whose settings change needs another one, so that those of before are not taken for it.
    fn label(self) -> &'static str {
        match self {
            Self::World => "world",
            Self::Gateway => "inside",
        }
    }
}

/// A network that all jobs share. It stays when they end, for the next ones.
///
/// Under many starts and stops at once engines lose count of a network's endpoints (seen on 20.10 with 32 trials at once), and
/// then refuse to remove it until they are restarted. A network for each job would be one lost each time.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) name: String,
    /// The host's address in it.
    pub(crate) gateway: IpAddr,
}

impl Network {
    /// The one with this access, made where there is none.
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

/// Of several that processes made at the same moment the oldest is everybody's, and stays alone.
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
    // The engine chooses the addresses, as the administrator set it up; where it has none left, we do.
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
    Ok(networks.into_iter().min_by(|one, other| (&one.created, &one.id).cmp(&(&other.created, &other.id))))
}

/// Makes the network of one trial's services, which reach each other on it. Its addresses are never of the engine's own
/// pools, which have room for 31 networks of stock Docker and are other people's too.
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
    let first = std::process::id().wrapping_mul(61).wrapping_add(LAST.fetch_add(1, Ordering::Relaxed));
    create_in_own_range(engine, request, TRIAL_BITS, first).await
}

/// Takes the first block from `first` on that no other network has.
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

/// Exhausted pools, or a block that another network has.
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
