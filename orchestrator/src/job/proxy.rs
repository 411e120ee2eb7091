//! The proxy that captures a job's calls: an embedded proxy, or an external proxy that already runs.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use rolltap_proxy::traces::TraceSettings;
use rolltap_proxy::{PoolSettings, RunningProxy, Settings, TrialAdmission};
use tokio::sync::watch;

use super::parts::ServedAdmin;
use super::preflight::{self, PreflightError};
use super::{JobError, JobSettings, ProxyChoice, PublicPlace};
use crate::admin_client::{AdminClient, CLUSTER_PATIENCE, Greeter};
use crate::failure::chain;
use crate::trial::{JobAgent, PublishedPlane};

/// The time for calls to drain at the end of a job. Every trial is sealed by then.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// What a proxy of a job has beyond capture.
#[derive(Debug, Default)]
pub(super) struct ProxyExtras {
    /// Where the spans of calls go. `None` makes no spans.
    pub(super) traces: Option<TraceSettings>,
    /// `None` for an admin plane that only this job calls.
    pub(super) served: Option<ServedAdmin>,
    /// Whether the proxy decides which trials may open.
    pub(super) admits_trials: bool,
    /// Whether an external proxy belongs to a cluster. The job waits for it, as all parts of a cluster do.
    pub(super) is_of_cluster: bool,
}

pub(super) enum JobProxy {
    Embedded(Box<RunningProxy>),
    External,
}

/// Returns the addresses of the agent plane. Agents get the first, which they reach from their containers.
/// The second is loopback, for callers of this host.
fn reached_from_here(at: IpAddr) -> Vec<SocketAddr> {
    let mut listen = vec![SocketAddr::new(at, 0)];
    if !at.is_loopback() {
        listen.push(SocketAddr::new(IpAddr::from(Ipv4Addr::LOCALHOST), 0));
    }
    listen
}

/// Returns the job's agents with their models, before anything starts.
pub(super) async fn choose_models(settings: &JobSettings) -> Result<Vec<JobAgent>, PreflightError> {
    let mut agents = Vec::new();
    for agent in &settings.agents {
        let model = choose_model(agent, &settings.proxy).await?;
        agents.push(JobAgent { model, ..agent.clone() });
    }
    Ok(agents)
}

/// Checks that the upstreams of an embedded proxy give tokens for the models of these agents.
pub(super) async fn check_captures(settings: &JobSettings) -> Result<(), PreflightError> {
    let ProxyChoice::Embedded { upstreams, .. } = &settings.proxy else { return Ok(()) };
    let calling = settings.agents.iter().filter(|agent| agent.spec.calls_model());
    let models = calling.filter_map(|agent| agent.model.clone()).collect();
    preflight::check_captures(upstreams, models).await
}

/// Returns an agent's model. Only an embedded proxy's upstreams can be asked before anything starts.
async fn choose_model(agent: &JobAgent, proxy: &ProxyChoice) -> Result<Option<String>, PreflightError> {
    let JobAgent { spec, model, .. } = agent;
    if !spec.calls_model() {
        return Ok(model.clone());
    }
    match proxy {
        ProxyChoice::Embedded { upstreams, .. } if upstreams.addresses.is_empty() => {
            Err(PreflightError::NoUpstream { agent: spec.name().to_owned() })
        }
        ProxyChoice::Embedded { upstreams, .. } => preflight::choose_model(upstreams, model.clone()).await,
        ProxyChoice::External { .. } if model.is_none() && spec.needs_model() => {
            Err(PreflightError::ModelNeeded { agent: spec.name().to_owned() })
        }
        ProxyChoice::External { .. } => Ok(model.clone()),
    }
}

impl JobProxy {
    /// Starts an embedded proxy, or checks that the external proxy answers. The agent plane listens where environments
    /// reach it. Also returns the addresses of an embedded proxy with a public URL.
    pub(super) async fn start(
        choice: ProxyChoice,
        reachable_at: IpAddr,
        data_dir: PathBuf,
        extras: ProxyExtras,
    ) -> Result<(Self, AdminClient, Option<PublishedPlane>), JobError> {
        let (upstreams, public) = match choice {
            ProxyChoice::External { admin_url, token, tls } => {
                let admin = AdminClient::with_tls(&admin_url, token, &tls)?;
                // An unreachable or incompatible proxy must fail the job before any trial.
                if !extras.is_of_cluster {
                    admin.greet().await?;
                    return Ok((Self::External, admin, None));
                }
                let admin = admin.waiting_for(CLUSTER_PATIENCE);
                admin.greet_once_present(Greeter::Reader).await?;
                return Ok((Self::External, admin, None));
            }
            ProxyChoice::Embedded { upstreams, public } => (upstreams, public),
        };
        let (listen, public_url, agent_tls) = match public.clone() {
            Some(PublicPlace { listen, url, tls }) => (vec![listen], Some(url), tls),
            None => (reached_from_here(reachable_at), None, None),
        };
        let ProxyExtras { traces, served, admits_trials, is_of_cluster: _ } = extras;
        let addresses = upstreams.authorized()?;
        let on_loopback = Settings::on_loopback(addresses, data_dir);
        let pool = PoolSettings {
            tls: upstreams.tls,
            http_proxy: upstreams.http_proxy,
            session_headers: upstreams.session_headers,
            admits_trials,
            ..PoolSettings::default()
        };
        let mut settings =
            Settings { listen, public_url, agent_tls, render: upstreams.render, pool, traces, ..on_loopback };
        let mut own_token = None;
        if let Some(ServedAdmin { listen, token, tokens, pages, submissions }) = served {
            (settings.admin, settings.pages, settings.admin_tokens) = (listen, pages, tokens);
            (settings.admin_token, settings.submissions) = (token.clone(), Some(submissions));
            own_token = token;
        }
        let proxy = rolltap_proxy::start(settings).await?;
        let admin = AdminClient::new(&format!("http://{}", proxy.admin_addr()), own_token)?;
        // The proxy has chosen the port if `listen` has none.
        let listening = proxy.agent_addrs().first();
        // A certificate has the host of the public URL, which programs of this host need too.
        let without_tls = public.filter(|place| place.tls.is_none());
        let published = without_tls.zip(listening).map(|(place, &at)| PublishedPlane::new(&place.url, at));
        Ok((Self::Embedded(Box::new(proxy)), admin, published))
    }

    /// Returns the address of the admin plane of an embedded proxy, and its policy version.
    pub(super) fn embedded(&self) -> Option<(SocketAddr, watch::Receiver<i32>)> {
        match self {
            Self::Embedded(proxy) => Some((proxy.admin_addr(), proxy.policy_version())),
            Self::External => None,
        }
    }

    /// Returns the admission of trials, if the job was started with it.
    pub(super) fn trial_admission(&self) -> Option<TrialAdmission> {
        match self {
            Self::Embedded(proxy) => proxy.trial_admission(),
            Self::External => None,
        }
    }

    /// Stops an embedded proxy. Returns the problem, if there was one.
    pub(super) async fn stop(self) -> Option<String> {
        match self {
            Self::Embedded(proxy) => {
                let error = proxy.shutdown(SHUTDOWN_GRACE).await.err()?;
                Some(format!("the embedded proxy did not stop cleanly: {}", chain(&error)))
            }
            Self::External => None,
        }
    }
}
