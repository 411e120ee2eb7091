//! The handlers of the pages: each reads what its page shows, and nothing else.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, stream};
use http::{HeaderValue, StatusCode, Uri, header};
use maud::Markup;
use rolltap_rollout::row::RolloutRow;
use serde::Deserialize;

use super::Viewer;
use crate::asset::Asset;
use crate::collection::{Job, JobContent, TrialContent};
use crate::filter::Filter;
use crate::page;
use crate::page::link::Links;
use crate::page::tokens::{TokenTexts, WINDOW};
use crate::search::search;

/// The time between two looks at the files of a job.
const INTERVAL: Duration = Duration::from_secs(1);

pub(super) type Shared = State<Arc<Viewer>>;
pub(super) type Answer = Result<Html, ErrorPage>;

/// A page of this server.
pub(super) struct Html(Markup);

impl IntoResponse for Html {
    fn into_response(self) -> Response {
        let headers =
            [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CACHE_CONTROL, "no-store")];
        (headers, self.0.into_string()).into_response()
    }
}

/// The reason why a page does not exist, or cannot be made.
pub(super) struct Missing {
    status: StatusCode,
    text: String,
}

impl Missing {
    pub(super) fn of(text: impl Into<String>) -> Self {
        Self { status: StatusCode::NOT_FOUND, text: text.into() }
    }
}

/// The page that shows why another page is missing.
pub(super) struct ErrorPage {
    links: Links,
    missing: Missing,
}

impl IntoResponse for ErrorPage {
    fn into_response(self) -> Response {
        let Missing { status, text } = self.missing;
        let title = status.canonical_reason().unwrap_or("Error");
        (status, Html(page::message::page(&self.links, title, &text))).into_response()
    }
}

impl Viewer {
    pub(super) fn links(&self) -> Links {
        Links::Live { base: self.base }
    }

    fn error(&self, missing: Missing) -> ErrorPage {
        ErrorPage { links: self.links(), missing }
    }

    pub(super) fn job(&self, name: &str) -> Result<&Job, Missing> {
        self.collection.job(name).ok_or_else(|| Missing::of(format!("there is no job {name:?}")))
    }
}

/// Runs `make` on a thread for blocking work, because it reads files.
pub(super) async fn reading(
    State(viewer): Shared,
    make: impl FnOnce(&Viewer) -> Result<Markup, Missing> + Send + 'static,
) -> Answer {
    // The permit stays with the work, which continues if the client leaves. The semaphore is never closed.
    let permit = Arc::clone(&viewer.readers).acquire_owned().await;
    let of = Arc::clone(&viewer);
    let made = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        make(&of)
    })
    .await;
    let failed = |error| Missing {
        status: StatusCode::INTERNAL_SERVER_ERROR,
        text: format!("the page cannot be made: {error}"),
    };
    made.map_err(failed).flatten().map(Html).map_err(|missing| viewer.error(missing))
}

pub(super) fn trial_of(content: &JobContent, id: &str) -> Result<TrialContent, Missing> {
    content.trial(id).ok_or_else(|| Missing::of(format!("the job has no trial {id:?}")))
}

fn row_of(trial: &TrialContent, index: usize) -> Result<&RolloutRow, Missing> {
    trial.rows.get(index).ok_or_else(|| Missing::of(format!("the trial has no branch {index}")))
}

pub(super) async fn jobs(viewer: Shared) -> Answer {
    reading(viewer, |viewer| Ok(page::jobs::page(&viewer.links(), &viewer.collection))).await
}

pub(super) async fn job(
    viewer: Shared,
    Path(name): Path<String>,
    filter: Result<Query<Filter>, QueryRejection>,
) -> Answer {
    reading(viewer, move |viewer| {
        let Query(filter) = filter.map_err(|error| Missing {
            status: StatusCode::BAD_REQUEST,
            text: format!("the filter in the address cannot be read: {}", error.body_text()),
        })?;
        let job = viewer.job(&name)?;
        let content = job.content();
        let found = search(&content, &filter);
        Ok(page::job::page(&viewer.links(), job, &content, &filter, &found))
    })
    .await
}

pub(super) async fn group(viewer: Shared, Path((name, group)): Path<(String, String)>) -> Answer {
    reading(viewer, move |viewer| {
        let job = viewer.job(&name)?;
        let content = job.content();
        let samples = content.group(&group);
        if samples.is_empty() {
            return Err(Missing::of(format!("the job has no group {group:?}")));
        }
        Ok(page::group::page(&viewer.links(), job, &group, &samples))
    })
    .await
}

pub(super) async fn trial(viewer: Shared, Path((name, id)): Path<(String, String)>) -> Answer {
    reading(viewer, move |viewer| {
        let job = viewer.job(&name)?;
        Ok(page::trial::page(&viewer.links(), job, &trial_of(&job.content(), &id)?))
    })
    .await
}

pub(super) async fn file(viewer: Shared, Path((name, id, file)): Path<(String, String, String)>) -> Answer {
    reading(viewer, move |viewer| {
        let job = viewer.job(&name)?;
        let trial = trial_of(&job.content(), &id)?;
        let missing = || Missing::of(format!("the trial has no file {file:?}"));
        let read = trial.files.find(&file).and_then(|file| file.read()).ok_or_else(missing)?;
        Ok(page::trial::file(&viewer.links(), job, &trial, &file, &read))
    })
    .await
}

/// The place in a branch.
#[derive(Debug, Deserialize)]
pub(super) struct Place {
    /// The index of the first token of a window.
    #[serde(default)]
    from: usize,
    /// The index of a token. The window begins shortly before it.
    at: Option<usize>,
}

pub(super) async fn branch(
    viewer: Shared,
    Path((name, id, index)): Path<(String, String, usize)>,
    Query(place): Query<Place>,
) -> Answer {
    reading(viewer, move |viewer| {
        let job = viewer.job(&name)?;
        let trial = trial_of(&job.content(), &id)?;
        let row = row_of(&trial, index)?;
        let from = place.at.map_or(place.from, |at| at.saturating_sub(WINDOW / 4));
        let texts = TokenTexts(viewer.tokenizer.as_ref());
        Ok(page::branch::page(&viewer.links(), job, &trial, index, row, from, &texts))
    })
    .await
}

pub(super) async fn tokens(
    viewer: Shared,
    Path((name, id, index)): Path<(String, String, usize)>,
    Query(place): Query<Place>,
) -> Answer {
    reading(viewer, move |viewer| {
        let job = viewer.job(&name)?;
        let trial = trial_of(&job.content(), &id)?;
        let row = row_of(&trial, index)?;
        let texts = TokenTexts(viewer.tokenizer.as_ref());
        let address = |from| viewer.links().tokens(job.name(), &id, index, from);
        Ok(page::tokens::window(&trial, row, place.from, &texts, address))
    })
    .await
}

/// Sends an event `change` at once, and each time the files of the job change or its process ends.
pub(super) async fn changes(
    State(viewer): Shared,
    Path(name): Path<String>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ErrorPage> {
    viewer.job(&name).map_err(|missing| viewer.error(missing))?;
    // The first look sends an event too: the files may have changed since the page was made.
    let looks = stream::unfold((viewer, name, None), |(viewer, name, known)| async move {
        if known.is_some() {
            tokio::time::sleep(INTERVAL).await;
        }
        let of = (Arc::clone(&viewer), name.clone());
        let progress = tokio::task::spawn_blocking(move || of.0.collection.job(&of.1).map(Job::progress));
        let progress = Some(progress.await.ok().flatten()?);
        // Browsers ignore an event without data.
        let changed = (progress != known).then(|| Ok(Event::default().event("change").data("files")));
        Some((changed, (viewer, name, progress)))
    });
    Ok(Sse::new(looks.filter_map(std::future::ready)).keep_alive(KeepAlive::default()))
}

pub(super) async fn asset(State(viewer): Shared, address: Uri) -> Response {
    let Some(asset) = Asset::at(address.path()) else {
        return viewer.error(Missing::of("there is no such file")).into_response();
    };
    // The address has a hash of the content, so the content never changes.
    let cached = HeaderValue::from_static("public, max-age=31536000, immutable");
    (
        [(header::CONTENT_TYPE, HeaderValue::from_static(asset.media)), (header::CACHE_CONTROL, cached)],
        asset.text,
    )
        .into_response()
}

pub(super) async fn no_such_page(State(viewer): Shared, address: Uri) -> ErrorPage {
    viewer.error(Missing::of(format!("there is no page {}", address.path())))
}
