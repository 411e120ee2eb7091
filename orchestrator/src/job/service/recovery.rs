//! The start of a service, and the submissions that an earlier run left.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};

use rolltap_proxy::SubmissionDesk;
use rolltap_proxy::api::SubmissionState;
use rolltap_rollout::ids::{GroupId, SubmissionId};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::groups::GroupGate;
use super::log::{SubmissionLog, SubmissionRecord, Submitted};
use super::planner::GroupPlanner;
use super::run::{Service, end_of};
use super::table::{Entry, Table};
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
use crate::trial::{TrialHost, TrialPlan};

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
        let dispatcher = Dispatcher::new(
            Arc::clone(&context),
            queue,
            parts.proxy.trial_admission(),
            (job_id, &job_name),
            max_empty,
        );
        let (admin, policy) = parts.proxy.embedded().ok_or(ServiceError::OtherProxy)?;
        let gate = GroupGate::new(pace, drop_uniform, &table, *policy.borrow());
        let mut service = Self {
            admin,
            gate,
            policy,
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

    /// Continues all submissions: those that have begun take their places again before any other may begin.
    async fn continue_all(&mut self, left: Option<Left>) {
        let ids: Vec<SubmissionId> = self.table.active().map(|entry| entry.submitted.id.clone()).collect();
        for id in &ids {
            if let Err(problem) = self.continue_one(id, left.as_ref()).await {
                self.context.log.line(format!("submission {id} cannot continue: {problem}"));
                self.fail(id, problem, left.as_ref()).await;
            }
        }
        let open = self.table.active().flat_map(Entry::open_groups);
        let complete = open.filter(|(_, _, is_complete)| *is_complete).map(|(group, ..)| group.clone());
        for group in complete.collect::<Vec<_>>() {
            self.group_is_complete(&group).await;
        }
        self.release_groups().await;
        for id in &ids {
            self.end_if_over(id).await;
        }
    }

    /// Sorts the samples of a submission by their state, and queues those that have not ended.
    async fn continue_one(&mut self, id: &SubmissionId, left: Option<&Left>) -> Result<(), String> {
        let Some(entry) = self.table.get(id) else { return Ok(()) };
        let (submitted, stop) = (entry.submitted.clone(), entry.stop.clone());
        let is_stopping = entry.stopping.is_some();
        let planned =
            self.planner.plan(&submitted.request, id, stop).await.map_err(|error| error.to_string())?;
        let sizes: HashMap<_, _> =
            submitted.groups.iter().map(|group| (&group.group_id, group.samples)).collect();
        // A dataset may have other tasks than at the submission, and the service another number of samples.
        let known = |plan: TrialPlan| {
            let group_size = *sizes.get(&plan.group_id)?;
            Some(TrialPlan { group_size, ..plan })
        };
        let groups: Vec<TrialPlan> = planned.into_iter().filter_map(known).collect();
        if groups.len() < submitted.groups.len() {
            return Err("the service was started without some of its tasks".to_owned());
        }
        let on_workers = matches!(self.context.place, TrialHost::Workers(_));
        let mut remaining = match left {
            Some(left) => left.sort(&self.context.dir, &groups, on_workers).map_err(|error| chain(&error))?,
            None => {
                Remaining { plans: groups.into_iter().map(Stretch::group).collect(), ..Remaining::default() }
            }
        };
        self.context.settle_left(&mut remaining).await;
        let Remaining { done, mut older, plans, .. } = remaining;
        done.iter().for_each(|outcome| self.table.has_ended(&outcome.group_id, end_of(outcome)));
        if is_stopping {
            for outcome in older.iter_mut().filter(|outcome| !outcome.is_complete_at_proxy()) {
                self.settle_outcome(outcome).await;
            }
        }
        let plans = if is_stopping { Vec::new() } else { plans };
        self.continue_groups(id, plans, submitted.request.priority);
        Ok(())
    }

    /// Queues the samples of the groups that are not closed.
    fn continue_groups(&mut self, id: &SubmissionId, plans: Vec<Stretch>, priority: i32) {
        let mut samples: BTreeMap<GroupId, Vec<Stretch>> = BTreeMap::new();
        for stretch in plans {
            samples.entry(stretch.first.group_id.clone()).or_default().push(stretch);
        }
        let Some(entry) = self.table.get(id) else { return };
        let open: Vec<_> = entry.open_groups().map(|(group, version, _)| (group.clone(), version)).collect();
        for (group, version) in open {
            let samples = samples.remove(&group).unwrap_or_default();
            match version {
                Some(version) => self.restore_group(&group, samples, priority, version),
                // A group of a stopped submission does not begin.
                None if samples.is_empty() => {}
                None => self.gate.wait(group, samples, priority),
            }
        }
    }

    /// Ends a submission whose tasks cannot be used any more: seals its trials, and closes its groups.
    async fn fail(&mut self, id: &SubmissionId, problem: String, left: Option<&Left>) {
        let Some(entry) = self.table.get(id) else { return };
        let state = entry.stopping.unwrap_or(SubmissionState::Failed);
        let groups: HashSet<GroupId> = entry.open_groups().map(|(group, ..)| group.clone()).collect();
        for trial in left.into_iter().flat_map(|left| left.unfinished(&groups)) {
            if let Err(error) = self.context.admin.seal(trial).await {
                self.context.log.line(format!("trial {trial} is not sealed: {}", chain(&error)));
            }
        }
        for group in &groups {
            // A group of which samples are missing for a reason like this is no group to train on.
            if let Err(error) = self.context.admin.close_group(group, true).await {
                self.context.log.line(format!("group {group} is not closed: {}", chain(&error)));
            }
        }
        self.end(id, state, Some(problem)).await;
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
