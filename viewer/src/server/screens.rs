//! The handlers of the screens of a trial's terminal.

use axum::extract::{Path, Query};
use maud::Markup;
use serde::Deserialize;

use super::Viewer;
use super::pages::{Answer, Missing, Shared, reading, trial_of};
use crate::collection::screens::Screens;
use crate::collection::{Job, TrialContent};
use crate::page;
use crate::page::link::Links;

/// The first screen of a window.
#[derive(Debug, Deserialize)]
pub(super) struct From {
    /// The index of the screen.
    #[serde(default)]
    from: usize,
}

pub(super) async fn page(viewer: Shared, Path((name, id)): Path<(String, String)>) -> Answer {
    reading(viewer, move |viewer| shown(viewer, &name, &id, page::screens::page)).await
}

pub(super) async fn window(
    viewer: Shared,
    Path((name, id)): Path<(String, String)>,
    Query(From { from }): Query<From>,
) -> Answer {
    reading(viewer, move |viewer| {
        shown(viewer, &name, &id, |links, job, trial, screens| {
            page::screens::window(links, job, trial, screens, from)
        })
    })
    .await
}

/// Reads the screens of a trial, and makes a page or a part of it from them.
fn shown(
    viewer: &Viewer,
    name: &str,
    id: &str,
    make: impl FnOnce(&Links, &Job, &TrialContent, &Screens) -> Markup,
) -> Result<Markup, Missing> {
    let job = viewer.job(name)?;
    let trial = trial_of(&job.content(), id)?;
    let missing = || Missing::of("the trial has no screens of a terminal");
    let screens = Screens::read(&trial.files.list()).ok_or_else(missing)?;
    Ok(make(&viewer.links(), job, &trial, &screens))
}
