//! The end of a job: the rollouts of all trials are collected in the job directory. They come from the admin plane, or
//! from the agent's own record if nothing was captured.

use std::error::Error;
use std::fs::File;
use std::io::{self, BufWriter, IntoInnerError};
use std::path::{Path, PathBuf};

use futures_util::TryStreamExt;
use rolltap_proxy::api::TrialStatus;
use rolltap_rollout::export::formats::{jsonl, parquet};
use rolltap_rollout::ids::TrialId;
use rolltap_rollout::rollout::{Reward, TrialFacts};
use rolltap_rollout::row::RolloutRow;
use serde::Serialize;

use crate::admin_client::{AdminClient, AdminError};
use crate::agent_reported;
use crate::failure::chain;
use crate::trial::TrialContext;
use crate::trial::TrialOutcome;

/// The files with a job's rollouts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RolloutFiles {
    /// The JSON Lines file, with one row per branch.
    pub jsonl: PathBuf,
    /// The Parquet file, with the same rows.
    pub parquet: PathBuf,
    /// The number of rows.
    pub rows: usize,
}

/// Why the rollouts could not be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum GatherError {
    #[error("cannot write {}: {source}; the captures are complete, and running the job again writes the file", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("cannot write rollouts.jsonl")]
    Jsonl(#[from] jsonl::WriteError),
    #[error("cannot write rollouts.parquet")]
    Parquet(#[from] parquet::WriteError),
    #[error("rollouts not collected: in a hurry")]
    Hurried,
    #[error("rollouts not collected")]
    Away(#[source] AdminError),
}

/// Writes the rows of all trials that were opened at the proxy, in the order of `trials`. Returns a problem for each
/// trial without rows.
pub(super) async fn gather(
    context: &TrialContext,
    trials: &[&TrialOutcome],
) -> Result<(RolloutFiles, Vec<String>), GatherError> {
    let (jsonl, parquet) = (context.dir.rollouts_jsonl(), context.dir.rollouts_parquet());
    let gathered = gather_to(&jsonl, &parquet, context, trials).await;
    if gathered.is_err() {
        remove_drafts(&[&jsonl, &parquet]);
    }
    gathered
}

/// Removes the drafts of files that were not completed.
pub(super) fn remove_drafts(paths: &[&Path]) {
    for path in paths {
        // The draft may not exist yet.
        let _ = std::fs::remove_file(draft(path));
    }
}

async fn gather_to(
    jsonl: &Path,
    parquet: &Path,
    context: &TrialContext,
    trials: &[&TrialOutcome],
) -> Result<(RolloutFiles, Vec<String>), GatherError> {
    let mut writers = Writers::create(jsonl, parquet)?;
    let mut missing = Vec::new();
    for trial in trials.iter().filter(|trial| trial.opened) {
        let is_returned = trial.returned.as_ref().is_some_and(|returned| returned.taken);
        let rows = match &trial.status {
            // The proxy captured nothing of such a trial and has no rows.
            Some(status) if is_returned => returned_rows(context, trial, &trial.facts(context), status),
            _ => {
                let fetch = fetch(&context.admin, &trial.name, context.messages);
                let fetched = context.cancellation.unless_hurried(fetch).await;
                match fetched.ok_or(GatherError::Hurried)? {
                    // Without a proxy each further trial would only wait and fail too.
                    Err(error) if error.is_of_an_absent_proxy() => return Err(GatherError::Away(error)),
                    fetched => fetched.map_err(|error| chain(&error)),
                }
            }
        };
        match rows {
            Ok(rows) => writers.write(&rows)?,
            Err(problem) => missing.push(format!("no rollout of {}: {problem}", trial.name)),
        }
    }
    let rows = writers.finish()?;
    Ok((RolloutFiles { jsonl: jsonl.to_owned(), parquet: parquet.to_owned(), rows }, missing))
}

/// Fetches a trial's rows, and retries once if the answer breaks off, because the proxy may have restarted.
async fn fetch(admin: &AdminClient, trial: &TrialId, messages: bool) -> Result<Vec<RolloutRow>, AdminError> {
    match admin.rollout(trial, messages).await?.try_collect().await {
        Err(AdminError::Unreadable { .. }) => admin.rollout(trial, messages).await?.try_collect().await,
        fetched => fetched,
    }
}

/// Returns the rows from the agent's own record. They are read again here, because they were not held in memory.
fn returned_rows(
    context: &TrialContext,
    trial: &TrialOutcome,
    facts: &TrialFacts,
    status: &TrialStatus,
) -> Result<Vec<RolloutRow>, String> {
    let dir = context.dir.trial(&trial.name);
    let (found, problems) = agent_reported::look(&dir, &trial.name, trial.agent_finished_at());
    let found =
        found.ok_or_else(|| format!("what its agent handed back is gone: {}", problems.join("; ")))?;
    let reward = Reward {
        rewards: status.rewards.clone(),
        reward: status.reward,
        valid: status.reward_valid.unwrap_or(false),
        failure_cause: status.failure_cause.clone(),
        version: None,
        suspicious: status.suspicious.clone(),
    };
    agent_reported::rows(facts, &reward, status.superseded, &found.calls)
}

/// Both files while they are written. They are drafts with another name, so that an existing result is always complete.
pub(super) struct Writers<'a> {
    jsonl: jsonl::JsonlWriter<BufWriter<File>>,
    parquet: parquet::ParquetWriter<BufWriter<File>>,
    /// The final paths.
    places: (&'a Path, &'a Path),
    rows: usize,
}

impl<'a> Writers<'a> {
    pub(super) fn create(jsonl: &'a Path, parquet: &'a Path) -> Result<Self, GatherError> {
        let columns = parquet::ParquetWriter::new(create(&draft(parquet))?).map_err(written(parquet))?;
        Ok(Self {
            jsonl: jsonl::JsonlWriter::new(create(&draft(jsonl))?),
            parquet: columns,
            places: (jsonl, parquet),
            rows: 0,
        })
    }

    pub(super) fn write(&mut self, rows: &[RolloutRow]) -> Result<(), GatherError> {
        for row in rows {
            self.jsonl.write(row).map_err(written(self.places.0))?;
            self.parquet.write(row).map_err(written(self.places.1))?;
            self.rows += 1;
        }
        Ok(())
    }

    /// Completes both files and syncs them to disk before it moves either into place.
    pub(super) fn finish(self) -> Result<usize, GatherError> {
        let (jsonl, parquet) = self.places;
        store(self.jsonl.finish().map_err(written(jsonl))?).map_err(at(jsonl))?;
        store(self.parquet.finish().map_err(written(parquet))?).map_err(at(parquet))?;
        for path in [jsonl, parquet] {
            std::fs::rename(draft(path), path).map_err(at(path))?;
        }
        Ok(self.rows)
    }
}

/// Writes the buffered bytes and syncs the file. Dropping the buffer would write them too, but ignore an error.
fn store(file: BufWriter<File>) -> io::Result<()> {
    file.into_inner().map_err(IntoInnerError::into_error)?.sync_all()
}

/// Maps an error of a writer. An error of the operating system inside it has priority over the writer's own error.
fn written<E: Error + Into<GatherError> + 'static>(path: &Path) -> impl FnOnce(E) -> GatherError {
    move |error| match of_the_system(&error) {
        Some(source) => at(path)(source),
        None => error.into(),
    }
}

fn of_the_system(error: &(dyn Error + 'static)) -> Option<io::Error> {
    let code = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
    match code {
        Some(code) => Some(io::Error::from_raw_os_error(code)),
        None => of_the_system(error.source()?),
    }
}

fn draft(path: &Path) -> PathBuf {
    path.with_added_extension("part")
}

fn create(path: &Path) -> Result<BufWriter<File>, GatherError> {
    File::create(path).map(BufWriter::new).map_err(at(path))
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> GatherError {
    let path = path.to_owned();
    |source| GatherError::File { path, source }
}
