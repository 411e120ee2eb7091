//! `rolltap export`

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use rolltap_orchestrator::export::{self, ExportFailure, ExportProgress, ExportSettings, Output};
use rolltap_rollout::export::choices::Named;
use rolltap_rollout::export::format::{Format, FormatOptions, MessageUse};
use rolltap_rollout::export::formats::preference::PairRules;
use rolltap_rollout::export::formats::prime_rl::PrimeRlOptions;
use rolltap_rollout::export::pipeline::advantage::Advantage;
use rolltap_rollout::export::pipeline::rules::{Comparison, Failed, OnFork, Rules, ShortGroups, Staleness};
use rolltap_rollout::ids::RewardVersion;
use rolltap_rollout::rollout::RewardRule;
use tokio_util::sync::CancellationToken;

use crate::objects::{self, Input};
use crate::option_values::{finite, one_or_more, reward_version};
use crate::terminal::StopSignals;
use crate::{Outcome, terminal};

/// Write rollouts in the format of a trainer
///
/// The command checks each row before it writes it, and the output appears whole or not at all. A summary has the
/// number of rows and fields that are left out or masked, or that the format cannot hold.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Read this job directory, data directory of a proxy, .jsonl or .parquet file of rollouts, or shard of a cluster in
    /// object storage (s3://BUCKET/PREFIX, file:///DIR).
    #[arg(value_name = "INPUT")]
    input: PathBuf,
    /// Write the format of this trainer.
    #[arg(short, long, value_name = "FORMAT", value_parser = named::<Format>())]
    format: Format,
    /// Write to this file, or to standard output for -.
    #[arg(short, long, value_name = "PATH")]
    output: PathBuf,
    /// Replace the output if it exists.
    #[arg(long)]
    force: bool,
    /// Add the messages and tools of each call to the rows, in formats jsonl and parquet.
    ///
    /// They come from the captures of the job or data directory. Each call repeats the history before it, so the size of
    /// a row grows with the square of its turns.
    #[arg(long)]
    messages: bool,
    /// Hide the progress of reading and writing.
    #[arg(short, long)]
    quiet: bool,

    /// Choose the branches to export of a trial with several. [default: the choice of the format]
    #[arg(long, value_name = "WHAT", value_parser = named::<OnFork>(), help_heading = WHICH)]
    on_fork: Option<OnFork>,
    /// Choose how to treat a trial without a reward, or with a reward that does not measure the agent. [default: drop if
    /// the trainer compares rewards in groups of any size, else mask]
    #[arg(long, value_name = "WHAT", value_parser = named::<Failed>(), help_heading = WHICH)]
    failed: Option<Failed>,
    /// Choose how to treat a group with fewer rewards than trials, for a trainer that finds groups by counting.
    /// [default: pad]
    #[arg(long, value_name = "WHAT", value_parser = named::<ShortGroups>(), help_heading = WHICH)]
    short_groups: Option<ShortGroups>,
    /// Export groups in which nothing is trained, masked, in a format whose trainer compares no rewards.
    #[arg(long, help_heading = WHICH)]
    untrained_groups: bool,
    /// Export groups whose trials are not all complete.
    #[arg(long, help_heading = WHICH)]
    open_groups: bool,
    /// Also export attempts that a later attempt supersedes.
    #[arg(long, help_heading = WHICH)]
    superseded: bool,
    /// Leave out trials with a reward below this number, in a format whose trainer compares no rewards.
    #[arg(long, value_name = "NUMBER", value_parser = finite, allow_negative_numbers = true, help_heading = WHICH)]
    min_reward: Option<f64>,
    /// Export only this many trials of each group, those with the highest rewards, in a format whose trainer compares no
    /// rewards.
    #[arg(long, value_name = "NUMBER", value_parser = one_or_more::<NonZeroUsize>, help_heading = WHICH)]
    best_of_group: Option<NonZeroUsize>,
    /// Leave out trials with a trained token that is older than this many policy versions.
    #[arg(long, value_name = "NUMBER", help_heading = WHICH)]
    max_staleness: Option<u32>,
    /// Count the age of tokens from this policy version. [default: the newest version in the input]
    #[arg(long, value_name = "VERSION", requires = "max_staleness", help_heading = WHICH)]
    policy_version: Option<i32>,

    /// Choose how to weigh the trials of a group against each other. [default: the choice of the format]
    #[arg(long, value_name = "RULE", value_parser = named::<Advantage>(), help_heading = WEIGHT)]
    advantage: Option<Advantage>,
    /// Make the number to train on by this rule, instead of the reward of the trial.
    ///
    /// The rule is the name of a reward of the verifier, `mean` or `sum` of all rewards, or a weighted sum like
    /// `correctness=0.8,style=0.2`.
    #[arg(long, value_name = "RULE", help_heading = WEIGHT)]
    reward: Option<RewardRule>,
    /// Take the rewards of this version, which `rolltap regrade` made. [default: the reward of each trial itself]
    #[arg(long, visible_alias = "rewards", value_name = "VERSION", value_parser = reward_version,
          help_heading = WEIGHT)]
    reward_version: Option<RewardVersion>,
    /// Train constrained calls, such as calls with structured output or a forced tool choice.
    ///
    /// Their logprobs are not those of the distribution that the tokens were sampled from.
    #[arg(long, help_heading = WEIGHT)]
    train_constrained: bool,

    /// Leave out groups whose highest and lowest reward differ by less than this number. [default: 0; equal rewards make
    /// no pair]
    #[arg(long, value_name = "NUMBER", value_parser = finite, help_heading = PREFERENCE)]
    min_margin: Option<f64>,
    /// Also make pairs of conversations that begin with different messages, with the prompt of the chosen one.
    ///
    /// The beginnings differ if they contain a name of the container, for example. A trainer may then learn that words
    /// which do not fit the prompt are worse.
    #[arg(long, help_heading = PREFERENCE)]
    differing_prompts: bool,

    /// Limit a micro-batch to this many tokens, the model.seq_len of the trainer. [default: 32768]
    #[arg(long, value_name = "NUMBER", help_heading = PRIME_RL)]
    seq_len: Option<NonZeroUsize>,
    /// Pad micro-batches to a multiple of this number. [default: 1]
    #[arg(long, value_name = "NUMBER", help_heading = PRIME_RL)]
    pad_to_multiple_of: Option<NonZeroUsize>,
    /// Give the samples this environment name in prime-rl. [default: rolltap]
    #[arg(long, value_name = "NAME", help_heading = PRIME_RL)]
    env_name: Option<String>,
    /// Assume this temperature for calls without a recorded temperature. [default: the export fails at such a call]
    #[arg(long, value_name = "NUMBER", help_heading = PRIME_RL)]
    assumed_temperature: Option<f64>,
}

const PREFERENCE: &str = "Format preference";
const PRIME_RL: &str = "Format prime-rl";
const WHICH: &str = "Selection of trials";
const WEIGHT: &str = "Training";

const AFTER_HELP: &str = "\
Examples:
  rolltap export jobs/2026-11-21__03-42-00 --format jsonl -o train.jsonl
  rolltap export rollouts.parquet --format verifiers --failed drop-group -o traces.jsonl
  rolltap export jobs/2026-11-21__03-42-00 --format prime-rl --seq-len 65536 -o rank_0.bin
  rolltap export /var/lib/rolltap --format jsonl --max-staleness 4 -o - | head -1
  rolltap export s3://captures/runs --format jsonl -o train.jsonl
  rolltap export jobs/2026-11-21__03-42-00 --format messages --best-of-group 1 --min-reward 0.5 -o sft.jsonl

docs/reference/export-formats.md describes the content, the limits and the defaults of each format.

Exit codes: 0 the output is complete; 1 there is no output, because a row breaks an invariant, the format
cannot hold it, or no trial is left; 2 wrong usage, before any read.";

/// Parses a choice by its name. The help lists each choice with its description.
fn named<T: Named + Send + Sync>() -> impl TypedValueParser<Value = T> {
    let values = T::ALL.iter().map(|choice| PossibleValue::new(choice.name()).help(choice.about()));
    PossibleValuesParser::new(values)
        .try_map(|name| T::named(&name).ok_or_else(|| format!("{name} is unknown")))
}

pub(crate) async fn run(mut arguments: Arguments) -> anyhow::Result<Outcome> {
    refuse_strays(&arguments)?;
    match objects::one(arguments.input).await? {
        Input::Local(input) => arguments.input = input,
        Input::Failed => return Ok(Outcome::Failed),
    }
    let quiet = arguments.quiet;
    let settings = settings(arguments);
    let cancelled = CancellationToken::new();
    let mut signals = StopSignals::listen()?;
    let exported = {
        let told = cancelled.clone();
        let export = move || export::export(&settings, &ExportProgress::for_stderr(quiet), &told);
        // Reading and writing block, so they have their own thread. It checks for a cancellation between trials.
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

/// Rejects options that have no effect on the chosen format.
fn refuse_strays(arguments: &Arguments) -> anyhow::Result<()> {
    let given = [
        ("--seq-len", arguments.seq_len.is_some(), Format::PrimeRl),
        ("--pad-to-multiple-of", arguments.pad_to_multiple_of.is_some(), Format::PrimeRl),
        ("--env-name", arguments.env_name.is_some(), Format::PrimeRl),
        ("--assumed-temperature", arguments.assumed_temperature.is_some(), Format::PrimeRl),
        ("--min-margin", arguments.min_margin.is_some(), Format::Preference),
        ("--differing-prompts", arguments.differing_prompts, Format::Preference),
    ];
    let stray = given.iter().find(|(_, is_given, format)| *is_given && arguments.format != *format);
    if let Some((option, _, format)) = stray {
        anyhow::bail!("{option} is of --format {}, and this is {}", format.name(), arguments.format.name());
    }
    if arguments.messages && arguments.format.messages() == MessageUse::Ignored {
        let with_messages = Format::ALL.iter().filter(|format| format.messages() != MessageUse::Ignored);
        anyhow::bail!(
            "--messages is for formats with messages ({}), and {} has no place for them; remove it",
            with_messages.map(|format| format.name()).collect::<Vec<_>>().join(", "),
            arguments.format.name()
        );
    }
    refuse_strays_of_groups(arguments)
}

fn refuse_strays_of_groups(arguments: &Arguments) -> anyhow::Result<()> {
    let name = arguments.format.name();
    let comparison = comparison(arguments);
    if arguments.short_groups.is_some() && !matches!(comparison, Comparison::Counted(_)) {
        anyhow::bail!(
            "--short-groups is for trainers that find the trials of a group by counting, and {name} exports groups of any \
             size; remove it"
        );
    }
    let by_reward = [
        ("--min-reward", arguments.min_reward.is_some()),
        ("--best-of-group", arguments.best_of_group.is_some()),
    ];
    if let Some((option, _)) = by_reward.iter().find(|(_, is_given)| *is_given) {
        if comparison != Comparison::Never || advantage(arguments) != Advantage::None {
            anyhow::bail!(
                "{option} is for exports without comparison of rewards, and this one of {name} compares them: without \
                 the trials of low rewards, the means of groups would be wrong; remove it"
            );
        }
        if arguments.format == Format::Preference {
            anyhow::bail!("{option} would leave out the rejected conversations; use --min-margin instead");
        }
    }
    if arguments.untrained_groups && comparison != Comparison::Never {
        anyhow::bail!(
            "--untrained-groups is for formats whose trainer compares no rewards, and the trainer of {name} would divide \
             by the 0 trained tokens of such a group; remove it, or export with --format jsonl"
        );
    }
    Ok(())
}

fn advantage(arguments: &Arguments) -> Advantage {
    arguments.advantage.unwrap_or(arguments.format.advantage())
}

fn comparison(arguments: &Arguments) -> Comparison {
    let short_groups = arguments.short_groups.unwrap_or(ShortGroups::Pad);
    arguments.format.comparison(advantage(arguments), short_groups)
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
    let (advantage, comparison) = (advantage(&arguments), comparison(&arguments));
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
        reward_version: arguments.reward_version,
        messages: arguments.messages,
        options: FormatOptions {
            prime_rl,
            preference: PairRules {
                min_margin: arguments.min_margin.unwrap_or_default(),
                differing_prompts: arguments.differing_prompts,
            },
            ..FormatOptions::default()
        },
        rules: Rules {
            on_fork: arguments.on_fork.unwrap_or(format.on_fork(advantage)),
            failed: arguments.failed.unwrap_or(format.failed()),
            advantage,
            comparison,
            open_groups: arguments.open_groups,
            untrained_groups: arguments.untrained_groups,
            superseded: arguments.superseded,
            train_constrained: arguments.train_constrained,
            reward: arguments.reward,
            staleness: staleness.map(|limit| Staleness { limit, policy_version }),
            min_reward: arguments.min_reward,
            best_of_group: arguments.best_of_group,
        },
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn an_export_without_options_follows_the_rules_of_its_format() {
        for format in Format::ALL {
            let line = ["export", "in.jsonl", "--format", format.name(), "--output", "-"];
            let settings = settings(Line::parse_from(line).arguments);
            assert_eq!(settings.rules, format.rules(), "{}", format.name());
            assert_eq!(settings.options, FormatOptions::default(), "{}", format.name());
        }
    }
}
