//! One trial on this worker, from its claim to its end.

use std::sync::Arc;
use std::time::Duration;

use rolltap_cluster::work::{Claim, ClaimState, Offer, TrialState};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

use super::Worker;
use super::dir::TaskFetchError;
use super::jobs::{NotHere, WorkerJob};
use crate::failure::chain;
use crate::trial::runner::workers::description::TrialDescription;
use crate::trial::runner::workers::packed;
use crate::trial::{self, TrialOutcome, TrialPlan};

/// The time between two looks at the claim of a running trial.
const LOOK: Duration = Duration::from_secs(5);
/// The pause before NATS or the object storage is asked again.
const AGAIN: Duration = Duration::from_secs(2);

/// The signals of a running trial.
struct Signals {
    /// Ends the trial early.
    stop: CancellationToken,
    /// Cancelled if the job has asked for the stop, or given the trial up.
    by_the_job: CancellationToken,
}

/// Claims the trial of an offer, runs it, and hands it over.
pub(super) async fn run(worker: &Worker, offer: Offer) {
    let Some(key) = offer.key() else {
        tracing::error!("the queue has an offer without a trial, which is removed");
        return offer.discard().await;
    };
    let (trial, content) = (key.trial.clone(), offer.content().clone());
    let mut claim = match offer.claim(key, worker.id, &worker.name).await {
        Ok(Some(claim)) => claim,
        Ok(None) => return tracing::debug!(trial, "the trial was claimed or withdrawn before"),
        Err(error) => return tracing::warn!(trial, error = chain(&error), "a trial is not claimed"),
    };
    let description = match TrialDescription::parse(&content) {
        Ok(description) => description,
        Err(error) => return end(worker, &mut claim, worker.refuses(&chain(&error))).await,
    };
    tracing::info!(trial, job = description.job.name, "trial begins");
    let signals = Signals { stop: worker.giving_back.child_token(), by_the_job: CancellationToken::new() };
    let state = {
        let working = worked(worker, description, &signals);
        tokio::select! {
            state = working => state,
            never = watch(&mut claim, &signals) => match never {},
        }
    };
    end(worker, &mut claim, state).await;
}

/// Follows the claim, and stops the trial if the job wants that.
async fn watch(claim: &mut Claim, signals: &Signals) -> std::convert::Infallible {
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match claim.look().await {
            Ok(ClaimState::Running) => {}
            Ok(ClaimState::Stopping | ClaimState::Gone) => {
                signals.by_the_job.cancel();
                signals.stop.cancel();
            }
            Err(error) => {
                tracing::debug!(trial = claim.key().trial, %error, "the claim of a trial cannot be read")
            }
        }
    }
}

/// Prepares and runs the trial, and uploads its folder. Returns its last state.
async fn worked(worker: &Worker, description: TrialDescription, signals: &Signals) -> TrialState {
    let (job, plan) = match prepared(worker, description, signals).await {
        Ok(prepared) => prepared,
        Err(NotHere::Never(reason)) => return worker.refuses(&reason),
        Err(NotHere::Later(reason)) => return worker.gives_back(&reason),
    };
    let name = plan.name.clone();
    let running = Arc::clone(&job);
    // A task of its own, so that a panic ends this trial alone.
    let ran = tokio::spawn(async move { trial::run(&running.context, plan).await }).await;
    let outcome = match ran {
        Ok(outcome) => outcome,
        Err(error) => {
            tracing::error!(trial = %name, error = chain(&error), "a trial ended by an error of rolltap");
            return worker.gives_back(&chain(&error));
        }
    };
    tracing::info!(trial = %name, "trial {}", outcome.end_in_words());
    if let Some(reason) = &outcome.halts {
        worker.breaks(reason);
        return worker.gives_back(reason);
    }
    if outcome.is_cancelled() && !signals.by_the_job.is_cancelled() {
        return worker.gives_back("it was stopped");
    }
    let state = handed_over(worker, &job, &outcome).await;
    if let Err(error) = tokio::fs::remove_dir_all(job.context.dir.trial(&name).path()).await {
        tracing::warn!(trial = %name, %error, "the folder of a trial is not removed");
    }
    state
}

/// Fetches the job and the task, and waits while the object storage is away.
async fn prepared(
    worker: &Worker,
    description: TrialDescription,
    signals: &Signals,
) -> Result<(Arc<WorkerJob>, TrialPlan), NotHere> {
    loop {
        let tried = async {
            let dir = worker.dir.job(description.job.id).map_err(|error| NotHere::Never(chain(&error)))?;
            let job = worker.jobs.open(&description.job, dir).await?;
            let task = worker.dir.task(&description.task, &worker.objects.tasks).await;
            let task = task.map_err(|error| match error {
                TaskFetchError::Object(error) => NotHere::from(error),
                error => NotHere::Never(chain(&error)),
            })?;
            let plan = job.plan(description.clone(), &task, signals.stop.clone())?;
            Ok((job, plan))
        };
        match tried.await {
            Err(NotHere::Later(reason)) => {
                tracing::warn!(trial = %description.name, reason, "a trial waits for the object storage");
                if signals.stop.run_until_cancelled(sleep(AGAIN)).await.is_none() {
                    return Err(NotHere::Later(reason));
                }
            }
            tried => return tried,
        }
    }
}

/// Uploads the folder of a trial, and waits while the object storage is away.
async fn handed_over(worker: &Worker, job: &WorkerJob, outcome: &TrialOutcome) -> TrialState {
    let dir = job.context.dir.trial(&outcome.name);
    loop {
        let uploaded = async {
            let file = packed(dir.path()).await?;
            Ok::<_, crate::trial::runner::workers::WorkersError>(
                worker.objects.trials.upload(file.path()).await?,
            )
        };
        match uploaded.await {
            Ok(folder) => return TrialState::Ended { name: worker.name.clone(), folder },
            Err(error) => {
                tracing::warn!(trial = %outcome.name, error = chain(&error), "the folder of a trial is not uploaded yet");
            }
        }
        if worker.giving_back.run_until_cancelled(sleep(AGAIN)).await.is_none() {
            return worker.gives_back("it was stopped before the folder of the trial was uploaded");
        }
    }
}

/// Writes the last state of a trial, and waits while NATS is away.
async fn end(worker: &Worker, claim: &mut Claim, state: TrialState) {
    let trial = claim.key().trial.clone();
    loop {
        match claim.end(&state).await {
            Ok(true) => return,
            Ok(false) => {
                return tracing::warn!(trial, "the job gave the trial up, so its result does not count");
            }
            Err(error) => {
                tracing::warn!(trial, error = chain(&error), "the end of a trial is not written yet")
            }
        }
        // A worker that must end leaves the trial to the silence of its heartbeat.
        if worker.giving_back.run_until_cancelled(sleep(AGAIN)).await.is_none() {
            return;
        }
    }
}

impl Worker {
    fn refuses(&self, reason: &str) -> TrialState {
        tracing::error!(reason, "this worker cannot run a trial");
        TrialState::Refused { name: self.name.clone(), reason: reason.to_owned() }
    }

    fn gives_back(&self, reason: &str) -> TrialState {
        TrialState::Lost { name: self.name.clone(), reason: reason.to_owned() }
    }
}
