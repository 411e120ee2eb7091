//! `rolltap submit`

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{ArgGroup, Args};
use rolltap_orchestrator::admin_client::AdminClient;
use rolltap_proxy::Seconds;
use rolltap_proxy::api::{Submission, SubmissionState, Submit};
use rolltap_rollout::ids::SubmissionId;
use serde_json::{Map, Value};

use crate::connection_options::ServiceOptions;
use crate::option_values::{json_object, one_or_more};
use crate::submissions::line;
use crate::{Outcome, terminal};

/// Ask a running `rolltap serve` to sample groups
///
/// The answer means that the service has the submission on its disk. Without an idempotency key the command makes one,
/// so that it can repeat the request if the service restarts.
#[derive(Args)]
#[command(after_help = AFTER_HELP, group = ArgGroup::new("what").required(true).args(["task", "path", "dataset"]))]
pub(crate) struct Arguments {
    /// Sample this task, which the service was started with.
    #[arg(value_name = "TASK")]
    task: Option<String>,
    /// Sample the task in this directory of the service's host.
    #[arg(short, long, value_name = "DIR")]
    path: Option<PathBuf>,
    /// Sample all tasks of this dataset, which the service was started with. Each is a group.
    #[arg(short, long, value_name = "DATASET")]
    dataset: Option<String>,
    /// Run this agent of the service. [default: its only agent]
    #[arg(short, long, value_name = "AGENT")]
    agent: Option<String>,
    /// Run this many samples of each group. [default: the setting of the service]
    #[arg(short = 'k', long, value_name = "NUMBER", value_parser = one_or_more::<NonZeroU32>,
          allow_negative_numbers = true)]
    samples: Option<NonZeroU32>,
    /// Set these request keys in each call of each trial, as a JSON object.
    #[arg(long, value_name = "JSON", value_parser = json_object)]
    sampling: Option<Map<String, Value>>,
    /// Begin before submissions with a lower priority.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,
    /// Stop the submission this many seconds from now. Its groups close with the samples that ended by then.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    deadline: Option<Seconds>,
    /// Attach this JSON object to the submission and to its trials.
    #[arg(long, value_name = "JSON", value_parser = json_object)]
    metadata: Option<Map<String, Value>>,
    /// Return the earlier submission with this key instead of making another one. [default: a random key]
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Wait for the end of the submission. Ctrl-C ends the wait and not the submission.
    #[arg(long)]
    wait: bool,
    /// Print the submission as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    service: ServiceOptions,
}

const AFTER_HELP: &str = "\
Examples:
  rolltap submit hello-world -k 8
  rolltap submit --dataset my-tasks -k 8 --priority 1 --wait
  rolltap submit --path /srv/tasks/sort -k 4 --sampling '{\"temperature\": 0.7}' --json

`rolltap submissions` lists and cancels submissions.

Exit codes: 0 if the submission is accepted, and with --wait if all of its samples ended without a failure
that is not the agent's; 1 if not all did; 2 if it is refused.";

/// The time between two reads of a submission that is waited for.
const POLL: Duration = Duration::from_millis(500);

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    let submit = Submit {
        task: arguments.task,
        task_path: arguments.path,
        dataset: arguments.dataset,
        agent: arguments.agent,
        samples: arguments.samples,
        sampling: arguments.sampling.unwrap_or_default(),
        priority: arguments.priority,
        deadline: arguments.deadline,
        metadata: arguments.metadata.unwrap_or_default(),
        idempotency_key: arguments.idempotency_key.or_else(|| Some(SubmissionId::generate().to_string())),
    };
    let client = arguments.service.client()?;
    let mut submission = client.submit(&submit).await?;
    if arguments.wait {
        terminal::note(format!("{} is accepted", submission.id));
        submission = until_ended(&client, submission).await?;
    }
    if arguments.json {
        terminal::say(serde_json::to_string_pretty(&submission)?);
    } else {
        terminal::say(line(&submission));
    }
    Ok(if arguments.wait && !is_clean(&submission) { Outcome::Failed } else { Outcome::Done })
}

/// Reads the submission until it has ended, and prints a line at each change.
async fn until_ended(client: &AdminClient, mut submission: Submission) -> anyhow::Result<Submission> {
    while !submission.state.has_ended() {
        tokio::time::sleep(POLL).await;
        let now =
            client.submission(&submission.id).await.context("the submission goes on, but the wait ended")?;
        if line(&now) != line(&submission) && !now.state.has_ended() {
            terminal::note(line(&now));
        }
        submission = now;
    }
    Ok(submission)
}

fn is_clean(submission: &Submission) -> bool {
    submission.state == SubmissionState::Done
        && submission.groups.iter().all(|group| group.failures.is_empty())
}

fn seconds(text: &str) -> Result<Seconds, String> {
    let number: f64 = text.parse().map_err(|_| format!("{text:?} is no number of seconds"))?;
    Seconds::try_from(number).map_err(|error| error.to_string())
}
