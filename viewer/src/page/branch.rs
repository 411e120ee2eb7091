//! The page of a branch: its calls, its words and its exact tokens.

use maud::{Markup, html};
use rolltap_rollout::row::RolloutRow;

use super::format::{count, reward};
use super::link::Links;
use super::trial::{ones, path};
use super::{layout, prompts, recompute, tokens};
use crate::collection::{Job, TrialContent};
use crate::figures::prompts::PromptSource;
use crate::figures::recompute::Recomputed;
use crate::page::tokens::TokenTexts;

/// The colourings of tokens: the value in the page, and its name.
const COLOURS: [(&str, &str); 6] = [
    ("logprob", "logprob"),
    ("mask", "mask"),
    ("advantage", "advantage"),
    ("version", "policy version"),
    ("call", "call"),
    (DIFFERENCE, "difference from the recomputed logprob"),
];
/// The colouring of branches that were recomputed.
const DIFFERENCE: &str = "difference";

/// Returns the page of a branch. It has the tokens of one window from `from` on; scripts load the next windows.
pub(crate) fn page(
    links: &Links,
    job: &Job,
    trial: &TrialContent,
    index: usize,
    row: &RolloutRow,
    from: usize,
    texts: &TokenTexts<'_>,
) -> Markup {
    let title = format!("Branch {}", row.branch_index);
    let recomputed = Recomputed::of(trial, row);
    let main = html! {
        h1 { (title) }
        p.facts {
            (row.branch_cause) ", " (count(row.token_ids.len() as u64)) " tokens, of which "
            (count(ones(&row.sampled_mask))) " sampled and " (count(ones(&row.loss_mask))) " trained; reward "
            (reward(row.reward)) "; ends " (row.status)
        }
        (layout::problems(&trial.problems))
        (answers(links, job, trial, index, row))
        (prompts::rewritten(trial, row, texts))
        @if let Some(recomputed) = &recomputed { (recompute::section(links, job, trial, index, recomputed)) }
        h2 #tokens-title { "Tokens" }
        fieldset.colours {
            legend { "Colour by" }
            @for (value, name) in COLOURS.into_iter().filter(|(value, _)| *value != DIFFERENCE || recomputed.is_some()) {
                label { input type="radio" name="colour" value=(value) checked[value == "logprob"]; (name) }
            }
        }
        // Without a tokenizer the text of a token is its id.
        @if texts.are_words() { p { label { input #ids type="checkbox"; " Ids beside the texts" } } }
        (tokens::legend(recomputed.is_some()))
        @if from > 0 { p { a href={ (links.branch(job.name(), &trial.entry.id, index)) } { "From the first token" } } }
        div #tokens .tokens data-colour="logprob" role="group" aria-labelledby="tokens-title"
            data-advantage=(row.advantage.or(row.reward).map_or("", |number| if number > 0.0 { "above" } else { "below" })) {
            (tokens::window(trial, row, from, texts, |from| links.tokens(job.name(), &trial.entry.id, index, from)))
        }
        aside #token .token-facts aria-live="polite" { "Point at a token, or use ← and →." }
    };
    layout::page(links, &title, &path(links, job, trial, Some(&title)), None, &main)
}

/// Returns the calls of the branch, with links to their first tokens.
fn answers(links: &Links, job: &Job, trial: &TrialContent, index: usize, row: &RolloutRow) -> Markup {
    html! {
        h2 { "Calls" }
        table.list {
            thead { tr {
                th scope="col" { "Answer" } th scope="col" { "Role" } th.number scope="col" { "Prompt" }
                th.number scope="col" { "Sampled" } th scope="col" { "Finish" } th.number scope="col" { "Version" }
                th scope="col" { "Prompt made" }
                th scope="col" { "Sampling" } th scope="col" { "Words" }
            } }
            tbody { @for (place, span) in row.calls.iter().enumerate() {
                @let start = usize::try_from(span.start).unwrap_or_default();
                tr {
                    th scope="row" { a href=(links.token(job.name(), &trial.entry.id, index, start)) { "answer " (place + 1) } }
                    td { (span.role) }
                    td.number { (count(span.prompt_len.unsigned_abs())) }
                    td.number { (count((span.end - span.start).unsigned_abs())) }
                    td { (span.finish_reason.as_deref().unwrap_or_default()) }
                    td.number { (span.version) }
                    td { (prompts::source(PromptSource::of(trial, span).as_ref())) }
                    td {
                        @if let Some(temperature) = span.temperature { "temperature " (temperature) }
                        @if span.constrained { " " span.failure { "constrained" } }
                    }
                    td.answer { (words(trial, &span.call_id, span.choice_index)) }
                }
            } }
        }
    }
}

/// Returns the words of an answer, folded if they are long.
fn words(trial: &TrialContent, call: &str, choice: i32) -> Markup {
    let found = trial.calls.iter().find(|(of, _)| of.call_id.to_string() == call);
    let answers = found.and_then(|(_, conversation)| conversation.as_ref());
    let answer = answers.and_then(|conversation| {
        conversation.answers.iter().find(|(index, _)| i32::try_from(*index) == Ok(choice))
    });
    let Some((_, answer)) = answer else { return html! {} };
    let pretty = serde_json::from_str::<serde_json::Value>(answer)
        .and_then(|message| serde_json::to_string_pretty(&message))
        .unwrap_or_else(|_| answer.to_string());
    html! { details { summary { "show" } pre tabindex="0" { (pretty) } } }
}
