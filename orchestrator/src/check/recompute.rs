//! `rolltap check --recompute`: lets a vLLM recompute the logprobs of captured tokens, and compares both.
//!
//! The source is read twice. The first pass surveys models and policy versions, and the server must serve the model and
//! the version of the rows, unless the settings permit another. The second pass sends rows. The comparison itself is in
//! [`rolltap_rollout::check::recomputation`].

mod plan;
mod progress;
mod report;
mod report_file;
mod rows;
mod server;

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};

use futures_util::{StreamExt, stream};
use rolltap_proxy::Address;
use rolltap_rollout::check::recomputation::{Bounds, Comparable, Comparison, LeftOut, RecomputedRow};
use tokio::sync::mpsc;
use tokio::task::{self, JoinError};

use self::plan::{Plan, Survey};
pub use self::plan::{PolicyChoice, Refusal};
use self::progress::Progress;
pub use self::report::Recomputed;
use self::report_file::ReportFile;
pub use self::report_file::ReportFileError;
pub use self::server::ServerError;
use self::server::{Answered, Server};
use crate::source::SourceError;

/// The number of rows beyond a bound, or refused by the server, that are named. The report counts all.
const NAMED_ROWS: u64 = 20;

/// The server and the rules of a recomputation.
#[derive(Clone, Debug)]
pub struct RecomputeSettings {
    /// The vLLM.
    pub server: Address,
    /// The API key that it requires.
    pub api_key: Option<String>,
    /// The served model that recomputes all rows. `None` for the model that sampled each row.
    pub model: Option<String>,
    /// The compared policy versions.
    pub policy: PolicyChoice,
    /// The differences that count as equal.
    pub bounds: Bounds,
    /// The number of rows to compare, spread evenly over the source. `None` for all.
    pub rows: Option<NonZeroU64>,
    /// The number of requests in flight.
    pub concurrency: NonZeroUsize,
    /// A new file for every compared token.
    pub report: Option<PathBuf>,
}

/// Why logprobs cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum RecomputeError {
    /// The source cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The server does not have the model and the weights of the rows, or no row can be compared.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The server cannot be used.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The recomputation of a row failed in a way that concerns all rows.
    #[error("trial {trial_id}, branch {branch_index}, {tokens} token ids sent")]
    Row {
        /// The trial.
        trial_id: String,
        /// The row's `branch_index`.
        branch_index: i32,
        /// The length of the prompt.
        tokens: usize,
        /// The failure.
        #[source]
        source: ServerError,
    },
    /// The server loaded other weights meanwhile.
    #[error(
        "the server named its weights {before:?} at the start and {after:?} at the end, so the logprobs are of two policy \
         versions: check again while no weights are loaded, or give --recompute-any-version"
    )]
    WeightsChanged {
        /// The name at the start.
        before: String,
        /// The name at the end.
        after: String,
    },
    /// The report cannot be written.
    #[error(transparent)]
    Report(#[from] ReportFileError),
    /// The thread that reads the source failed.
    #[error("the source could not be read to its end")]
    Reader(#[from] JoinError),
}

/// A recomputation that the server is fit for. Nothing is sent yet.
#[derive(Debug)]
pub struct Recomputation {
    path: PathBuf,
    settings: RecomputeSettings,
    server: Server,
    plan: Plan,
    report: Option<ReportFile>,
}

impl Recomputation {
    /// Surveys the source at `path`, and asks the server for its models and the name of its weights.
    ///
    /// # Errors
    /// Fails if the source or the server cannot be read, if no token can be compared, if model or weights of the server
    /// are others than those of the rows without permission by the settings, and if the report cannot be created.
    pub async fn prepare(path: &Path, settings: RecomputeSettings) -> Result<Self, RecomputeError> {
        let server = Server::new(&settings.server, settings.api_key.clone())?;
        let facts = server.facts().await?;
        let source = path.to_owned();
        let survey = task::spawn_blocking(move || Survey::of(&source)).await??;
        let plan = survey.plan(facts, &settings)?;
        let report = settings.report.as_deref().map(ReportFile::create).transpose()?;
        Ok(Self { path: path.to_owned(), settings, server, plan, report })
    }

    /// Sends the rows and compares. Passes a line for each of the first rows that are beyond a bound or that the server
    /// refuses to the callback. The report appears at the end, with the rows in the order of the source.
    ///
    /// # Errors
    /// Fails if the server stops answering, does not answer with logprobs of prompts, or loads other weights, and if the
    /// report cannot be written.
    pub async fn run(mut self, mut tell: impl FnMut(&str)) -> Result<Recomputed, RecomputeError> {
        let progress = Progress::new(self.plan.rows);
        let mut report = self.report.take();
        let (sender, mut receiver) = mpsc::channel(self.settings.concurrency.get());
        let (path, plan) = (self.path.clone(), self.plan.clone());
        let reading = task::spawn_blocking(move || send_rows(&path, &plan, &sender));
        let mut answers = stream::poll_fn(|context| receiver.poll_recv(context))
            .map(|row: Comparable| async {
                let answered = self.server.logprobs(self.plan.model_of(&row), &row.token_ids).await;
                (row, answered)
            })
            .buffered(self.settings.concurrency.get());
        let mut comparison = Comparison::new(self.settings.bounds);
        let (mut refused, mut named) = (0, 0);
        while let Some((row, answered)) = answers.next().await {
            if let (Some(report), Ok(answered)) = (&mut report, &answered) {
                report.add(&self.line(&row, answered))?;
            }
            let line = match answered {
                Ok(Answered::Logprobs(logprobs)) => {
                    comparison.add(&row, &logprobs).map(|beyond| beyond.to_string())
                }
                Ok(Answered::Refused(message)) => {
                    refused += 1;
                    Some(refusal_of(&row, &message))
                }
                Err(source) => return Err(failed(&row, source)),
            };
            if let Some(line) = line.filter(|_| named < NAMED_ROWS) {
                named += 1;
                progress.suspended(|| tell(&line));
            }
            progress.row_is_done();
        }
        drop(answers);
        let beyond_context = reading.await??;
        self.has_same_weights().await?;
        report.map_or(Ok(()), ReportFile::keep)?;
        Ok(Recomputed::new(self.plan, comparison, beyond_context, refused, named))
    }

    /// Returns the line of the report.
    fn line(&self, row: &Comparable, answered: &Answered) -> RecomputedRow {
        let answer = match answered {
            Answered::Logprobs(logprobs) => Ok(logprobs.as_slice()),
            Answered::Refused(message) => Err(message.as_str()),
        };
        let weights = self.plan.server.weights.as_deref();
        RecomputedRow::new(row, answer, self.plan.model_of(row), weights, self.settings.bounds)
    }

    /// Asks for the name of the weights again, unless any version may be compared.
    async fn has_same_weights(&self) -> Result<(), RecomputeError> {
        let Some(before) = self.plan.server.weights.clone() else { return Ok(()) };
        if self.settings.policy == PolicyChoice::Any {
            return Ok(());
        }
        match self.server.weights().await? {
            Some(after) if after != before => Err(RecomputeError::WeightsChanged { before, after }),
            _ => Ok(()),
        }
    }
}

/// Reads the rows of the plan and sends them to the requests. Returns the tokens that the context of the server cannot
/// hold.
fn send_rows(path: &Path, plan: &Plan, sender: &mpsc::Sender<Comparable>) -> Result<LeftOut, SourceError> {
    let mut beyond_context = LeftOut::new();
    let mut eligible = 0;
    rows::each_row(path, |row| {
        let Some(mut row) = plan.comparable(&row) else { return true };
        let is_taken = plan.takes(eligible);
        eligible += 1;
        if !is_taken {
            return true;
        }
        if let Some(longest) = plan.longest_prompt(&row) {
            row.retain_prompt(longest, &mut beyond_context);
        }
        // A closed channel means that the comparison failed, and it returns its own error.
        row.tokens.is_empty() || sender.blocking_send(row).is_ok()
    })?;
    Ok(beyond_context)
}

fn refusal_of(row: &Comparable, message: &str) -> String {
    let Comparable { trial_id, branch_index, token_ids, .. } = row;
    let line = format!(
        "trial {trial_id}, branch {branch_index}: recomputed: the server refuses these {} token ids: {message}",
        token_ids.len()
    );
    line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn failed(row: &Comparable, source: ServerError) -> RecomputeError {
    RecomputeError::Row {
        trial_id: row.trial_id.clone(),
        branch_index: row.branch_index,
        tokens: row.token_ids.len(),
        source,
    }
}
#[cfg(test)]
mod tests;
