//! The page of a trial: its calls, its branches and its files.

use maud::{Markup, html};
use rolltap_rollout::call::{Call, Dialect};
use rolltap_rollout::row::RolloutRow;

use super::format::{bytes, count, decimal, duration, reward};
use super::job::state;
use super::layout;
use super::link::Links;
use super::timeline::{CALLS, timeline};
use super::tree::tree;
use crate::collection::screens::Screens;
use crate::collection::{Job, TextFile, TrialContent};
use crate::figures::timeline::{Bar, bars};

pub(crate) fn page(links: &Links, job: &Job, trial: &TrialContent) -> Markup {
    let entry = &trial.entry;
    let files = trial.files.list();
    let bars = bars(&trial.calls, &trial.notes, CALLS);
    let main = html! {
        h1 { (entry.id) }
        p.facts {
            "Task " strong { (entry.task) } ", sample " (entry.sample) ", attempt " (entry.attempt)
            @if let Some(agent) = &entry.agent { ", agent " strong { (agent) } }
            ": " (state(entry))
            @if let (Some(opened), Some(sealed)) = (entry.opened_at, entry.sealed_at) {
                ", after " (duration(opened, sealed))
            }
        }
        (layout::problems(&trial.problems))
        (rewards(trial))
        @if Screens::are_in(&files) {
            p { a href=(links.screens(job.name(), &entry.id)) { "Screens of the terminal, step by step" } }
        }
        @if !bars.is_empty() { (timeline(&bars, &trial.version_changes, &trial.pauses)) }
        (branches(links, job, trial))
        (super::records::links(links, job, trial))
        @if !bars.is_empty() { (calls(&bars, trial.calls.len())) }
        @if !files.is_empty() {
            h2 { "Files" }
            table.list {
                thead { tr { th scope="col" { "File" } th.number scope="col" { "Size" } } }
                tbody { @for file in &files { tr {
                    th scope="row" { a href=(links.file(job.name(), &entry.id, &file.name)) { (file.name) } }
                    td.number { (bytes(file.length)) }
                } } }
            }
        }
    };
    layout::page(links, &entry.id, &path(links, job, trial, None), links.changes(job.name()), &main)
}

/// Returns the page of one file of the trial.
pub(crate) fn file(links: &Links, job: &Job, trial: &TrialContent, name: &str, file: &TextFile) -> Markup {
    let main = html! {
        h1 { (name) }
        p.facts { (bytes(file.length)) @if file.skipped > 0 { ", of which the last " (bytes(file.length - file.skipped)) " follow" } }
        pre.file tabindex="0" { (file.text) }
    };
    layout::page(links, name, &path(links, job, trial, Some(name)), None, &main)
}

/// Returns the steps from the list of jobs to the trial, and to a part of it.
pub(super) fn path(links: &Links, job: &Job, trial: &TrialContent, part: Option<&str>) -> Vec<layout::Step> {
    let entry = &trial.entry;
    let mut path =
        vec![("Jobs".to_owned(), Some(links.jobs())), (job.name().to_owned(), Some(links.job(job.name())))];
    path.extend(entry.group.as_ref().map(|group| (group.clone(), Some(links.group(job.name(), group)))));
    let address = part.map(|_| links.trial(job.name(), &entry.id));
    path.push((entry.id.clone(), address));
    path.extend(part.map(|part| (part.to_owned(), None)));
    path
}

fn rewards(trial: &TrialContent) -> Markup {
    let Some(verdict) = &trial.entry.reward else { return html! {} };
    html! {
        dl.numbers {
            div { dt { "Reward" } dd { (reward(verdict.reward)) } }
            // An entry `reward` mostly is the reward itself.
            @for (name, value) in verdict.rewards.iter().filter(|(name, value)| *name != "reward" || Some(**value) != verdict.reward) { div { dt { (name) } dd { (decimal(*value, 4)) } } }
            @if !verdict.valid { div { dt { "Valid" } dd { "no" } } }
            @if let Some(cause) = &verdict.failure_cause { div { dt { "Failure" } dd { (cause) } } }
            @for reason in trial.entry.suspicious() { div { dt { "Suspicious" } dd { (reason) } } }
        }
    }
}

/// Returns the path of the dialect's API.
fn dialect(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::ChatCompletions => "chat/completions",
        Dialect::Completions => "completions",
        Dialect::Responses => "responses",
        Dialect::Messages => "messages",
        Dialect::GenerateContent => "generateContent",
        Dialect::Returned => "recorded by the agent",
    }
}

fn branches(links: &Links, job: &Job, trial: &TrialContent) -> Markup {
    html! {
        h2 { "Branches" }
        @if trial.rows.is_empty() { p { "No token of this trial was sampled, so it has no branches." } }
        @else {
            (tree(links, job, trial))
            table.list {
                thead { tr {
                    th.number scope="col" { "Branch" } th scope="col" { "Starts because of" }
                    th.number scope="col" { "Calls" } th.number scope="col" { "Tokens" }
                    th.number scope="col" { "Sampled" } th.number scope="col" { "Trained" }
                    th.number scope="col" { "Prefilled again" } th scope="col" { "Ends" } th scope="col" { "Model" }
                } }
                tbody { @for (index, row) in trial.rows.iter().enumerate() { tr {
                    th.number scope="row" { a href=(links.branch(job.name(), &trial.entry.id, index)) { (row.branch_index) } }
                    td { (row.branch_cause) @if let Some(of) = origin(&trial.rows, index) { ", after branch " (of) } }
                    td.number { (row.calls.len()) }
                    td.number { (count(row.token_ids.len() as u64)) }
                    td.number { (count(ones(&row.sampled_mask))) }
                    td.number { (count(ones(&row.loss_mask))) }
                    td.number { (row.branch_reprefilled.map_or_else(String::new, |tokens| count(tokens.unsigned_abs()))) }
                    td { (row.status) @if let Some(reason) = &row.stop_reason { " (" (reason) ")" } (super::recompute::mark(trial, row)) }
                    td { (row.model) }
                } } }
            }
        }
    }
}

/// Returns the branch whose calls this branch shares up to its start. `None` if the branch shares no call.
fn origin(rows: &[RolloutRow], index: usize) -> Option<i32> {
    let parent = rows.get(index)?.calls.iter().find_map(|span| span.parent_call_id.as_ref())?;
    let before = rows.iter().take(index);
    before
        .filter(|row| row.calls.iter().any(|span| span.call_id == *parent))
        .map(|row| row.branch_index)
        .next()
}

pub(super) fn ones(mask: &[u8]) -> u64 {
    mask.iter().filter(|bit| **bit == 1).count() as u64
}

/// Returns the table of these calls. `all` is the number of calls of the trial.
fn calls(bars: &[Bar<'_>], all: usize) -> Markup {
    html! {
        h2 { "Calls" }
        table.list {
            thead { tr {
                th scope="col" { "Call" } th scope="col" { "Dialect" } th scope="col" { "Role" } th scope="col" { "Status" }
                th.number scope="col" { "Prompt" } th.number scope="col" { "Sampled" } th scope="col" { "First token" }
                th scope="col" { "Whole" } th.number scope="col" { "Version" } th scope="col" { "Upstream" }
                th scope="col" { "Answer" }
            } }
            tbody { @for Bar { call, conversation, repeats, replayed_at } in bars { tr {
                th scope="row" { code { (call.call_id) } }
                td { (dialect(call.dialect)) }
                td { (call.role.as_str()) }
                td { (call.status.as_str()) @if let Some(error) = &call.error { ": " (error) }
                    @for flaw in &call.flaws { " " span.failure { (flaw.as_str()) } }
                    @if let Some(repeated) = repeats {
                        ", repeats " code { (repeated.call_id) } " (" (repeated.status.as_str()) ")"
                    }
                    @if let Some(at) = replayed_at {
                        ", its recorded answer was given to a retry after " (duration(call.ended_at, *at))
                    }
                }
                td.number { (count(call.prompt_token_ids.len() as u64)) }
                td.number { (count(call.choices.iter().map(|choice| choice.token_ids.len() as u64).sum::<u64>())) }
                td { @if let Some(first) = call.first_token_at { (duration(call.started_at, first)) } }
                td { (duration(call.started_at, call.ended_at)) }
                td.number { (versions(call)) }
                td { (call.upstream.as_deref().unwrap_or_default()) }
                td.answer { @if let Some(conversation) = conversation {
                    @for (_, answer) in &conversation.answers { (excerpt(answer)) }
                } }
            } } }
        }
        @if all > bars.len() { p { (count((all - bars.len()) as u64)) " further calls are not listed." } }
    }
}

/// Returns the policy versions that sampled the answers of a call.
fn versions(call: &Call) -> String {
    let later = call.choices.iter().flat_map(|choice| &choice.versions);
    let later = later.map(|span| format!(", {} from token {} on", span.version, span.start));
    format!("{}{}", call.policy_version, later.collect::<String>())
}

/// Returns the beginning of an answer's text.
fn excerpt(answer: &str) -> String {
    let message: serde_json::Value = serde_json::from_str(answer).unwrap_or_default();
    let text = message.get("content").and_then(|content| content.as_str()).unwrap_or_default();
    let tools = message.get("tool_calls").and_then(|calls| calls.as_array()).into_iter().flatten();
    let tools =
        tools.filter_map(|call| call.pointer("/function/name")?.as_str().map(|name| format!("[{name}]")));
    let whole = std::iter::once(text.to_owned()).chain(tools).collect::<Vec<_>>().join(" ");
    match whole.char_indices().nth(120) {
        Some((end, _)) => format!("{}…", whole.get(..end).unwrap_or_default()),
        None => whole,
    }
}
