//! The job's networks: on one containers reach the host and the world, on the other the host's gateway alone; on neither each
//! other.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU32, Ordering};

use bollard::errors::Error;
use bollard::models::{Ipam, IpamConfig, NetworkCreateRequest, NetworkInspect};

use super::engine::Engine;
use super::labels::Labels;
use crate::environment::EnvironmentError;

/// Where subnets are taken from when the engine's own pools are exhausted (stock Docker has room for 31 networks). The
/// range is reserved for benchmarks, so neither private networks nor the Internet use it.
const OWN_RANGE: &str = "198.18.0.0/15";
/// Of its addresses so many first bits are fixed.
const OWN_BITS: u32 = 15;
/// Blocks of 512 addresses: enough containers for one job.
const JOB_BITS: u32 = 23;
/// Blocks of 32 addresses: enough services for one trial.
const TRIAL_BITS: u32 = 27;

/// What containers of a network reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Whatever the host does.
    World,
    /// The host, at its address in the network.
    Gateway,
}

/// A network of one job.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) name: String,
    /// The host's address in it.
    pub(super) gateway: IpAddr,
}

impl Network {
    /// Makes it.
    pub(super) async fn create(
        engine: &Engine,
        labels: &Labels,
        access: Access,
    ) -> Result<Self, EnvironmentError> {
        let name = match access {
            Access::World => labels.unique_name(),
            Access::Gateway => format!("{}-inside", labels.unique_name()),
        };
        let request = NetworkCreateRequest {
            name: name.clone(),
            driver: Some("bridge".to_owned()),
            labels: Some(labels.of_job()),
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
                create_in_own_range(engine, request, JOB_BITS, std::process::id()).await?;
            }
            created => {
                created.map_err(EnvironmentError::engine(format!("create network {name}")))?;
            }
        }
        let inspect =
            engine.api.inspect_network(&name, None::<bollard::query_parameters::InspectNetworkOptions>).await;
        let network = inspect.map_err(EnvironmentError::engine(format!("inspect network {name}")))?;
        let gateway = gateway(network).ok_or_else(|| EnvironmentError::Engine {
            action: format!("tell the gateway of network {name}"),
            source: Error::DockerStreamError { error: "no address in its description".to_owned() },
        })?;
        Ok(Self { name, gateway })
    }
}

/// Makes the network of one trial's services, which reach each other on it. Its addresses are never of the engine's own
/// pools, which have room for 31 networks of stock Docker and are other people's too.
pub(super) async fn create_for_services(
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

fn gateway(network: NetworkInspect) -> Option<IpAddr> {
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
        assert_eq!(subnet(0, JOB_BITS), "198.18.0.0/23");
        assert_eq!(subnet(1, JOB_BITS), "198.18.2.0/23");
        assert_eq!(subnet(128, JOB_BITS), "198.19.0.0/23");
        assert_eq!(subnet(255, JOB_BITS), "198.19.254.0/23");
        assert_eq!(subnet(1, TRIAL_BITS), "198.18.0.32/27");
        assert_eq!(subnet(4095, TRIAL_BITS), "198.19.255.224/27");
    }
}
