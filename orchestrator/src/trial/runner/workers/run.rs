//! One trial on a worker, as its job sees it: offered, watched, and taken back.

use std::sync::Arc;
use std::time::Duration;

use rolltap_cluster::objects::{ArchiveError, Content};
use rolltap_cluster::work::{TrialState, TrialWatch};
use rolltap_proxy::api::TrialStatus;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout_at};

use super::description::TrialDescription;
use super::{Workers, WorkersError};
use crate::environment::unpack_folder;
use crate::failure::{Cause, Phase, TrialFailure, chain};
use crate::job_dir::{Log, write_json};
use crate::trial::{Trial, TrialOutcome};

/// The pause before NATS or the object storage is asked again.
const AGAIN: Duration = Duration::from_secs(2);
/// The time in which a worker ends a trial that it is asked to stop.
const STOP_WITHIN: Duration = Duration::from_secs(60);
/// The time for which a folder is fetched that the object storage does not give.
const FETCH_WITHIN: Duration = Duration::from_secs(600);
/// The files of a trial's folder that this process has written already, with its own paths.
const OWN_FILES: [&str; 2] = ["./config.json", "./lock.json"];

impl Trial<'_> {
    /// Lets a worker run the trial, and returns its outcome.
    pub(crate) async fn run_by_workers(mut self, workers: Arc<Workers>) -> TrialOutcome {
        let state = match self.offered(&workers).await {
            Ok(mut watch) => self.final_state(&workers, &mut watch).await,
            Err(failure) => {
                self.fail(failure);
                return self.finish();
            }
        };
        let was_begun = match state {
            Some(TrialState::Ended { name, folder }) => match self.taken(&workers, &name, &folder).await {
                Ok(()) => return self.outcome,
                Err(failure) => {
                    self.fail(failure);
                    true
                }
            },
            Some(TrialState::Lost { name, reason }) => {
                let why = format!("worker {name} is lost: {reason}");
                self.fail(TrialFailure::new(Phase::Agent, Cause::WorkerLost, why));
                true
            }
            Some(TrialState::Refused { name, reason }) => {
                let why = format!("worker {name} cannot run the trial: {reason}");
                self.fail(TrialFailure::new(Phase::Open, Cause::WorkerLost, why.clone()));
                // One worker may lack something that others have. If several refuse, the job is wrong.
                if !self.is_to_be_retried() {
                    self.outcome.halts = Some(why);
                }
                false
            }
            Some(TrialState::Withdrawn) => {
                self.fail(TrialFailure::cancelled(Phase::Open));
                false
            }
            None | Some(TrialState::Running { .. } | TrialState::Stopping { .. }) => {
                self.fail(TrialFailure::cancelled(Phase::Agent));
                true
            }
        };
        if was_begun {
            self.seal_for_good().await;
        }
        self.finish()
    }

    /// Puts the trial into the queue, unless an earlier run of the job did. Waits while NATS or the object storage is away.
    async fn offered(&mut self, workers: &Workers) -> Result<TrialWatch, TrialFailure> {
        self.enter(Phase::Open);
        let stop = self.plan.request.stop.clone();
        let mut is_first = true;
        loop {
            match self.offer(workers).await {
                Ok(watch) => return Ok(watch),
                Err(error) if is_lasting(&error) => {
                    return Err(TrialFailure::from_error(Phase::Open, Cause::Internal, &error));
                }
                Err(error) if std::mem::take(&mut is_first) => {
                    self.log.line(format!("not offered yet: {}", chain(&error)));
                    tracing::warn!(trial = %self.plan.name, error = chain(&error), "a trial is not offered to workers yet");
                }
                Err(_) => {}
            }
            if stop.run_until_cancelled(sleep(AGAIN)).await.is_none() {
                return Err(TrialFailure::cancelled(Phase::Open));
            }
        }
    }

    async fn offer(&self, workers: &Workers) -> Result<TrialWatch, WorkersError> {
        let watch = workers.monitor.watch(self.plan.name.as_str()).await?;
        if watch.state().is_none() {
            let task = workers.uploaded(&self.plan).await?;
            let description = TrialDescription::of(&self.plan, workers.job.clone(), task);
            let json = serde_json::to_vec(&description).map_err(std::io::Error::other)?;
            let key = workers.monitor.key(self.plan.name.as_str());
            workers.monitor.queue().offer(&workers.kind, &key, json.into()).await?;
            self.log.line(format!("offered to the workers of {}", workers.kind));
        }
        Ok(watch)
    }

    /// Waits for the last state of the trial. Returns `None` if the job stops and the worker does not end the trial in time.
    async fn final_state(&self, workers: &Workers, watch: &mut TrialWatch) -> Option<TrialState> {
        let stop = &self.plan.request.stop;
        if let Some(state) = stop.run_until_cancelled(self.until_final(watch)).await {
            return Some(state);
        }
        let ends = Instant::now() + STOP_WITHIN;
        let name = self.plan.name.as_str();
        let stopped = async {
            loop {
                match workers.monitor.stop(name).await {
                    Ok(state) if state.is_final() => return state,
                    Ok(_) => return self.until_final(watch).await,
                    Err(error) => self.log.line(format!("the stop does not reach NATS: {}", chain(&error))),
                }
                sleep(AGAIN).await;
            }
        };
        let in_time = self.context.cancellation.unless_hurried(timeout_at(ends, stopped)).await;
        if let Some(Ok(state)) = in_time {
            return Some(state);
        }
        // The worker may have ended the trial at the last moment.
        let state = workers.monitor.give_up(name, "it did not stop in time").await.ok()?;
        Some(state).filter(|state| !matches!(state, TrialState::Lost { .. }))
    }

    async fn until_final(&self, watch: &mut TrialWatch) -> TrialState {
        let mut state = watch.state();
        let mut last_name = None;
        loop {
            match state {
                Some(state) if state.is_final() => return state,
                Some(TrialState::Running { name, .. }) if last_name.as_ref() != Some(&name) => {
                    self.log.line(format!("runs on worker {name}"));
                    last_name = Some(name);
                }
                _ => {}
            }
            state = watch.changed().await;
        }
    }

    /// Takes the folder of an ended trial, and sets its reward.
    async fn taken(&mut self, workers: &Workers, worker: &str, folder: &Content) -> Result<(), TrialFailure> {
        self.enter(Phase::Reward);
        let own_lines = tokio::fs::read(self.dir.log()).await.unwrap_or_default();
        let mut result = self.unpacked(workers, folder).await?;
        self.continue_log(own_lines).await;
        self.context.records.adopt(&self.plan, worker, &mut result);
        self.outcome = TrialOutcome::recorded(&self.plan, &result);
        // The worker does not know that the job stops, and that no further attempt follows.
        self.outcome.awaits_retry &= !self.plan.request.stop.is_cancelled();
        self.write_taken(&result)?;
        if !self.outcome.awaits_retry && !self.outcome.is_cancelled() {
            self.send_reward().await;
            set_status(&mut result, self.outcome.status.as_ref());
            self.write_taken(&result)?;
        }
        // What remains is removed by its age.
        let key = workers.monitor.key(self.plan.name.as_str());
        if let Err(error) = workers.monitor.queue().forget(&key).await {
            self.log.line(format!("the state of the trial remains in NATS: {}", chain(&error)));
        }
        if let Err(error) = workers.objects.trials.remove(folder).await {
            self.log.line(format!("the folder remains in object storage: {}", chain(&error)));
        }
        Ok(())
    }

    /// Puts the lines of this process before those of the worker, whose file has replaced the own one.
    async fn continue_log(&mut self, mut lines: Vec<u8>) {
        let path = self.dir.log();
        lines.extend(tokio::fs::read(&path).await.unwrap_or_default());
        let written = tokio::fs::write(&path, lines).await;
        match written.and_then(|()| Log::create(&path)) {
            Ok(log) => self.log = log,
            Err(error) => tracing::warn!(trial = %self.plan.name, %error, "cannot write the log of a trial"),
        }
    }

    fn write_taken(&self, result: &Value) -> Result<(), TrialFailure> {
        let written = write_json(&self.dir.result(), result);
        written.map_err(|error| TrialFailure::from_error(Phase::Reward, Cause::Internal, &error))
    }

    /// Fetches and unpacks the folder. Returns the content of its `result.json`.
    async fn unpacked(&self, workers: &Workers, folder: &Content) -> Result<Value, TrialFailure> {
        let failed =
            |error: &dyn std::error::Error| TrialFailure::from_error(Phase::Reward, Cause::Internal, error);
        let archive = self.dir.path().join(".folder");
        self.fetched(workers, folder, &archive).await.map_err(|error| failed(&error))?;
        let (from, to) = (archive.clone(), self.dir.path().to_owned());
        let unpacked = tokio::task::spawn_blocking(move || unpack_folder(&from, &to, &OWN_FILES)).await;
        drop(tokio::fs::remove_file(&archive).await);
        unpacked.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
        let text = tokio::fs::read(self.dir.result()).await.map_err(|error| failed(&error))?;
        serde_json::from_slice(&text).map_err(|error| failed(&error))
    }

    async fn fetched(
        &self,
        workers: &Workers,
        folder: &Content,
        to: &std::path::Path,
    ) -> Result<(), ArchiveError> {
        let ends = Instant::now() + FETCH_WITHIN;
        loop {
            match workers.objects.trials.fetch(folder, to).await {
                Err(error @ ArchiveError::Storage(_)) if Instant::now() < ends => {
                    self.log.line(format!("the folder is not fetched yet: {}", chain(&error)));
                }
                fetched => return fetched,
            }
            sleep(AGAIN).await;
        }
    }

    /// Seals a trial that a worker has begun and not ended, and sets its reward if no further attempt follows.
    async fn seal_for_good(&mut self) {
        match self.context.seal_for_good(&self.plan).await {
            Ok(status) => {
                self.outcome.opened = true;
                self.outcome.status = Some(status);
                self.put_reward().await;
            }
            Err(error) => self.fail_at_proxy(Phase::Seal, &error),
        }
    }
}

fn set_status(result: &mut Value, status: Option<&TrialStatus>) {
    if let Some(own) = result.get_mut("rolltap").and_then(Value::as_object_mut) {
        own.insert("proxy".to_owned(), json!(status));
    }
}

/// Whether another try has the same end.
fn is_lasting(error: &WorkersError) -> bool {
    use rolltap_cluster::work::WorkError;
    match error {
        WorkersError::Cluster(_) | WorkersError::Work(WorkError::Nats { .. } | WorkError::Cluster(_)) => {
            false
        }
        WorkersError::Objects(error) => !matches!(error, ArchiveError::Storage(_)),
        WorkersError::Work(WorkError::TooLarge { .. })
        | WorkersError::Pack(_)
        | WorkersError::Temporary(_) => true,
    }
}
