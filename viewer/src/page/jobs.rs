//! The list of jobs.

use maud::{Markup, html};

use super::format::{bytes, count, reward};
use super::layout;
use super::link::Links;
use crate::collection::Collection;
use crate::figures::job::TrialFigures;

pub(crate) fn page(links: &Links, collection: &Collection) -> Markup {
    let main = html! {
        h1 { "Jobs" }
        table.list {
            thead { tr {
                th scope="col" { "Job" } th scope="col" { "State" } th.number scope="col" { "Trials" }
                th.number scope="col" { "Mean reward" } th.number scope="col" { "Failures" }
                th.number scope="col" { "Size" } th scope="col" { "Path" }
            } }
            tbody { @for job in collection.jobs() {
                @let content = job.content();
                @let figures = TrialFigures::of(&content.trials);
                tr {
                    th scope="row" { a href=(links.job(job.name())) { (job.name()) } }
                    td { @if content.is_running { "running" } @else { "ended" } }
                    td.number { (count(figures.trials as u64)) }
                    td.number { (reward(figures.mean)) }
                    td.number { (count(figures.failures.values().sum::<usize>() as u64)) }
                    td.number { (bytes(content.bytes)) }
                    td.path { (job.path().display()) }
                }
            } }
        }
    };
    layout::page(links, "Jobs", &[("Jobs".to_owned(), None)], None, &main)
}
