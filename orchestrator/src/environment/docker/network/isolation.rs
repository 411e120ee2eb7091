//! The isolated network, for containers with restricted access, and the services on its gateway.

use std::io;
use std::net::IpAddr;

use super::egress::{Egress, is_of_this_host};
use super::forward::Doors;
use super::shared::{Access, Network};
use crate::environment::EnvironmentError;
use crate::environment::docker::Job;

/// A network whose containers reach only its gateway, and not each other.
pub(crate) struct Isolation {
    pub(crate) network: Network,
    pub(crate) egress: Egress,
    doors: Doors,
}

impl Job {
    /// Returns the isolated network, which is created for the first container that needs it.
    pub(crate) async fn isolation(&self) -> Result<&Isolation, EnvironmentError> {
        let make = async {
            let network = Network::shared(&self.engine, Access::Gateway).await?;
            let gateway = network.gateway;
            let egress = Egress::start(gateway, is_of_this_host).await.map_err(not_here(gateway))?;
            Ok(Isolation { network, egress, doors: Doors::at(gateway) })
        };
        self.isolation.get_or_try_init(|| make).await
    }
}

impl Isolation {
    /// Returns the model's base URL for containers of this network.
    pub(crate) async fn model_url(&self, url: &str) -> Result<String, EnvironmentError> {
        let Some((place, path)) = split(url) else {
            return Err(EnvironmentError::UnreachableModel(url.to_owned()));
        };
        let door = self.doors.to(&place).await.map_err(not_here(self.network.gateway))?;
        Ok(format!("http://{door}{path}"))
    }

    /// Returns the environment variables that make programs use the proxy. They reach their model without it.
    pub(crate) fn proxy_variables(&self) -> Vec<(String, String)> {
        let proxy = format!("http://{}", self.egress.address);
        let direct = format!("localhost,127.0.0.1,::1,{}", self.network.gateway);
        let variables = [("http_proxy", &proxy), ("https_proxy", &proxy), ("no_proxy", &direct)];
        // Programs differ in the case of these variables.
        let twice = variables.into_iter().flat_map(|(name, value)| {
            [(name.to_owned(), value.clone()), (name.to_ascii_uppercase(), value.clone())]
        });
        twice.collect()
    }
}

/// Splits a plain HTTP URL into `host:port` and the rest. `None` for other URLs.
fn split(url: &str) -> Option<(String, &str)> {
    let rest = url.strip_prefix("http://")?;
    let (place, path) = rest.split_at_checked(rest.find('/').unwrap_or(rest.len()))?;
    let has_port = place.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let place = if has_port { place.to_owned() } else { format!("{place}:80") };
    Some((place, path)).filter(|(place, _)| !place.starts_with(':') && !place.contains('@'))
}

fn not_here(gateway: IpAddr) -> impl Fn(io::Error) -> EnvironmentError {
    move |source| EnvironmentError::GatewayNotHere { gateway, source }
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn a_base_url_is_cut_behind_its_port() {
        for (url, expected) in [
            ("http://172.18.0.1:7070/t/KEY/v1", Some(("172.18.0.1:7070", "/t/KEY/v1"))),
            ("http://proxy/t/KEY", Some(("proxy:80", "/t/KEY"))),
            ("http://[::1]:80", Some(("[::1]:80", ""))),
            ("https://proxy/t/KEY", None),
            ("http://user@proxy/", None),
            ("http://:80/", None),
        ] {
            assert_eq!(split(url), expected.map(|(place, path)| (place.to_owned(), path)), "{url}");
        }
    }
}
