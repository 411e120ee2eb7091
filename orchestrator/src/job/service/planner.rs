//! Plans the groups of a submission: finds its tasks and its agent, and checks what it adds to the requests.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use rolltap_proxy::api::Submit;
use rolltap_proxy::{SubmissionRefusal, check_sampling};
use rolltap_rollout::ids::SubmissionId;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::common::suggest::{did_you_mean, nearest};
use crate::environment::EnvironmentKind;
use crate::failure::{TimeoutPolicy, chain};
use crate::job::check::task_fits_environment;
use crate::job::plan::Planner;
use crate::job::ready::used_tables;
use crate::job::tasks::JobTask;
use crate::job::{JobError, JobSettings, RewardRules};
use crate::task::{MissingVariables, Task, UsedTables};
use crate::trial::{JobAgent, TaskOverrides, TrialExtras, TrialPlan, TrialRequest};

/// The most names that an error lists.
const LISTED: usize = 10;

/// The part of a service's settings that plans groups.
#[derive(Debug)]
pub(super) struct GroupPlanner {
    job_id: Uuid,
    job_name: String,
    /// The tasks that submissions name.
    catalog: Vec<JobTask>,
    agents: Vec<Arc<JobAgent>>,
    samples: NonZeroU32,
    timeouts: TimeoutPolicy,
    extras: TrialExtras,
    reward_rules: RewardRules,
    overrides: TaskOverrides,
    environment: EnvironmentKind,
    used_tables: UsedTables,
    sampling: serde_json::Map<String, serde_json::Value>,
    /// Whether groups close only by request.
    hold_groups: bool,
}

impl GroupPlanner {
    /// Makes the planner of a service. The tasks of the settings are ready to run.
    pub(super) fn new(
        job_id: Uuid,
        job_name: &str,
        settings: &JobSettings,
        hold_groups: bool,
    ) -> Result<Self, JobError> {
        Ok(Self {
            job_id,
            job_name: job_name.to_owned(),
            catalog: settings.tasks.clone(),
            agents: settings.agents.iter().cloned().map(Arc::new).collect(),
            samples: settings.samples,
            timeouts: settings.timeouts,
            extras: settings.overrides.extras()?,
            reward_rules: settings.reward_rules.clone(),
            overrides: settings.overrides.clone(),
            environment: settings.environment,
            used_tables: used_tables(settings),
            sampling: settings.sampling.clone(),
            hold_groups,
        })
    }

    /// Returns the first trial of each group of a submission. `stop` ends the trials early.
    ///
    /// # Errors
    /// The request names something that the service does not have, or a task that cannot be used.
    pub(super) async fn plan(
        &self,
        submit: &Submit,
        id: &SubmissionId,
        stop: CancellationToken,
    ) -> Result<Vec<TrialPlan>, SubmissionRefusal> {
        let agent = [self.agent(submit.agent.as_deref())?];
        let tasks = self.tasks(submit)?;
        let mut sampling = self.sampling.clone();
        sampling.extend(submit.sampling.clone());
        check_sampling(&sampling).map_err(|error| invalid(error.to_string()))?;
        let (metadata, hold_group) = (submit.metadata.clone(), self.hold_groups);
        let request = TrialRequest { sampling, metadata, has_long_name: true, hold_group, stop };
        let planner = Planner {
            job_id: self.job_id,
            // The id of the submission distinguishes its groups from those of others with the same tasks.
            job_name: &format!("{}/{id}", self.job_name),
            agents: &agent,
            samples: submit.samples.unwrap_or(self.samples),
            timeouts: self.timeouts,
            extras: &self.extras,
            reward_rules: &self.reward_rules,
            request: &Arc::new(request),
        };
        planner.plan(tasks).await.map_err(|error| invalid(chain(&error)))
    }

    fn agent(&self, wanted: Option<&str>) -> Result<Arc<JobAgent>, SubmissionRefusal> {
        let known = || listed(self.agents.iter().map(|agent| agent.label()));
        let Some(wanted) = wanted else {
            return match self.agents.as_slice() {
                [only] => Ok(Arc::clone(only)),
                _ => Err(invalid(format!("agent is missing: the service has several, {}", known()))),
            };
        };
        let is_wanted = |agent: &&Arc<JobAgent>| {
            [agent.label().as_str(), &agent.asked, agent.spec.name()].contains(&wanted)
        };
        let mut found = self.agents.iter().filter(is_wanted);
        match (found.next(), found.next()) {
            (Some(agent), None) => Ok(Arc::clone(agent)),
            (Some(_), Some(_)) => Err(invalid(format!(
                "agent {wanted:?} is several agents of the service, with other models: {}",
                known()
            ))),
            (None, _) => Err(invalid(format!(
                "there is no agent {wanted:?}: the service was started with {}",
                known()
            ))),
        }
    }

    fn tasks(&self, submit: &Submit) -> Result<Vec<JobTask>, SubmissionRefusal> {
        match (&submit.task, &submit.task_path, &submit.dataset) {
            (Some(name), None, None) => self.named(name).map(|task| vec![task]),
            (None, Some(path), None) => self.at(path).map(|task| vec![task]),
            (None, None, Some(name)) => self.of_dataset(name),
            _ => Err(invalid("expected exactly one of task, task_path and dataset")),
        }
    }

    fn named(&self, name: &str) -> Result<JobTask, SubmissionRefusal> {
        let short = |task: &JobTask| task.task.dir.file_name().is_some_and(|dir| dir == name);
        let mut found = self.catalog.iter().filter(|task| task.task.name == name);
        if let (Some(task), None) = (found.next(), found.next()) {
            return Ok(task.clone());
        }
        let mut found = self.catalog.iter().filter(|task| short(task));
        match (found.next(), found.next()) {
            (Some(task), None) => Ok(task.clone()),
            (Some(_), Some(_)) => {
                Err(invalid(format!("task {name:?} is in several datasets: give its directory as task_path")))
            }
            (None, _) => Err(invalid(self.no_task(name))),
        }
    }

    fn no_task(&self, name: &str) -> String {
        let names = || self.catalog.iter().map(|task| task.task.name.as_str());
        // The part behind the organisation names a task too.
        let short = names().filter_map(|name| name.rsplit('/').next());
        let guess = did_you_mean(nearest(name, names().chain(short)));
        match self.catalog.is_empty() {
            true => format!(
                "there is no task {name:?}: the service was started without tasks; start it with -p DIR, or give task_path"
            ),
            false => format!(
                "there is no task {name:?}{guess}; the service has {}; task_path takes any other directory of its host",
                listed(names().map(str::to_owned))
            ),
        }
    }

    fn at(&self, path: &Path) -> Result<JobTask, SubmissionRefusal> {
        if !path.is_absolute() {
            let shown = path.display();
            return Err(invalid(format!(
                "task_path {shown} is relative: give the absolute path on the host of the service"
            )));
        }
        let problem = |text: String| invalid(format!("task_path {}: {text}", path.display()));
        let task = Task::load(path).map_err(|error| problem(chain(&error)))?;
        let mut task = JobTask::from(task);
        self.overrides.apply(&mut task.task).map_err(|error| problem(chain(&error)))?;
        let missing = task.task.resolve(self.used_tables).err().unwrap_or_default();
        MissingVariables::check(missing).map_err(|error| problem(error.to_string()))?;
        task_fits_environment(self.environment, &self.overrides, &task.task)
            .map_err(|error| problem(chain(&error)))?;
        Ok(task)
    }

    fn of_dataset(&self, name: &str) -> Result<Vec<JobTask>, SubmissionRefusal> {
        let of_dataset = self.catalog.iter().filter(|task| task.source.as_deref() == Some(name));
        let tasks: Vec<_> = of_dataset.cloned().collect();
        if !tasks.is_empty() {
            return Ok(tasks);
        }
        let known: std::collections::BTreeSet<_> =
            self.catalog.iter().filter_map(|task| task.source.clone()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { listed(known) };
        Err(invalid(format!("there is no dataset {name:?}: the service was started with {known}")))
    }
}

fn invalid(message: impl Into<String>) -> SubmissionRefusal {
    SubmissionRefusal::Invalid(message.into())
}

/// Returns names as a list, shortened if it is long.
fn listed(names: impl IntoIterator<Item = String>) -> String {
    let mut names = names.into_iter();
    let first: Vec<_> = names.by_ref().take(LISTED).collect();
    match names.count() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}
