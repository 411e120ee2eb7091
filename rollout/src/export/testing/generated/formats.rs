//! The table of formats in the documentation of exports.

use crate::export::choices::Named;
use crate::export::format::Format;

/// Markdown rows of all formats, with what a line of the file is and what the format has no place for.
pub(super) fn table() -> String {
    let mut table = "| `--format` | content | a line is | forks | advantage | failed | cannot represent |\n|---|---|---|---|---|---|---|\n"
        .to_owned();
    for format in Format::ALL {
        let (line, lacks) = facts(*format);
        let advantage = format.advantage();
        let (forks, failed) = (format.on_fork(advantage).name(), format.failed().name());
        let row = format!(
            "| `{}` | {} | {line} | `{forks}` | `{}` | `{failed}` | {lacks} |",
            format.name(),
            format.about(),
            advantage.name(),
        );
        table += &row.replace("|  |", "| |");
        table.push('\n');
    }
    table
}

fn facts(format: Format) -> (&'static str, &'static str) {
    match format {
        Format::Jsonl | Format::Parquet => ("a branch", ""),
        Format::Messages => {
            ("a branch", "tokens, logprobs; which answers are not trained; forks of shared answers")
        }
        Format::Preference => (
            "a group",
            "tokens, logprobs; trials between the best and the worst; groups with equal rewards; forks (refused)",
        ),
        Format::Labels => ("a branch", "logprobs, versions, advantage; branches without a trained token"),
        Format::Verifiers => ("a trial", "messages; versions within a call"),
        Format::PrimeRl => ("(micro-batches)", "reward, group, versions; tokens beyond `--seq-len`"),
        Format::Tinker => ("a branch", "reward, group, versions"),
        Format::Skyrl => ("a trial", "rewards by name, versions"),
        Format::Trl => ("a branch", "all versions of a branch except the oldest"),
        Format::Verl => ("a trial", "the version of each token"),
        Format::Slime | Format::Miles => ("a branch", "the version of each token"),
        Format::Openrlhf => ("a trial", "forks (refused), rewards by name, versions"),
        Format::Areal => {
            ("a trial", "rewards by name; the reward, or with `--advantage none` forks (refused)")
        }
        Format::NemoRl => (
            "a trial",
            "forks (refused), rewards by name, versions; a group whose prompts differ; two groups whose prompts are the \
             same",
        ),
        Format::Rllm => ("a trial", "rewards by name; trials without a trained token"),
        Format::AgentLightning => ("a trial", "trials without a trained token"),
        Format::Art => ("a trial", "the version of each token; trials without a reward"),
        Format::Roll => (
            "a branch",
            "rewards by name, versions; forks without `--advantage` (refused); trials without a reward",
        ),
        Format::PipelineRl => ("a call", "with `--advantage`, the reward outside `metadata`"),
        Format::Torchforge => ("a call", "trials without a trained token; that calls of a trial weigh once"),
        Format::Harbor => ("a branch", "logprobs, advantage, group, versions"),
        Format::HarborDetails => ("a trial", "advantage, group; calls that are not trained"),
        Format::Atif => ("a trial", "logprobs of tokens that are not trained"),
        Format::Atropos => ("a group", "versions; several branches without advantages (refused)"),
    }
}
