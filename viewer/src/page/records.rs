//! The page of a trial as a trainer sees it: the masks and the record of one export format.

use maud::{Markup, html};
use rolltap_rollout::export::choices::Named;
use rolltap_rollout::export::exporter::Trial;
use rolltap_rollout::export::format::{Format, MessageUse};

use super::format::{bytes, count, decimal, reward};
use super::layout;
use super::link::Links;
use super::tokens::{self, TokenTexts, WINDOW};
use super::trial::path;
use crate::collection::{Job, TrialContent};
use crate::figures::exported::{Exported, NotExported};
use crate::figures::masks::{MaskRun, MaskedBranch};
use crate::figures::pretty::{Pretty, pretty};

/// The maximum number of bytes that a record takes on the page.
const RECORD: usize = 100_000;

/// The place of a page of records.
pub(crate) struct RecordPlace {
    pub(crate) format: Format,
    /// The index of the branch whose tokens are shown.
    pub(crate) branch: usize,
    /// The index of the first token.
    pub(crate) from: usize,
}

/// Returns the links from a trial to its records. A bundle has no records, because there are too many formats.
pub(crate) fn links(links: &Links, job: &Job, trial: &TrialContent) -> Markup {
    html! {
        @if links.is_live() {
            h2 #trainers { "As the trainer sees it" }
            ul.formats aria-labelledby="trainers" { @for format in Format::ALL {
                li { a href=(links.record(job.name(), &trial.entry.id, *format, 0)) title=(format.about().trim_ascii()) { (format.name()) } }
            } }
        }
    }
}

/// Returns the page of a trial in one format. `exported` is the result of an export of the trial's group.
pub(crate) fn page(
    links: &Links,
    job: &Job,
    trial: &TrialContent,
    place: &RecordPlace,
    exported: &Result<Exported<'_>, NotExported>,
    texts: &TokenTexts<'_>,
) -> Markup {
    let title = format!("As {} sees it", place.format.name());
    let chosen = exported.as_ref().map(|exported| &exported.trial);
    let main = html! {
        h1 { (title) }
        p.facts { (place.format.about().trim_ascii()) ". The defaults of " code { "rolltap export" }
            " decide, for the trials of the same group." }
        (layout::problems(&trial.problems))
        @match exported {
            Ok(exported) => (facts(&exported.trial)),
            Err(reason) => p.note { "No record: " (reason) "." },
        }
        (branches(links, job, trial, place, chosen))
        (tokens_of(links, job, trial, place, chosen, texts))
        @if let Ok(exported) = exported { (record(place.format, exported)) }
    };
    layout::page(links, &title, &path(links, job, trial, Some(&title)), None, &main)
}

/// Returns the numbers that the format gets with the trial.
fn facts(trial: &Trial) -> Markup {
    html! {
        dl.numbers {
            div { dt { "Reward to train on" } dd { (reward(trial.reward)) } }
            @if let Some(number) = trial.stand_in { div { dt { "Stand-in for the reward" } dd { (decimal(number, 4)) } } }
            @if let Some(number) = trial.advantage { div { dt { "Advantage" } dd { (decimal(number, 4)) } } }
            @if let Some(group) = trial.group { div { dt { "Trials of the group" } dd { (count(group.trials as u64)) } } }
            div { dt { "Branches left out" } dd { (count(trial.left_out as u64)) } }
        }
    }
}

fn branches(
    links: &Links,
    job: &Job,
    content: &TrialContent,
    place: &RecordPlace,
    trial: Result<&Trial, &NotExported>,
) -> Markup {
    html! {
        @if content.rows.len() > 1 {
            h2 { "Branches" }
            table.list {
                thead { tr {
                    th.number scope="col" { "Branch" } th.number scope="col" { "Tokens" }
                    th.number scope="col" { "Trained" } th scope="col" { "In the export" }
                } }
                tbody { @for (index, row) in content.rows.iter().enumerate() {
                    @let branch = MaskedBranch::of(content, trial, row);
                    tr aria-current=[(index == place.branch).then_some("true")] {
                        th.number scope="row" {
                            a href=(links.record(job.name(), &content.entry.id, place.format, index)) { (row.branch_index) }
                        }
                        td.number { (count(row.token_ids.len() as u64)) }
                        td.number { (count(branch.trained() as u64)) }
                        td { @if branch.is_taken() { "yes" } @else if trial.is_ok() { "no: --on-fork longest takes another branch" } @else { "no" } }
                    }
                } }
            }
        }
    }
}

fn tokens_of(
    links: &Links,
    job: &Job,
    content: &TrialContent,
    place: &RecordPlace,
    trial: Result<&Trial, &NotExported>,
    texts: &TokenTexts<'_>,
) -> Markup {
    let Some(row) = content.rows.get(place.branch) else { return html! {} };
    html! {
        h2 #tokens-title { "Tokens of branch " (row.branch_index) }
        @if place.format.messages() == MessageUse::Required {
            p { "This format has the words of the calls, and its trainer makes tokens of them again. These are the captured \
                tokens, with the masks that decide which answers it trains." }
        }
        p.legend aria-hidden="true" { span.swatch.trained { "trained" } " " s.swatch { "masked" } " with the reason in brackets" }
        div #tokens .tokens.bounded data-colour="mask" role="group" tabindex="0" aria-labelledby="tokens-title" {
            (window(links, job, content, place, trial, texts))
        }
        aside #token .token-facts aria-live="polite" { "Point at a token, or use ← and →." }
    }
}

/// Returns the tokens of one window, those that are not trained struck through with the reason.
pub(crate) fn window(
    links: &Links,
    job: &Job,
    content: &TrialContent,
    place: &RecordPlace,
    trial: Result<&Trial, &NotExported>,
    texts: &TokenTexts<'_>,
) -> Markup {
    let Some(row) = content.rows.get(place.branch) else { return html! {} };
    let end = place.from.saturating_add(WINDOW).min(row.token_ids.len());
    let address = links.record_tokens(job.name(), &content.entry.id, place.format, place.branch, end);
    html! {
        @for run in MaskedBranch::of(content, trial, row).runs(place.from..end) {
            @let tokens = html! { @for at in run.tokens.clone() { (tokens::token(row, run.is_sampled, at, None, texts)) } };
            (run_of(&run, &tokens))
        }
        @if end < row.token_ids.len() {
            a.more href=(address) data-next=(address) { "Tokens from " (end) " on" }
        }
    }
}

fn run_of(run: &MaskRun, tokens: &Markup) -> Markup {
    let call = run.call.map(|call| call + 1);
    html! {
        @match &run.masked {
            None => span.run.trained data-kind="trained" data-call=[call] { (tokens) },
            Some(why) => {
                small.reason { "[" (why) "] " }
                s class={ "run " (if run.is_sampled { "masked" } else { "prompt" }) } data-kind="masked" data-call=[call]
                    data-reason=(why) { (tokens) }
            }
        }
    }
}

fn record(format: Format, exported: &Exported<'_>) -> Markup {
    let record = match exported.record() {
        Ok(record) => record,
        Err(reason) => return html! { h2 { "Record" } p.note { "No record: " (reason) "." } },
    };
    html! {
        h2 { "Record" }
        @if format.has_record_per_group() { p { "A record of this format is made of all trials of the group." } }
        @if format == Format::Parquet { p { "A Parquet file has a row per branch. Its columns follow as JSON." } }
        (content(&record.bytes))
        @if !record.omissions.is_empty() {
            h2 { "Not in the record" }
            ul { @for omission in &record.omissions { li { (count(omission.count)) " " (omission.what) } } }
        }
    }
}

/// Returns the beginning of a record as text.
fn content(record: &[u8]) -> Markup {
    let Ok(text) = std::str::from_utf8(record) else {
        return html! { p { "This format is binary: the record has " (bytes(record.len() as u64)) "." } };
    };
    if text.is_empty() {
        return html! { p { "The format writes nothing for this trial." } };
    }
    let Pretty { text, is_cut } = pretty(text, RECORD);
    html! {
        p.facts { (bytes(record.len() as u64)) @if is_cut { ", of which only the beginning follows" } }
        pre tabindex="0" { (text) }
    }
}
