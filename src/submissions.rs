//! `rolltap submissions`

use std::collections::BTreeMap;

use clap::Args;
use rolltap_orchestrator::admin_client::AdminClient;
use rolltap_proxy::api::{Submission, SubmissionState, SubmittedGroup};
use rolltap_rollout::ids::SubmissionId;

use crate::connection_options::ServiceOptions;
use crate::{Outcome, terminal};

/// List or cancel the submissions of a running `rolltap serve`
///
/// Each line has the name, the state, the samples that ended of all samples, and the groups.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Show this submission only.
    #[arg(value_name = "SUBMISSION", value_parser = |text: &str| SubmissionId::new(text))]
    id: Option<SubmissionId>,
    /// Leave out submissions that have ended.
    #[arg(long, conflicts_with = "id")]
    active: bool,
    /// Cancel the submission. Its running trials are stopped, and its groups close with the samples that had ended.
    #[arg(long, requires = "id")]
    cancel: bool,
    /// Cancel all submissions that were made while this policy version was current.
    #[arg(long, value_name = "VERSION", conflicts_with_all = ["id", "active", "cancel"])]
    cancel_version: Option<i32>,
    /// Print the submissions as JSON, one per line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    service: ServiceOptions,
}

const AFTER_HELP: &str = "\
Examples:
  rolltap submissions --active
  rolltap submissions 019ab0c4-5f6a-7d01-9c3e-2f4b7a1d9e55 --json
  rolltap submissions 019ab0c4-5f6a-7d01-9c3e-2f4b7a1d9e55 --cancel
  rolltap submissions --cancel-version 3";

/// The submissions per request.
const PAGE: usize = 1000;

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    let Arguments { id, active, cancel, cancel_version, json, service } = arguments;
    let client = service.client()?;
    let shown = match (id, cancel_version) {
        (Some(id), _) if cancel => vec![client.cancel_submission(&id).await?],
        (Some(id), _) => vec![client.submission(&id).await?],
        (None, Some(version)) => client.cancel_submissions(version).await?,
        (None, None) => return all(&client, active, json).await,
    };
    show(&shown, json)?;
    Ok(Outcome::Done)
}

/// Prints all submissions, a page at a time.
async fn all(client: &AdminClient, active: bool, json: bool) -> anyhow::Result<Outcome> {
    let mut after = None;
    loop {
        let page = client.submissions(after.as_ref(), active, PAGE).await?;
        show(&page, json)?;
        match page.last() {
            Some(last) if page.len() == PAGE => after = Some(last.id.clone()),
            _ => return Ok(Outcome::Done),
        }
    }
}

fn show(submissions: &[Submission], json: bool) -> anyhow::Result<()> {
    for submission in submissions {
        if json {
            terminal::say(serde_json::to_string(submission)?);
        } else {
            terminal::say(line(submission));
        }
    }
    Ok(())
}

/// Describes a submission in one line.
pub(crate) fn line(submission: &Submission) -> String {
    let Submission { id, groups, .. } = submission;
    let sum = |of: fn(&SubmittedGroup) -> u32| groups.iter().map(of).map(u64::from).sum::<u64>();
    let (ended, all) = (sum(|group| group.ended), sum(|group| group.samples));
    let state = state(submission.state);
    let mut failures: BTreeMap<&str, u32> = BTreeMap::new();
    for (cause, count) in groups.iter().flat_map(|group| &group.failures) {
        *failures.entry(cause).or_default() += count;
    }
    let failures: String = failures.iter().map(|(cause, count)| format!(", {count} {cause}")).collect();
    let of = match groups.as_slice() {
        [only] => only.group_id.to_string(),
        several => format!("{} groups", several.len()),
    };
    let error = submission.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
    format!("{id} {state} {ended}/{all}{failures} {of}{error}")
}

fn state(state: SubmissionState) -> &'static str {
    match state {
        SubmissionState::Queued => "queued",
        SubmissionState::Running => "running",
        SubmissionState::Stopping => "stopping",
        SubmissionState::Done => "done",
        SubmissionState::Cancelled => "cancelled",
        SubmissionState::Expired => "expired",
        SubmissionState::Failed => "failed",
    }
}
