//! The page of a group: its samples side by side.

use maud::{Markup, html};
use rolltap_rollout::export::choices::Named;
use rolltap_rollout::export::pipeline::advantage::Advantage;
use rolltap_rollout::row::RolloutRow;

use super::format::{count, decimal, reward};
use super::job::state;
use super::layout;
use super::link::Links;
use crate::collection::{Job, TrialContent};
use crate::figures::alignment::{Divergence, divergence};

/// The rules whose advantages are shown.
const RULES: [Advantage; 3] = [Advantage::Mean, Advantage::Grpo, Advantage::Rloo];

/// Returns the page of a group. `samples` has the trials in order of sample and attempt.
pub(crate) fn page(links: &Links, job: &Job, group: &str, samples: &[TrialContent]) -> Markup {
    let counting: Vec<&TrialContent> = samples
        .iter()
        .filter(|sample| !sample.entry.is_superseded && sample.entry.reward().is_some())
        .collect();
    let rewards: Vec<f64> = counting.iter().filter_map(|sample| sample.entry.reward()).collect();
    let advantages: Vec<Option<Vec<f64>>> = RULES.iter().map(|rule| rule.of(&rewards)).collect();
    let has_variance = rewards.windows(2).any(|pair| matches!(pair, [left, right] if left != right));
    let first = samples.iter().find(|sample| !sample.rows.is_empty());
    let problems: Vec<String> = samples.iter().flat_map(|sample| sample.problems.clone()).collect();
    let main = html! {
        h1 { (group) }
        (layout::problems(&problems))
        @if !has_variance && !rewards.is_empty() {
            p.note { "All rewards of this group are equal, so every advantage is 0 and it trains nothing." }
        }
        table.list {
            thead { tr {
                th.number scope="col" { "Sample" } th scope="col" { "Trial" } th.number scope="col" { "Reward" }
                @for rule in RULES { th.number scope="col" { "Advantage (" (rule.name()) ")" } }
                th scope="col" { "State" } th.number scope="col" { "Branches" } th.number scope="col" { "Tokens" }
                th scope="col" { "Parts from the first sample" }
            } }
            tbody { @for sample in samples {
                @let place = counting.iter().position(|counted| counted.entry.id == sample.entry.id);
                tr.superseded[sample.entry.is_superseded] {
                    td.number { (sample.entry.sample) }
                    th scope="row" { a href=(links.trial(job.name(), &sample.entry.id)) { (sample.entry.id) } }
                    td.number { (reward(sample.entry.reward())) }
                    @for of_rule in &advantages {
                        td.number {
                            @if let Some(advantage) = place.and_then(|place| of_rule.as_ref()?.get(place)) {
                                (decimal(*advantage, 4))
                            }
                        }
                    }
                    td { (state(&sample.entry)) }
                    td.number { (count(sample.rows.len() as u64)) }
                    td.number { (count(tokens(sample) as u64)) }
                    td { (parting(links, job, first, sample)) }
                }
            } }
        }
    };
    let path = [
        ("Jobs".to_owned(), Some(links.jobs())),
        (job.name().to_owned(), Some(links.job(job.name()))),
        (group.to_owned(), None),
    ];
    layout::page(links, group, &path, links.changes(job.name()), &main)
}

/// Returns the number of tokens of the first branch.
fn tokens(sample: &TrialContent) -> usize {
    sample.rows.first().map_or(0, |row| row.token_ids.len())
}

/// Returns where the first branch of a sample parts from that of the first sample, with both tokens and logprobs.
fn parting(links: &Links, job: &Job, first: Option<&TrialContent>, sample: &TrialContent) -> Markup {
    let (Some(first), Some(row)) = (first, sample.rows.first()) else { return html! {} };
    let Some(reference) = first.rows.first() else { return html! {} };
    if first.entry.id == sample.entry.id {
        return html! { "this is the first" };
    }
    let left = (reference.token_ids.as_slice(), reference.logprobs.as_slice());
    let Some(Divergence { at, left, right }) = divergence(left, (&row.token_ids, &row.logprobs)) else {
        return html! { "nowhere: all tokens are equal" };
    };
    let token = |token: Option<(i32, f32)>, row: &RolloutRow| match token {
        Some((id, logprob)) if row.sampled_mask.get(at) == Some(&1) => {
            format!("{id} ({})", decimal(f64::from(logprob), 3))
        }
        Some((id, _)) => format!("{id} (prompt)"),
        None => "the end".to_owned(),
    };
    html! {
        a.parting href=(links.token(job.name(), &sample.entry.id, 0, at)) { "token " (count(at as u64)) }
        ": " (token(left, reference)) " there, " (token(right, row)) " here"
    }
}
