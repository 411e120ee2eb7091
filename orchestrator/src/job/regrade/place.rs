//! The parts that a later verification needs: the host of environments, and the proxy with the captures.

use std::net::{IpAddr, Ipv4Addr};

use rolltap_proxy::UpstreamTls;

use super::{AdminAccess, RegradeError, RegradeSettings};
use crate::admin_client::AdminClient;
use crate::environment::{EnvironmentKind, Host, JobLabel};
use crate::job::config::JobFile;
use crate::job::proxy::{JobProxy, ProxyExtras};
use crate::job::{JobError, ProxyChoice, Upstreams};
use crate::job_dir::JobDir;

/// Returns where the tests run.
pub(super) fn environment(
    settings: &RegradeSettings,
    file: &JobFile,
) -> Result<EnvironmentKind, RegradeError> {
    let recorded = || file.job.environment_kind(&file.own);
    let kind = settings.environment.map_or_else(recorded, Ok)?;
    if kind == EnvironmentKind::Harbor { Err(RegradeError::Harbors) } else { Ok(kind) }
}

/// Connects to the host on which the tests run.
pub(super) async fn host(kind: EnvironmentKind, job: &JobDir) -> Result<Host, RegradeError> {
    let name = job.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
    let connected = Host::connect(kind, &JobLabel::new(name)).await;
    Ok(connected.map_err(|source| JobError::Host { kind, source })?)
}

/// Starts a proxy on the captures in the job directory, or checks that the job's own proxy answers.
pub(super) async fn proxy(
    settings: &RegradeSettings,
    file: &JobFile,
    job: &JobDir,
) -> Result<(JobProxy, AdminClient), RegradeError> {
    let (url, token, tls) = match settings.admin.clone() {
        Some(AdminAccess { url, token, tls }) => (url.or_else(|| file.own.proxy.clone()), token, tls),
        None => (file.own.proxy.clone(), None, UpstreamTls::default()),
    };
    let choice = match url {
        Some(admin_url) => ProxyChoice::External { admin_url, token, tls },
        None if job.data().is_dir() => ProxyChoice::from(Upstreams::default()),
        None => return Err(RegradeError::NoCaptures(job.path().to_owned())),
    };
    // No agent calls a model, so the agent plane need not be reachable from environments.
    let (proxy, admin, _) =
        JobProxy::start(choice, IpAddr::from(Ipv4Addr::LOCALHOST), job.data(), ProxyExtras::default())
            .await?;
    Ok((proxy, admin))
}
