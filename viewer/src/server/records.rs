//! The handlers of the records of a trial, as the formats of an export write them.

use axum::extract::{Path, Query};
use maud::Markup;
use rolltap_rollout::export::choices::Named;
use rolltap_rollout::export::format::Format;
use serde::Deserialize;

use super::Viewer;
use super::pages::{Answer, Missing, Shared, reading, trial_of};
use crate::collection::{Job, JobContent, TrialContent};
use crate::figures::exported::{Exported, NotExported};
use crate::page;
use crate::page::link::Links;
use crate::page::records::RecordPlace;
use crate::page::tokens::TokenTexts;

/// The place in the branches of a record.
#[derive(Debug, Deserialize)]
pub(super) struct BranchPlace {
    #[serde(default)]
    branch: usize,
    /// The index of the first token of a window.
    #[serde(default)]
    from: usize,
}

/// The job, the trial and the format of a record.
type RecordPath = Path<(String, String, String)>;

pub(super) async fn record(viewer: Shared, path: RecordPath, Query(place): Query<BranchPlace>) -> Answer {
    reading(viewer, move |viewer| shown(viewer, &path, &place, page::records::page)).await
}

pub(super) async fn record_tokens(
    viewer: Shared,
    path: RecordPath,
    Query(place): Query<BranchPlace>,
) -> Answer {
    reading(viewer, move |viewer| {
        shown(viewer, &path, &place, |links, job, trial, place, exported, texts| {
            let chosen = exported.as_ref().map(|exported| &exported.trial);
            page::records::window(links, job, trial, place, chosen, texts)
        })
    })
    .await
}

/// Exports the group of a trial, and makes a page or a part of it from the result.
fn shown(
    viewer: &Viewer,
    Path((name, id, format)): &RecordPath,
    place: &BranchPlace,
    make: impl FnOnce(
        &Links,
        &Job,
        &TrialContent,
        &RecordPlace,
        &Result<Exported<'_>, NotExported>,
        &TokenTexts<'_>,
    ) -> Markup,
) -> Result<Markup, Missing> {
    let place = record_place(format, place)?;
    let job = viewer.job(name)?;
    let content = job.content();
    let trial = trial_of(&content, id)?;
    let group = group_of(&content, id);
    let exported = Exported::of(place.format, id, &group);
    let texts = TokenTexts(viewer.tokenizer.as_ref());
    Ok(make(&viewer.links(), job, &trial, &place, &exported, &texts))
}

fn record_place(format: &str, place: &BranchPlace) -> Result<RecordPlace, Missing> {
    let format =
        Format::named(format).ok_or_else(|| Missing::of(format!("there is no export format {format:?}")))?;
    Ok(RecordPlace { format, branch: place.branch, from: place.from })
}

/// Reads the trials of the group of a trial, or the trial alone if it has no group.
fn group_of(content: &JobContent, id: &str) -> Vec<TrialContent> {
    let Some(group) = content.entry(id).and_then(|entry| entry.group.as_deref()) else {
        return content.trial(id).into_iter().collect();
    };
    let mut trials = content.group(group);
    // An export reads trials in the order of the job.
    trials.sort_by_cached_key(|trial| content.trials.iter().position(|entry| entry.id == trial.entry.id));
    trials
}
