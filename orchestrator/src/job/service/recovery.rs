//! The start of a service, and the submissions that an earlier run left.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use rolltap_proxy::SubmissionDesk;
use rolltap_proxy::api::SubmissionState;
use rolltap_rollout::ids::{GroupId, SubmissionId};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::groups::GroupGate;
use super::log::{GroupOfTask, SubmissionLog, SubmissionRecord, Submitted};
use super::planner::GroupPlanner;
use super::run::{Service, end_of};
use super::table::Table;
use super::{ServiceError, ServiceSettings, SubmissionLogError};
use crate::common::cancellation::Cancellation;
use crate::failure::chain;
use crate::job::dispatcher::Dispatcher;
use crate::job::parts::{JobBase, JobParts, ServedAdmin};
use crate::job::queue::Queue;
use crate::job::records::Records;
use crate::job::resume::{self, Left, Remaining};
use crate::job::stretch::Stretch;
use crate::job::{JobError, JobSettings, Progress};
use crate::job_dir::{JobDir, write_json};
use crate::trial::{TrialOutcome, TrialPlan};

impl Service {
    /// Starts the parts of a service, and continues the submissions that an earlier run left in its directory.
    pub(super) async fn start(
        settings: JobSettings,
        service: ServiceSettings,
        dir: &JobDir,
        progress: &Progress,
        cancellation: Cancellation,
    ) -> Result<Self, ServiceError> {
        let job_name = dir.name();
        let left = resume::look(dir).await.map_err(JobError::from)?;
        if left.as_ref().is_some_and(|left| !left.is_of_a_service()) {
            return Err(ServiceError::NoService(dir.path().to_owned()));
        }
        let job_id = left.as_ref().map_or_else(Uuid::now_v7, |left| left.job_id);
        let records = Records::of_service(job_id, &job_name, &settings, dir);
        let ServiceSettings { admin, admin_token, admin_tokens, pages, max_queued, pace, drop_uniform } =
            service;
        let holds_groups = pace.is_some() || drop_uniform;
        let planner = Arc::new(GroupPlanner::new(job_id, &job_name, &settings, holds_groups)?);
        let (log, lines) = SubmissionLog::open(&dir.submissions())?;
        let table = Table::of(lines, &cancellation.stop);
        let write = |source| JobError::Write { path: dir.config(), source };
        write_json(&dir.config(), records.job_config()).map_err(write)?;

        let (submissions, requests) = SubmissionDesk::open();
        let served =
            ServedAdmin { listen: admin, token: admin_token, tokens: admin_tokens, pages, submissions };
        let queue = Queue::new(job_id, [], settings.concurrency, settings.per_task);
        let max_empty = settings.max_empty_trials;
        let base = JobBase {
            settings,
            dir: dir.clone(),
            records: &records,
            first: &[],
            started_at: left.as_ref().and_then(|left| left.started_at),
            cancellation,
            served: Some(served),
        };
        let parts = JobParts::start(base, progress).await?;
        let context = Arc::clone(&parts.context);
        let dispatcher = Dispatcher::new(Arc::clone(&context), queue, (job_id, &job_name), max_empty);
        let (admin, policy) = parts.proxy.embedded().ok_or(ServiceError::OtherProxy)?;
        let gate = GroupGate::new(pace, drop_uniform, &table, *policy.borrow());
        let mut service = Self {
            admin,
            gate,
            policy,
            is_policy_gone: false,
            parts,
            context,
            dispatcher,
            records,
            table,
            log: Arc::new(Mutex::new(log)),
            planner,
            requests,
            planning: JoinSet::new(),
            max_queued: max_queued.get(),
        };
        service.continue_all(left).await;
        Ok(service)
    }

    async fn continue_all(&mut self, left: Option<Left>) {
        let ids: Vec<SubmissionId> = self.table.active().map(|entry| entry.submitted.id.clone()).collect();
        for id in ids {
            if let Err(problem) = self.continue_one(&id, left.as_ref()).await {
                self.context.log.line(format!("submission {id} cannot continue: {problem}"));
                self.end(&id, SubmissionState::Failed, Some(problem)).await;
            }
        }
    }

    /// Sorts the samples of a submission by their state, and queues those that have not ended.
    async fn continue_one(&mut self, id: &SubmissionId, left: Option<&Left>) -> Result<(), String> {
        let Some(entry) = self.table.get(id) else { return Ok(()) };
        let (submitted, stop) = (entry.submitted.clone(), entry.stop.clone());
        let is_stopping = entry.stopping.is_some();
        let groups =
            self.planner.plan(&submitted.request, id, stop).await.map_err(|error| error.to_string())?;
        // A dataset may have other tasks than at the time of the submission.
        let known = |plan: &&TrialPlan| submitted.groups.iter().any(|group| group.group_id == plan.group_id);
        let groups: Vec<TrialPlan> =
            groups.iter().filter(known).map(|plan| resized(plan, &submitted.groups)).collect();
        if groups.len() < submitted.groups.len() {
            return Err("the service was started without some of its tasks".to_owned());
        }
        let Remaining { done, older, interrupted, plans } = match left {
            Some(left) => left.sort(&self.context.dir, &groups).map_err(|error| chain(&error))?,
            None => {
                Remaining { plans: groups.into_iter().map(Stretch::group).collect(), ..Remaining::default() }
            }
        };
        for mut outcome in done {
            self.table.has_ended(&outcome.group_id, end_of(&outcome));
            if outcome.opened && !is_complete(&outcome) {
                self.context.put_reward(&mut outcome).await;
            }
        }
        // These trials ended while the proxy was unreachable, so they may still be open there.
        let mut ended: Vec<TrialOutcome> = older;
        for outcome in ended.iter_mut().filter(|outcome| !outcome.opened) {
            self.context.seal(outcome).await;
        }
        for plan in &interrupted {
            ended.push(self.context.end_interrupted(plan).await);
        }
        if is_stopping {
            for outcome in ended.iter_mut().filter(|outcome| !is_complete(outcome)) {
                self.settle_outcome(outcome).await;
            }
        } else {
            self.continue_groups(id, plans, submitted.request.priority).await;
        }
        self.end_if_over(id).await;
        Ok(())
    }

    /// Queues the samples of the groups that are not closed, and closes those that are complete.
    async fn continue_groups(&mut self, id: &SubmissionId, plans: Vec<Stretch>, priority: i32) {
        let mut samples: BTreeMap<GroupId, Vec<Stretch>> = BTreeMap::new();
        for stretch in plans {
            samples.entry(stretch.first.group_id.clone()).or_default().push(stretch);
        }
        let Some(entry) = self.table.get(id) else { return };
        let open =
            entry.open_groups().map(|(group, version, is_complete)| (group.clone(), version, is_complete));
        for (group, version, is_complete) in open.collect::<Vec<_>>() {
            let samples = samples.remove(&group).unwrap_or_default();
            match version {
                Some(version) => self.restore_group(&group, samples, priority, version),
                None => self.add_group(&group, samples, priority),
            }
            if is_complete {
                self.group_is_complete(&group).await;
            }
        }
    }

    /// Writes a new submission to the log, and adds it to the table. `stop` stops its trials.
    pub(super) async fn record_submitted(
        &mut self,
        submitted: Submitted,
        stop: CancellationToken,
    ) -> Result<(), SubmissionLogError> {
        self.append(vec![SubmissionRecord::Submitted(Box::new(submitted.clone()))], true).await?;
        self.table.add(submitted, stop);
        Ok(())
    }
}

/// Returns the plan of a group with the size that it was submitted with. The setting of the service may have changed.
fn resized(plan: &TrialPlan, groups: &[GroupOfTask]) -> TrialPlan {
    let size = groups.iter().find(|group| group.group_id == plan.group_id).map(|group| group.samples);
    TrialPlan { group_size: size.unwrap_or(plan.group_size), ..plan.clone() }
}

fn is_complete(outcome: &TrialOutcome) -> bool {
    outcome.status.as_ref().is_some_and(|status| status.completed_at.is_some())
}
