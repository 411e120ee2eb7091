//! `rolltap check`

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

use clap::Args;
use rolltap_orchestrator::check::recompute::{
    PolicyChoice, Recomputation, RecomputeError, RecomputeSettings, Recomputed,
};
use rolltap_orchestrator::check::{self, Checked};
use rolltap_orchestrator::common::words::counted;
use rolltap_orchestrator::source::SourceError;
use rolltap_proxy::Address;
use rolltap_rollout::check::recomputation::Bounds;
use rolltap_rollout::ids::RewardVersion;

use crate::objects::{self, Input};
use crate::option_values::reward_version;
use crate::{Outcome, terminal};

/// Check all invariants of rollouts
///
/// In a job directory, the command checks both rollout files against the captured calls and against each other. In a
/// data directory of a proxy, it checks the rollouts of the sealed trials, and likewise in the object storage of a cluster.
/// A file is a rollouts.jsonl or rollouts.parquet. The output has a line per breach. With --recompute, a vLLM recomputes the captured logprobs.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Check this job directory, data directory of a proxy, .jsonl or .parquet file of rollouts, or place of a cluster in
    /// object storage (s3://BUCKET/PREFIX, file:///DIR), with all of its shards. PLACE/shard-N is one shard.
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Check the rollouts with the rewards of this version, which `rolltap regrade` made. [default: the reward of each
    /// trial itself]
    #[arg(long, visible_alias = "rewards", value_name = "VERSION", value_parser = reward_version)]
    reward_version: Option<RewardVersion>,
    /// Report token ids that are not below this number. A row with the vocabulary size of its model has that limit too.
    #[arg(long, value_name = "NUMBER")]
    vocab_size: Option<u32>,

    /// Compare the captured logprobs with those that the vLLM at this URL, with or without /v1, computes for the ids.
    ///
    /// The output has the mean and the largest difference and two estimates of the KL divergence per policy version, in
    /// nats, and a line for each row beyond a bound. The server must serve the model of the rows, with the weights of
    /// their policy version. vLLM names its weights only with VLLM_SERVER_DEV_MODE=1.
    #[arg(long, value_name = "URL", help_heading = RECOMPUTATION)]
    recompute: Option<Address>,
    /// Send this API key to the server (vLLM's --api-key).
    #[arg(long, env = "ROLLTAP_RECOMPUTE_API_KEY", value_name = "KEY", hide_env_values = true,
          help_heading = RECOMPUTATION)]
    recompute_api_key: Option<String>,
    /// Recompute all rows by this served model. [default: the model that sampled each row]
    #[arg(long, value_name = "NAME", requires = "recompute", help_heading = RECOMPUTATION)]
    recompute_model: Option<String>,
    /// Compare only the tokens of this policy version, by its label or, without a label, its number. [default: the only
    /// version of the rows]
    #[arg(long, value_name = "LABEL", requires = "recompute", conflicts_with = "recompute_any_version",
          help_heading = RECOMPUTATION)]
    recompute_version: Option<String>,
    /// Compare the tokens of all policy versions, whatever the weights of the server are.
    #[arg(long, requires = "recompute", help_heading = RECOMPUTATION)]
    recompute_any_version: bool,
    /// Name rows with a token whose logprobs differ by more than this, in nats.
    ///
    /// In bfloat16, differences of some tenths may occur for equal weights. In float32, they are far below 0.001.
    #[arg(long, value_name = "NATS", default_value_t = 1.0, value_parser = bound, requires = "recompute",
          help_heading = RECOMPUTATION)]
    recompute_bound: f64,
    /// Name rows whose logprobs differ by more than this on average, in nats.
    #[arg(long, value_name = "NATS", default_value_t = 0.1, value_parser = bound, requires = "recompute",
          help_heading = RECOMPUTATION)]
    recompute_mean_bound: f64,
    /// Recompute only this many rows, spread evenly over the input. [default: all]
    #[arg(long, value_name = "NUMBER", requires = "recompute", help_heading = RECOMPUTATION)]
    recompute_rows: Option<NonZeroU64>,
    /// Write both logprobs of every compared token to this new file, a JSON line per row that was sent
    /// to the server.
    ///
    /// `rolltap view` shows the differences on the pages of branches. It finds the file as recompute.jsonl in the
    /// directory of the job. The file appears when all rows are compared.
    #[arg(long, value_name = "FILE", requires = "recompute", help_heading = RECOMPUTATION)]
    recompute_report: Option<PathBuf>,
    /// Send this many requests at the same time.
    #[arg(long, value_name = "NUMBER", default_value = "8", requires = "recompute", help_heading = RECOMPUTATION)]
    recompute_concurrency: NonZeroUsize,
}

const RECOMPUTATION: &str = "Recomputation";

const AFTER_HELP: &str = "\
Examples:
  rolltap check jobs/2026-11-21__03-42-00
  rolltap check rollouts.parquet --vocab-size 151936
  rolltap check s3://captures/runs
  rolltap check jobs/2026-11-21__03-42-00 --recompute http://127.0.0.1:8000 --recompute-version 17
  rolltap check jobs/NAME --recompute http://127.0.0.1:8000 --recompute-report jobs/NAME/recompute.jsonl

Exit codes: 0 there is no breach, and no row is beyond a bound; 1 there are breaches or rows beyond a
bound, or the server failed; 2 there is nothing to check, or the server has another model or other weights.";

/// Parses a difference of logprobs.
fn bound(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(bound) if bound >= 0.0 => Ok(bound),
        _ => Err("expected a number of nats, at least 0".to_owned()),
    }
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    let Some(settings) = settings(&arguments) else {
        return match objects::all(vec![arguments.path.clone()]).await? {
            Input::Local(paths) => check_all(&paths, &arguments, None).await,
            Input::Failed => Ok(Outcome::Failed),
        };
    };
    let path = match objects::one(arguments.path.clone()).await? {
        Input::Local(path) => path,
        Input::Failed => return Ok(Outcome::Failed),
    };
    // An unfit server is refused before the invariants are checked, which takes a while in large jobs.
    let recomputation = Recomputation::prepare(&path, settings).await?;
    check_all(&[path], &arguments, Some(recomputation)).await
}

/// Checks the input, which is several directories for a place with several shards.
async fn check_all(
    paths: &[PathBuf],
    arguments: &Arguments,
    recomputation: Option<Recomputation>,
) -> anyhow::Result<Outcome> {
    let mut checked = Checked::default();
    let mut empty = None;
    for path in paths {
        let say = |breach: &str| terminal::say(breach);
        match check::check(path, arguments.reward_version.as_ref(), arguments.vocab_size, say) {
            Ok(Checked { rows, breaches }) => {
                checked.rows += rows;
                checked.breaches += breaches;
            }
            // A shard may have no trial yet.
            Err(error @ SourceError::Nothing(_)) => empty = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
    if let Some(error) = empty.filter(|_| checked.rows == 0) {
        return Err(error.into());
    }
    let recomputed = match recomputation {
        Some(recomputation) => Some(Box::pin(recomputation.run(|line| terminal::say(line))).await),
        None => None,
    };
    let is_within = tell(recomputed);
    terminal::note(format_args!(
        "{} checked, {}",
        counted(checked.rows, "row"),
        counted(checked.breaches, "breach")
    ));
    Ok(if checked.breaches == 0 && is_within { Outcome::Done } else { Outcome::Failed })
}

/// Prints the result of a recomputation. Returns whether it found no difference.
fn tell(recomputed: Option<Result<Recomputed, RecomputeError>>) -> bool {
    match recomputed {
        None => true,
        Some(Ok(recomputed)) => {
            terminal::say(&recomputed);
            let (rows, beyond, refused) = (recomputed.all().rows, recomputed.beyond(), recomputed.refused());
            terminal::note(format_args!(
                "{rows} rows recomputed, {beyond} beyond a bound, {refused} refused by the server"
            ));
            recomputed.is_within()
        }
        Some(Err(error)) => {
            terminal::report(&error.into());
            false
        }
    }
}

fn settings(arguments: &Arguments) -> Option<RecomputeSettings> {
    let policy = match &arguments.recompute_version {
        Some(version) => PolicyChoice::Only(version.clone()),
        None if arguments.recompute_any_version => PolicyChoice::Any,
        None => PolicyChoice::Same,
    };
    Some(RecomputeSettings {
        server: arguments.recompute.clone()?,
        api_key: arguments.recompute_api_key.clone(),
        model: arguments.recompute_model.clone(),
        policy,
        bounds: Bounds { token: arguments.recompute_bound, mean: arguments.recompute_mean_bound },
        rows: arguments.recompute_rows,
        concurrency: arguments.recompute_concurrency,
        report: arguments.recompute_report.clone(),
    })
}
