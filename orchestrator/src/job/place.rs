//! Where a job's trials run: in environments of rolltap's own, or in Harbor's hands.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::{JobError, JobSettings, ProxyChoice};
use crate::environment::{EnvironmentError, EnvironmentKind, Host, JobLabel};
use crate::harbor::{Harbor, HarborJob};
use crate::job_dir::JobDir;
use crate::trial::TrialPlan;

/// Where a job's trials run.
pub(crate) enum Place {
    /// In environments that rolltap makes.
    Host(Host),
    /// Harbor runs them.
    Harbor(Arc<Harbor>),
}

impl Place {
    /// Makes sure of what trials like these need, and removes what dead jobs of this machine left.
    pub(super) async fn connect(
        settings: &JobSettings,
        plans: &[&TrialPlan],
        label: &JobLabel,
        dir: &JobDir,
    ) -> Result<Self, JobError> {
        let kind = settings.environment;
        if kind == EnvironmentKind::Harbor {
            let env = settings.overrides.environment_env()?;
            let harbor = Harbor::start(&harbors(settings, env, plans), label, dir).await?;
            return Ok(Self::Harbor(Arc::new(harbor)));
        }
        let host = Host::connect(kind, label).await.map_err(|source| JobError::Host { kind, source })?;
        Ok(Self::Host(host.force_build(settings.force_build)))
    }

    /// Where the agent plane must listen so that agents reach it.
    pub(super) fn bind_address(&self) -> IpAddr {
        match self {
            Self::Host(host) => host.bind_address(),
            Self::Harbor(harbor) => harbor.bind_address(),
        }
    }

    /// Removes everything of the job's.
    pub(super) async fn close(self) -> Result<(), EnvironmentError> {
        match self {
            Self::Host(host) => host.close().await,
            Self::Harbor(harbor) => harbor.close().await,
        }
    }
}

fn harbors<'a>(
    settings: &'a JobSettings,
    env: BTreeMap<String, String>,
    plans: &[&TrialPlan],
) -> HarborJob<'a> {
    HarborJob {
        settings: &settings.harbor,
        agents: &settings.agents,
        tasks: plans.iter().map(|plan| plan.task.dir.clone()).collect(),
        without_verifier: plans.iter().all(|plan| plan.extras.without_verifier),
        force_build: settings.force_build,
        overrides: &settings.overrides,
        env,
        is_proxy_hidden: matches!(settings.proxy, ProxyChoice::Embedded { public: None, .. }),
    }
}
