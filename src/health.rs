//! `rolltap health`

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use http::StatusCode;
use rolltap_proxy::{Address, CertificateFiles, UpstreamClient, UpstreamTls};

use crate::proxy::ProxyConfig;
use crate::{Outcome, terminal};

/// Check that a proxy is healthy
///
/// The command sends one request to the admin plane, without a token. It is the health check of the container image,
/// and of any place without an HTTP client.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Ask the proxy whose admin plane is at this URL. [default: http:// and the address of --admin]
    #[arg(value_name = "URL")]
    url: Option<Address>,
    /// Ask the proxy whose admin plane listens at this address. [default: that of --config, or 127.0.0.1:7071]
    #[arg(long, env = "ROLLTAP_ADMIN", value_name = "ADDRESS")]
    admin: Option<SocketAddr>,
    /// Read the address of the admin plane from this file of `rolltap proxy`.
    #[arg(long, env = "ROLLTAP_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Also require that the proxy accepts calls: it does not drain, and can write captures.
    ///
    /// Do not restart a proxy that is healthy but not ready. It recovers without a restart.
    #[arg(long)]
    ready: bool,
    /// Trust the authorities in this PEM file if the URL has https, besides those of the system.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Identify the command by the certificate in this PEM file, if the proxy has --admin-client-ca.
    #[arg(long, value_name = "FILE", requires = "client_key")]
    client_cert: Option<PathBuf>,
    /// Read the private key of --client-cert from this PEM file.
    #[arg(long, value_name = "FILE", requires = "client_cert")]
    client_key: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
Examples:
  rolltap health
  rolltap health --ready http://10.0.0.5:7071

Exit codes: 0 healthy; 1 not healthy, or no answer within 5 s; 2 wrong usage or configuration.";

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    let address = arguments.address()?;
    let path = if arguments.ready { "/readyz" } else { "/healthz" };
    let identity = arguments.client_cert.zip(arguments.client_key);
    let identity = identity.map(|(certificate, key)| CertificateFiles { certificate, key });
    let tls = UpstreamTls { authorities: arguments.ca.into_iter().collect(), identity };
    let client = UpstreamClient::new(address.clone(), &tls, PATIENCE)?;
    match asked(&client, path).await {
        Ok(answer) => {
            terminal::say(answer);
            Ok(Outcome::Done)
        }
        Err(error) => {
            terminal::report(&error.context(format!("{address} is not healthy")));
            Ok(Outcome::Failed)
        }
    }
}

/// Returns the text of the answer, if its status is 200.
async fn asked(client: &UpstreamClient, path: &str) -> anyhow::Result<String> {
    let answer = tokio::time::timeout(PATIENCE, client.get(path)).await;
    let answer = answer.with_context(|| format!("{path}: no answer within {} s", PATIENCE.as_secs()))??;
    let text = String::from_utf8_lossy(answer.body()).trim().to_owned();
    match answer.status() {
        StatusCode::OK => Ok(text),
        status => bail!("{path} answers {status}: {text}"),
    }
}

impl Arguments {
    fn address(&self) -> anyhow::Result<Address> {
        if let Some(url) = &self.url {
            return Ok(url.clone());
        }
        let admin = match self.admin {
            Some(admin) => admin,
            None => ProxyConfig::admin_address(self.config.as_deref())?,
        };
        Ok(format!("http://{}", reachable(admin)).parse()?)
    }
}

/// Returns an address to connect to. A server that listens on all addresses also listens on loopback.
fn reachable(listening: SocketAddr) -> SocketAddr {
    let ip = match listening.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listening.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_all_addresses_is_reached_by_loopback() {
        for (listening, connecting) in
            [("0.0.0.0:7071", "127.0.0.1:7071"), ("[::]:7071", "[::1]:7071"), ("10.0.0.5:1", "10.0.0.5:1")]
        {
            assert_eq!(reachable(listening.parse().unwrap()), connecting.parse().unwrap());
        }
    }
}
