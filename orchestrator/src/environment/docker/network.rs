//! The job's network: containers reach the host and the world, but not each other.

use std::collections::HashMap;
use std::net::IpAddr;

use bollard::errors::Error;
use bollard::models::{Ipam, IpamConfig, NetworkCreateRequest, NetworkInspect};

use super::engine::Engine;
use super::labels::Labels;
use crate::environment::EnvironmentError;

/// Where subnets are taken from when the engine's own pools are exhausted (stock Docker has room for 31 networks). The
/// range is reserved for benchmarks, so neither private networks nor the Internet use it.
const OWN_RANGE: &str = "198.18.0.0/15";
/// Blocks of 512 addresses in it: enough containers for one job.
const OWN_BLOCKS: u32 = 256;

/// The network of one job.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) name: String,
    /// The host's address in it.
    pub(super) gateway: IpAddr,
}

impl Network {
    /// Makes it. The engine chooses the addresses, as the administrator set it up; where it has none left, we do.
    pub(super) async fn create(engine: &Engine, labels: &Labels) -> Result<Self, EnvironmentError> {
        let name = labels.unique_name();
        let mut request = NetworkCreateRequest {
            name: name.clone(),
            driver: Some("bridge".to_owned()),
            labels: Some(labels.of_job()),
            options: Some(HashMap::from([(
                "com.docker.network.bridge.enable_icc".to_owned(),
                "false".to_owned(),
            )])),
            ..NetworkCreateRequest::default()
        };
        let mut answer = engine.api.create_network(request.clone()).await;
        let first = std::process::id() % OWN_BLOCKS;
        for block in (0..OWN_BLOCKS).map(|next| (first + next) % OWN_BLOCKS) {
            if !answer.as_ref().is_err_and(is_about_addresses) {
                break;
            }
            request.ipam = Some(own_addresses(block));
            answer = engine.api.create_network(request.clone()).await;
        }
        match answer {
            Ok(_) => {}
            Err(source) if is_about_addresses(&source) => {
                return Err(EnvironmentError::NoSubnet { range: OWN_RANGE, source });
            }
            Err(source) => {
                return Err(EnvironmentError::Engine { action: format!("create network {name}"), source });
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

/// Exhausted pools, or a block that another network has.
fn is_about_addresses(error: &Error) -> bool {
    let Error::DockerResponseServerError { message, .. } = error else { return false };
    ["non-overlapping", "fully subnetted", "Pool overlaps", "overlaps with", "conflicts with network"]
        .iter()
        .any(|words| message.contains(words))
}

fn own_addresses(block: u32) -> Ipam {
    let (second, third) = (18 + block / 128, block % 128 * 2);
    let config = IpamConfig {
        subnet: Some(format!("198.{second}.{third}.0/23")),
        gateway: Some(format!("198.{second}.{third}.1")),
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
        let subnet = |block| own_addresses(block).config.unwrap().remove(0).subnet.unwrap();
        assert_eq!(subnet(0), "198.18.0.0/23");
        assert_eq!(subnet(1), "198.18.2.0/23");
        assert_eq!(subnet(128), "198.19.0.0/23");
        assert_eq!(subnet(OWN_BLOCKS - 1), "198.19.254.0/23");
    }
}
