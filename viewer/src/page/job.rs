//! The page of a job: its numbers, its tasks and its trials.

use std::collections::BTreeSet;

use maud::{Markup, html};

use rolltap_rollout::call::CallRole;

use super::format::{UNKNOWN, bytes, count, decimal, reward};
use super::link::Links;
use super::{chart, layout};
use crate::collection::{Job, JobContent, TrialEntry};
use crate::figures::histogram::histogram;
use crate::figures::job::{TrialFigures, by_task};
use crate::filter::{ANY_FAILURE, Filter};
use crate::search::Found;

/// The number of trials on a page. With 200 the list stays below 100 kB.
pub(crate) const TRIALS: usize = 200;

/// Returns the page of a job with the trials that the filter admits.
pub(crate) fn page(
    links: &Links,
    job: &Job,
    content: &JobContent,
    filter: &Filter,
    found: &Found<'_>,
) -> Markup {
    let admitted = &found.trials;
    let figures = TrialFigures::of(admitted.iter().copied());
    let mut problems = content.problems.clone();
    problems.extend(filter.problem());
    if found.unread > 0 {
        problems.push(format!(
            "the calls of {} trials were not searched, because that takes too long: narrow the filter",
            found.unread
        ));
    }
    let rewards = admitted.iter().filter(|trial| !trial.is_superseded).filter_map(|trial| trial.reward());
    let main = html! {
        h1 { (job.name()) }
        p.facts {
            @if content.is_running { strong.running { "running" } " · " }
            (bytes(content.bytes)) " in " span.path { (job.path().display()) }
        }
        (layout::problems(&problems))
        @if content.trials.is_empty() {
            p { "This job has no trials yet." }
        } @else {
            @if links.is_live() { (form(links, job, content, filter)) }
            (numbers(&figures))
            section.charts { (chart::histogram(&histogram(rewards))) (failures(&figures)) (causes(&figures)) }
            @if filter.is_empty() { (tasks(links, job, content)) }
            (trials(links, job, admitted, filter))
        }
    };
    let path = [("Jobs".to_owned(), Some(links.jobs())), (job.name().to_owned(), None)];
    // A search of calls at every change would take most of the server's time.
    let follows = links.changes(job.name()).filter(|_| !filter.needs_calls());
    layout::page(links, job.name(), &path, follows, &main)
}

/// Returns the form of the filter. It works without scripts.
fn form(links: &Links, job: &Job, content: &JobContent, filter: &Filter) -> Markup {
    let tasks: BTreeSet<&str> = content.trials.iter().map(|trial| trial.task.as_str()).collect();
    let causes: BTreeSet<&str> =
        content.trials.iter().flat_map(|trial| trial.causes.keys()).map(String::as_str).collect();
    let failures: BTreeSet<&str> = content.trials.iter().filter_map(TrialEntry::failure).collect();
    html! {
        form.filter role="search" action=(links.job(job.name())) {
            label { "Name " input #filter type="search" name="q" value=(filter.q); }
            label { "Words " input type="search" name="words" value=(filter.words); }
            (choice("Task", "task", &filter.task, tasks))
            @if !filter.group.is_empty() {
                label { "Group " input name="group" value=(filter.group); }
            }
            label { "Reward from " input.short name="min" inputmode="decimal" value=(filter.min); }
            label { "to " input.short name="max" inputmode="decimal" value=(filter.max); }
            (choice("Branch cause", "cause", &filter.cause, causes))
            (choice("Role", "role", &filter.role, CallRole::ALL.map(CallRole::as_str)))
            @if !failures.is_empty() {
                (choice("Failure", "failure", &filter.failure, std::iter::once(ANY_FAILURE).chain(failures)))
            }
            button { "Filter" }
            @if !filter.is_empty() { a href=(links.job(job.name())) { "Show all" } }
        }
    }
}

fn choice<'c>(label: &str, name: &str, chosen: &str, choices: impl IntoIterator<Item = &'c str>) -> Markup {
    html! {
        label { (label) " "
            select name=(name) {
                option value="" { "all" }
                @for choice in choices { option value=(choice) selected[choice == chosen] { (choice) } }
            }
        }
    }
}

fn numbers(figures: &TrialFigures) -> Markup {
    let known = |number: u64| if number == 0 { UNKNOWN.to_owned() } else { count(number) };
    html! {
        dl.numbers {
            div { dt { "Trials" } dd { (count(figures.trials as u64)) } }
            @if figures.open > 0 { div { dt { "Open" } dd { (count(figures.open as u64)) } } }
            @if figures.superseded > 0 { div { dt { "Superseded" } dd { (count(figures.superseded as u64)) } } }
            div { dt { "With reward" } dd { (count(figures.rewarded as u64)) } }
            div { dt { "Mean reward" } dd { (reward(figures.mean)) } }
            @for (k, chance) in &figures.pass_at_k { div { dt { "pass@" (k) } dd { (decimal(*chance, 3)) } } }
            div { dt { "Calls" } dd { (known(figures.calls)) } }
            @if figures.incomplete_calls > 0 {
                div { dt { "Incomplete calls" } dd { (count(figures.incomplete_calls)) } }
            }
            @if figures.retried > 0 { div { dt { "Retried samples" } dd { (count(figures.retried as u64)) } } }
            div { dt { "Sampled tokens" } dd { (known(figures.sampled_tokens)) } }
            @if let Some(rate) = figures.tokens_per_second {
                div { dt { "Tokens per second" } dd { (decimal(rate, 1)) } }
            }
            @if figures.suspicious > 0 { div { dt { "Suspicious" } dd { (count(figures.suspicious as u64)) } } }
        }
    }
}

fn failures(figures: &TrialFigures) -> Markup {
    html! {
        @if !figures.failures.is_empty() {
            table {
                caption { "Failures by cause" }
                @for (cause, trials) in &figures.failures {
                    tr { th scope="row" { (cause) } td.number { (count(*trials as u64)) } }
                }
            }
        }
    }
}

fn causes(figures: &TrialFigures) -> Markup {
    html! {
        @if !figures.causes.is_empty() {
            table {
                caption { "Branches by cause" }
                thead { tr { th scope="col" { "Cause" } th.number scope="col" { "Branches" }
                    th.number scope="col" { "Prefilled again" } } }
                tbody { @for (cause, cost) in &figures.causes { tr {
                    th scope="row" { (cause) }
                    td.number { (count(cost.branches)) } td.number { (count(cost.tokens)) }
                } } }
            }
        }
    }
}

fn tasks(links: &Links, job: &Job, content: &JobContent) -> Markup {
    let by_task = by_task(&content.trials);
    let ks: BTreeSet<usize> =
        by_task.values().flat_map(|figures| figures.pass_at_k.keys().copied()).collect();
    html! {
        @if by_task.len() > 1 {
            h2 { "Tasks" }
            table.list {
                thead { tr {
                    th scope="col" { "Task" } th.number scope="col" { "Trials" } th.number scope="col" { "Mean reward" }
                    @for k in &ks { th.number scope="col" { "pass@" (k) } }
                    th.number scope="col" { "Failures" } th.number scope="col" { "Sampled tokens" }
                } }
                tbody { @for (task, figures) in by_task.iter().take(TRIALS) {
                    @let filter = Filter { task: (*task).to_owned(), ..Filter::default() };
                    tr {
                        th scope="row" { @if links.is_live() { a href=(links.trials(job.name(), &filter)) { (task) } } @else { (task) } }
                        td.number { (count(figures.trials as u64)) }
                        td.number { (reward(figures.mean)) }
                        @for k in &ks {
                            td.number { (figures.pass_at_k.get(k).map_or_else(String::new, |chance| decimal(*chance, 3))) }
                        }
                        td.number { (count(figures.failures.values().sum::<usize>() as u64)) }
                        td.number { (count(figures.sampled_tokens)) }
                    }
                } }
            }
            @if by_task.len() > TRIALS { p { (count((by_task.len() - TRIALS) as u64)) " further tasks: use the filter." } }
        }
    }
}

fn trials(links: &Links, job: &Job, trials: &[&TrialEntry], filter: &Filter) -> Markup {
    let from = filter.page_index() * TRIALS;
    let shown = trials.iter().skip(from).take(TRIALS);
    html! {
        h2 { "Trials" }
        @if trials.is_empty() { p { "No trial matches the filter." } }
        @else {
            table.list {
                thead { tr {
                    th scope="col" { "Trial" } th scope="col" { "Task" } th scope="col" { "Group" }
                    th.number scope="col" { "Sample" } th.number scope="col" { "Reward" } th scope="col" { "State" }
                    th.number scope="col" { "Calls" } th.number scope="col" { "Branches" }
                    th.number scope="col" { "Tokens" }
                } }
                tbody { @for trial in shown { (row(links, job, trial)) } }
            }
            (pages(links, job, trials.len(), filter))
        }
    }
}

fn row(links: &Links, job: &Job, trial: &TrialEntry) -> Markup {
    let branches: u64 = trial.causes.values().map(|cost| cost.branches).sum();
    html! {
        tr.superseded[trial.is_superseded] {
            th scope="row" { a href=(links.trial(job.name(), &trial.id)) { (trial.id) } }
            td { (trial.task) }
            td { @if let Some(group) = &trial.group { a href=(links.group(job.name(), group)) { (group) } } }
            td.number { (trial.sample) @if trial.attempt > 0 { " (attempt " (trial.attempt) ")" } }
            td.number { (reward(trial.reward())) }
            td { (state(trial)) }
            td.number { (trial.calls.map_or_else(|| UNKNOWN.to_owned(), count)) }
            td.number { @if branches > 0 { (count(branches)) } @else { (UNKNOWN) } }
            td.number { (trial.sampled_tokens.map_or_else(|| UNKNOWN.to_owned(), count)) }
        }
    }
}

/// Returns the state of a trial in words, because a colour alone is not enough.
pub(super) fn state(trial: &TrialEntry) -> Markup {
    html! {
        @if trial.is_open { span.running { "running" } }
        @else if let Some(cause) = trial.failure() { span.failure { (cause) } }
        @else if trial.reward.is_none() { "no verdict" }
        @else { "done" }
        @if trial.is_superseded { ", superseded" }
        @if !trial.suspicious().is_empty() { ", " span.failure { "suspicious" } }
    }
}

fn pages(links: &Links, job: &Job, trials: usize, filter: &Filter) -> Markup {
    let (index, last) = (filter.page_index(), trials.saturating_sub(1) / TRIALS);
    let to =
        |page: usize| links.trials(job.name(), &Filter { page: (page + 1).to_string(), ..filter.clone() });
    html! {
        @if last > 0 {
            nav.pages aria-label="Pages" {
                @if index > 0 { a rel="prev" href=(to(index - 1)) { "Previous" } }
                span { "Page " (index + 1) " of " (last + 1) }
                @if index < last { a rel="next" href=(to(index + 1)) { "Next" } }
            }
        }
    }
}
