//! Connects a job to the host on which its trials run.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{JobError, JobSettings, ProxyChoice};
use crate::common::activity::Activities;
use crate::environment::{EnvironmentKind, Host, JobLabel, warn_of_missing_sandbox};
use crate::job::records::Records;
use crate::job_dir::JobDir;
use crate::trial::runner::harbor::{Harbor, HarborJob};
use crate::trial::runner::workers::Workers;
use crate::trial::{TrialHost, TrialPlan};

impl TrialHost {
    /// Checks the requirements of these trials, and removes what dead jobs of this machine left. Builds are listed among
    /// these activities.
    pub(super) async fn connect(
        settings: &JobSettings,
        plans: &[&TrialPlan],
        (label, dir): (&JobLabel, &JobDir),
        records: &Records,
        activities: &Activities,
    ) -> Result<Self, JobError> {
        let kind = settings.environment;
        if let Some(cluster) = &settings.cluster {
            let _connecting = activities.begin("connecting", "to the cluster");
            let job = (records.job_id(), records.job_name());
            let workers = Workers::start(cluster, kind, job, records.job_config()).await?;
            return Ok(Self::Workers(Arc::new(workers)));
        }
        if kind == EnvironmentKind::Harbor {
            let env = settings.overrides.environment_env()?;
            let harbor = Harbor::start(&harbors(settings, env, plans), label, dir).await?;
            return Ok(Self::Harbor(Arc::new(harbor)));
        }
        if !settings.has_own_tasks {
            warn_of_missing_sandbox(kind);
        }
        let host = Host::connect_with(kind, label, activities.clone()).await;
        let host = host.map_err(|source| JobError::Host { kind, source })?;
        Ok(Self::Host(host.force_build(settings.force_build)))
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
