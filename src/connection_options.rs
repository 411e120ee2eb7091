//! Settings of connections to upstreams and to clients, which several commands share.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use rolltap_orchestrator::admin_client::AdminClient;
use rolltap_orchestrator::job::config::OwnConfig;
use rolltap_proxy::{CertificateFiles, HttpProxy, PlaneTls, SessionHeaders, UpstreamTls};
use serde::Deserialize;

use crate::token_file::read_token;

/// Settings of connections to upstreams, each a flag, an environment variable, and a key of the files of `rolltap proxy` and
/// `rolltap run`.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[command(next_help_heading = "Connections to upstreams")]
#[serde(default)]
pub(crate) struct UpstreamConnectionOptions {
    /// Trust the authorities in this PEM file for upstreams with https. Repeat the flag for several files. [default:
    /// those of the system]
    ///
    /// The authorities of the system are trusted too.
    #[arg(long, env = "ROLLTAP_UPSTREAM_CA", value_name = "FILE", value_delimiter = ',')]
    pub(crate) upstream_ca: Vec<PathBuf>,
    /// Identify the proxy to upstreams with https by the certificate in this PEM file.
    ///
    /// It requires --upstream-client-key.
    #[arg(long, env = "ROLLTAP_UPSTREAM_CLIENT_CERT", value_name = "FILE")]
    pub(crate) upstream_client_cert: Option<PathBuf>,
    /// Read the private key of --upstream-client-cert from this PEM file.
    #[arg(long, env = "ROLLTAP_UPSTREAM_CLIENT_KEY", value_name = "FILE")]
    pub(crate) upstream_client_key: Option<PathBuf>,
    /// Connect to upstreams through the HTTP proxy at this URL, such as `http://USER:PASSWORD@proxy.example:3128`.
    /// [default: connect directly]
    ///
    /// The HTTP proxy must allow CONNECT to each upstream's port. The variables https_proxy and http_proxy have no
    /// effect on upstreams.
    #[arg(long, env = "ROLLTAP_UPSTREAM_HTTP_PROXY", value_name = "URL", hide_env_values = true)]
    pub(crate) upstream_http_proxy: Option<String>,
    /// Send the session id of a conversation to upstreams in this header. Repeat the flag for several headers; `none`
    /// sends no id. [default: X-Session-ID]
    ///
    /// Routers send requests of one session to one engine, whose prefix cache has the conversation. vLLM reads
    /// X-Session-ID. The id is made of the trial's name and a hash of the conversation's first message.
    #[arg(long, env = "ROLLTAP_SESSION_HEADER", value_name = "NAME", value_delimiter = ',')]
    pub(crate) session_header: Vec<String>,
}

/// Settings of TLS on the planes of a proxy, each a flag, an environment variable, and a key of the files of
/// `rolltap proxy` and `rolltap run`.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[command(next_help_heading = "TLS to clients")]
#[serde(default)]
pub(crate) struct PlaneTlsOptions {
    /// Serve clients with TLS, with the certificate in this PEM file. [default: HTTP without TLS]
    ///
    /// The file may have further certificates up to the authority. It requires --tls-key. New connections use a changed
    /// certificate within seconds. `rolltap proxy` serves both planes with TLS. `rolltap run` serves the agent plane
    /// with TLS, because its admin plane is on loopback.
    #[arg(long, env = "ROLLTAP_TLS_CERT", value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Read the private key of --tls-cert from this PEM file.
    #[arg(long, env = "ROLLTAP_TLS_KEY", value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
}

impl UpstreamConnectionOptions {
    /// Fills the settings that neither a flag nor a variable gives from the `rolltap` section of a job file.
    pub(crate) fn or(&mut self, file: &OwnConfig) {
        if self.upstream_ca.is_empty() {
            self.upstream_ca.clone_from(&file.upstream_ca);
        }
        // A certificate and its key belong together, so they come from one source.
        if self.upstream_client_cert.is_none() && self.upstream_client_key.is_none() {
            self.upstream_client_cert.clone_from(&file.upstream_client_cert);
            self.upstream_client_key.clone_from(&file.upstream_client_key);
        }
        if self.upstream_http_proxy.is_none() {
            self.upstream_http_proxy.clone_from(&file.upstream_http_proxy);
        }
        if self.session_header.is_empty() {
            self.session_header.clone_from(&file.session_header);
        }
    }

    /// Parses the URL of the HTTP proxy.
    pub(crate) fn http_proxy(&self) -> anyhow::Result<Option<HttpProxy>> {
        let url = self.upstream_http_proxy.as_deref();
        url.map(|url| url.parse().context("upstream_http_proxy")).transpose()
    }

    /// Parses the names of the session headers.
    pub(crate) fn session_headers(&self) -> anyhow::Result<SessionHeaders> {
        SessionHeaders::named(&self.session_header).context("session_header")
    }

    /// Returns the files. The proxy reads them if an upstream has https.
    pub(crate) fn files(self) -> anyhow::Result<UpstreamTls> {
        let names = ["upstream_client_cert", "upstream_client_key"];
        let identity = both(names, self.upstream_client_cert, self.upstream_client_key)?;
        Ok(UpstreamTls { authorities: self.upstream_ca, identity })
    }
}

impl PlaneTlsOptions {
    /// Fills the settings that neither a flag nor a variable gives from the `rolltap` section of a job file.
    pub(crate) fn or(&mut self, file: &OwnConfig) {
        if self.tls_cert.is_none() && self.tls_key.is_none() {
            self.tls_cert.clone_from(&file.tls_cert);
            self.tls_key.clone_from(&file.tls_key);
        }
    }

    /// Returns the files, without authorities of clients. `None` without TLS.
    pub(crate) fn files(self) -> anyhow::Result<Option<PlaneTls>> {
        let own = both(["tls_cert", "tls_key"], self.tls_cert, self.tls_key)?;
        Ok(own.map(|own| PlaneTls { own, client_authorities: None }))
    }
}

/// The options of commands that call the admin plane of a running proxy or service.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Service")]
pub(crate) struct ServiceOptions {
    /// Call the service whose admin plane is at this URL.
    #[arg(long, env = "ROLLTAP_URL", value_name = "URL", default_value = "http://127.0.0.1:7071")]
    url: String,
    /// Send the token in this file, if the admin plane demands one.
    #[arg(long, env = "ROLLTAP_ADMIN_TOKEN_FILE", value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    /// Trust the authorities in this PEM file for an admin plane with https. Repeat the flag for several files.
    /// [default: those of the system]
    #[arg(long, value_name = "FILE")]
    ca: Vec<PathBuf>,
    /// Identify the command to that admin plane by the certificate in this PEM file.
    #[arg(long, value_name = "FILE", requires = "client_key")]
    client_cert: Option<PathBuf>,
    /// Read the private key of --client-cert from this PEM file.
    #[arg(long, value_name = "FILE", requires = "client_cert")]
    client_key: Option<PathBuf>,
}

impl ServiceOptions {
    /// Returns a client of the admin plane.
    pub(crate) fn client(self) -> anyhow::Result<AdminClient> {
        let token = self.admin_token_file.as_deref().map(read_token).transpose()?;
        let tls = admin_tls(self.ca, self.client_cert, self.client_key)?;
        Ok(AdminClient::with_tls(&self.url, token, &tls)?)
    }
}

/// Warns that other machines reach these addresses, given with their flags, without TLS.
pub(crate) fn warn_of_plain_text(addresses: &str) {
    tracing::warn!(
        "{addresses} is without TLS: keys and conversations cross the network in plain text. Give --tls-cert and \
         --tls-key, unless the network is private or a gateway in front of the proxy has TLS"
    );
}

/// Returns the files of TLS to the admin plane of a proxy that already runs.
pub(crate) fn admin_tls(
    authorities: Vec<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
) -> anyhow::Result<UpstreamTls> {
    Ok(UpstreamTls {
        authorities,
        identity: both(["proxy_client_cert", "proxy_client_key"], certificate, key)?,
    })
}

/// Returns a certificate with its key, if they are given.
fn both(
    [certificate_name, key_name]: [&str; 2],
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
) -> anyhow::Result<Option<CertificateFiles>> {
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some(CertificateFiles { certificate, key })),
        (Some(_), None) => bail!("{certificate_name} is given without {key_name}"),
        (None, Some(_)) => bail!("{key_name} is given without {certificate_name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_without_its_key_is_an_error() {
        let names = ["tls_cert", "tls_key"];
        let path = |text: &str| Some(PathBuf::from(text));
        let alone = both(names, path("c"), None).unwrap_err().to_string();
        assert_eq!(alone, "tls_cert is given without tls_key");
        let alone = both(names, None, path("k")).unwrap_err().to_string();
        assert_eq!(alone, "tls_key is given without tls_cert");
        assert!(both(names, path("c"), path("k")).unwrap().is_some());
        assert!(both(names, None, None).unwrap().is_none());
    }

    #[test]
    fn a_wrong_http_proxy_is_an_error_that_hides_its_password() {
        let upstream_http_proxy = Some("socks5://user:secret@h".to_owned());
        let options =
            UpstreamConnectionOptions { upstream_http_proxy, ..UpstreamConnectionOptions::default() };
        let error = format!("{:#}", options.http_proxy().unwrap_err());
        assert!(error.contains("upstream_http_proxy") && error.contains("http://"), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
}
