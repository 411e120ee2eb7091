//! `rolltap export`

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use rolltap_orchestrator::export::{self, ExportFailure, ExportProgress, ExportSettings, Output};
use rolltap_rollout::export::choices::Named;
use rolltap_rollout::export::format::{Format, FormatOptions};
use rolltap_rollout::export::formats::prime_rl::PrimeRlOptions;
use rolltap_rollout::export::pipeline::advantage::Advantage;
use rolltap_rollout::export::pipeline::rules::{Failed, OnFork, Rules, Staleness};
use tokio_util::sync::CancellationToken;

use crate::terminal::StopSignals;
use crate::{Outcome, terminal};

/// Write rollouts in the form that a trainer reads
///
/// Every row is checked before it is written, and the output appears whole or not at all. What is left out, masked, or
/// has no place in the format is told by name and count.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// A job directory, a proxy's data directory, or a .jsonl or .parquet file of rollouts.
    #[arg(value_name = "INPUT")]
    input: PathBuf,
    /// Which trainer reads it.
    #[arg(short, long, value_name = "FORMAT", value_parser = named::<Format>())]
    format: Format,
    /// Where to; - is standard output.
    #[arg(short, long, value_name = "PATH")]
    output: PathBuf,
    /// Replace the output if it is there.
    #[arg(long)]
    force: bool,
    /// No progress while trials are read and written.
    #[arg(short, long)]
    quiet: bool,

    /// What becomes of a trial of several branches. [default: what suits the format]
    #[arg(long, value_name = "WHAT", value_parser = named::<OnFork>(), help_heading = WHICH)]
    on_fork: Option<OnFork>,
    /// What becomes of a trial without a reward, or whose reward does not measure the agent.
    #[arg(long, value_name = "WHAT", value_parser = named::<Failed>(), default_value = Failed::Mask.name(),
          help_heading = WHICH)]
    failed: Failed,
    /// Take groups of which trials are still missing.
    #[arg(long, help_heading = WHICH)]
    open_groups: bool,
    /// Take attempts too that a later one supersedes.
    #[arg(long, help_heading = WHICH)]
    superseded: bool,
    /// Leave out trials that would train a token sampled more than so many policy versions ago.
    #[arg(long, value_name = "NUMBER", help_heading = WHICH)]
    max_staleness: Option<u32>,
    /// The policy version that age is counted from. [default: the newest of the input]
    #[arg(long, value_name = "VERSION", requires = "max_staleness", help_heading = WHICH)]
    policy_version: Option<i32>,

    /// How the trials of a group are weighed against each other. [default: what suits the format]
    #[arg(long, value_name = "RULE", value_parser = named::<Advantage>(), help_heading = WEIGHT)]
    advantage: Option<Advantage>,
    /// Train on this one of the verifier's rewards instead of the trial's reward.
    #[arg(long, value_name = "NAME", help_heading = WEIGHT)]
    reward: Option<String>,
    /// Train calls with structured output, a forced tool choice or the like, whose logprobs are not those of the
    /// distribution sampled from.
    #[arg(long, help_heading = WEIGHT)]
    train_constrained: bool,

    /// Tokens of a micro-batch at most: the trainer's model.seq_len. [default: 32768]
    #[arg(long, value_name = "NUMBER", help_heading = PRIME_RL)]
    seq_len: Option<NonZeroUsize>,
    /// Fill micro-batches up to a multiple of this. [default: 1]
    #[arg(long, value_name = "NUMBER", help_heading = PRIME_RL)]
    pad_to_multiple_of: Option<NonZeroUsize>,
    /// The name under which prime-rl tells of these samples. [default: rolltap]
    #[arg(long, value_name = "NAME", help_heading = PRIME_RL)]
    env_name: Option<String>,
    /// The temperature of calls of which nobody recorded one. [default: such calls are refused]
    #[arg(long, value_name = "NUMBER", help_heading = PRIME_RL)]
    assumed_temperature: Option<f64>,
}

const PRIME_RL: &str = "Of prime-rl";
const WHICH: &str = "Which trials";
const WEIGHT: &str = "What is trained";

const AFTER_HELP: &str = "\
Examples:
  rolltap export jobs/2026-11-21__03-42-00 --format jsonl -o train.jsonl
  rolltap export rollouts.parquet --format verifiers --failed drop-group -o traces.jsonl
  rolltap export jobs/2026-11-21__03-42-00 --format prime-rl --seq-len 65536 -o rank_0.bin
  rolltap export /var/lib/rolltap --format jsonl --max-staleness 4 -o - | head -1

docs/reference/export-formats.md has what each format holds, what it cannot hold, and its defaults.

Exit codes: 0 written; 1 refused, and nothing written: a row breaks an invariant, the format cannot
hold it, or no trial is left; 2 wrong usage, before anything was read.";

/// A choice by name, each with its line of help.
fn named<T: Named + Send + Sync>() -> impl TypedValueParser<Value = T> {
    let values = T::ALL.iter().map(|choice| PossibleValue::new(choice.name()).help(choice.about()));
    PossibleValuesParser::new(values)
        .try_map(|name| T::named(&name).ok_or_else(|| format!("{name} is unknown")))
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    refuse_strays(&arguments)?;
    let quiet = arguments.quiet;
    let settings = settings(arguments);
    let cancelled = CancellationToken::new();
    let mut signals = StopSignals::listen()?;
    let exported = {
        let told = cancelled.clone();
        let export = move || export::export(&settings, &ExportProgress::for_stderr(quiet), &told);
        let mut exporting = tokio::task::spawn_blocking(export);
        tokio::select! {
            exported = &mut exporting => exported,
            () = signals.next() => {
                cancelled.cancel();
                exporting.await
            }
        }
    };
    match exported.context("the export broke off")? {
        Ok(report) => {
            terminal::note(report);
            Ok(Outcome::Done)
        }
        Err(failure) => failed(failure),
    }
}

fn failed(failure: ExportFailure) -> anyhow::Result<Outcome> {
    if failure.is_usage() {
        return Err(failure.into());
    }
    terminal::report(&failure.into());
    Ok(Outcome::Failed)
}

/// Given to another format, these would change nothing, which nobody means.
fn refuse_strays(arguments: &Arguments) -> anyhow::Result<()> {
    let given = [
        ("--seq-len", arguments.seq_len.is_some()),
        ("--pad-to-multiple-of", arguments.pad_to_multiple_of.is_some()),
        ("--env-name", arguments.env_name.is_some()),
        ("--assumed-temperature", arguments.assumed_temperature.is_some()),
    ];
    match given.iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) if arguments.format != Format::PrimeRl => {
            anyhow::bail!("{option} is of --format prime-rl, and this is {}", arguments.format.name())
        }
        _ => Ok(()),
    }
}

fn prime_rl(arguments: &Arguments) -> PrimeRlOptions {
    let default = PrimeRlOptions::default();
    PrimeRlOptions {
        seq_len: arguments.seq_len.map_or(default.seq_len, NonZeroUsize::get),
        pad_to_multiple_of: arguments
            .pad_to_multiple_of
            .map_or(default.pad_to_multiple_of, NonZeroUsize::get),
        env_name: arguments.env_name.clone().unwrap_or(default.env_name),
        assumed_temperature: arguments.assumed_temperature,
    }
}

fn settings(arguments: Arguments) -> ExportSettings {
    let prime_rl = prime_rl(&arguments);
    let format = arguments.format;
    let staleness = arguments.max_staleness;
    let policy_version = arguments.policy_version;
    ExportSettings {
        input: arguments.input,
        output: if arguments.output == Path::new("-") {
            Output::Stdout
        } else {
            Output::File { path: arguments.output, replaces: arguments.force }
        },
        format,
        options: FormatOptions { prime_rl },
        rules: Rules {
            on_fork: arguments.on_fork.unwrap_or(format.on_fork()),
            failed: arguments.failed,
            advantage: arguments.advantage.unwrap_or(format.advantage()),
            open_groups: arguments.open_groups,
            superseded: arguments.superseded,
            train_constrained: arguments.train_constrained,
            reward: arguments.reward,
            staleness: staleness.map(|limit| Staleness { limit, policy_version }),
        },
    }
}
