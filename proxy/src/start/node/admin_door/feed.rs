//! The feeds of all shards as one: lines in the order in which their trials became complete, and a group in one piece.

use std::io;
use std::num::NonZeroU64;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::{self, FuturesUnordered};
use http::{StatusCode, Uri, header};

use super::cursor::ClusterCursor;
use super::shard_feed::{FeedLine, ShardLines};
use super::{AdminDoor, Refusal, WholeRequest};
use crate::admin_plane::error::AdminError;

/// The query of a reader, taken apart.
struct Reading {
    request: WholeRequest,
    /// The members that all shards get as they are.
    same: Vec<(String, String)>,
    cursor: ClusterCursor,
    /// The time to wait for the first line, as the reader gave it.
    wait: Option<String>,
    limit: Option<NonZeroU64>,
}

/// The feed of one shard during a reading.
struct ShardFeed {
    shard: u32,
    lines: ShardLines,
    /// The next line. `None` at the end.
    head: Option<FeedLine>,
}

/// The feeds of all shards during a reading.
struct Merged {
    admin: AdminDoor,
    reading: Reading,
    feeds: Vec<ShardFeed>,
    left: Option<u64>,
}

impl AdminDoor {
    /// Answers a reading of the feed with the lines of all shards.
    pub(super) async fn feed(&self, request: Request) -> Result<Response, Refusal> {
        let reading = self.reading(request)?;
        let mut feeds = self.feeds(&reading).await?;
        if feeds.iter().all(|feed| feed.head.is_none())
            && let Some(wait) = &reading.wait
        {
            feeds = self.first_feed(&reading, wait).await?;
        }
        let left = reading.limit.map(NonZeroU64::get);
        let merged = Merged { admin: self.clone(), reading, feeds, left };
        // The status is sent already when a shard fails. The answer then breaks off without its end, so the client notices.
        let lines = stream::try_unfold(merged, |mut merged| async {
            let line = merged.next_line().await;
            let line =
                line.inspect_err(|error| tracing::warn!(%error, "a reading of the feed breaks off"))?;
            Ok::<_, io::Error>(line.map(|line| (line, merged)))
        });
        Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response())
    }

    fn reading(&self, request: Request) -> Result<Reading, Refusal> {
        let invalid = |message: String| Refusal::from(AdminError::invalid(message));
        let (parts, _) = request.into_parts();
        let query = parts.uri.query().unwrap_or_default();
        let mut same: Vec<(String, String)> = serde_urlencoded::from_str(query)
            .map_err(|error| invalid(format!("the query cannot be read: {error}")))?;
        let mut take = |name: &str| {
            let place = same.iter().position(|(given, _)| given == name)?;
            Some(same.remove(place).1)
        };
        let (after, wait, limit) = (take("after"), take("wait"), take("limit"));
        let count = self.count();
        let cursor = after.map_or(Ok(ClusterCursor::begin(count)), |text| ClusterCursor::parse(&text, count));
        let limit: Option<Result<NonZeroU64, _>> = limit.map(|text| text.parse());
        let limit = limit.transpose().map_err(|error| invalid(format!("limit: {error}")))?;
        let cursor = cursor.map_err(|error| invalid(error.to_string()))?;
        Ok(Reading { request: WholeRequest { parts, body: Bytes::new() }, same, cursor, wait, limit })
    }

    /// Reads the first line of each shard.
    async fn feeds(&self, reading: &Reading) -> Result<Vec<ShardFeed>, Refusal> {
        let opened = join_all(self.shards().map(|shard| self.feed_of(shard, reading, None))).await;
        let mut feeds = Vec::new();
        let mut unknown_version = None;
        for feed in opened {
            match feed {
                Ok(feed) => feeds.push(feed),
                // No trial of this shard has a reward of the version.
                Err(refused) if refused.status() == StatusCode::NOT_FOUND => unknown_version = Some(refused),
                Err(refused) => return Err(refused),
            }
        }
        match unknown_version {
            Some(refused) if feeds.is_empty() => Err(refused),
            _ => Ok(feeds),
        }
    }

    /// Waits until a shard has a line, and returns its feed alone. Returns no feed if the time passes.
    async fn first_feed(&self, reading: &Reading, wait: &str) -> Result<Vec<ShardFeed>, Refusal> {
        let mut feeds: FuturesUnordered<_> =
            self.shards().map(|shard| self.feed_of(shard, reading, Some(wait))).collect();
        while let Some(feed) = feeds.next().await {
            match feed {
                Ok(feed) if feed.head.is_some() => return Ok(vec![feed]),
                Ok(_) => {}
                Err(refused) if refused.status() == StatusCode::NOT_FOUND => {}
                Err(refused) => return Err(refused),
            }
        }
        Ok(Vec::new())
    }

    /// Begins to read the feed of a shard, after the cursor of the reading.
    async fn feed_of(&self, shard: u32, reading: &Reading, wait: Option<&str>) -> Result<ShardFeed, Refusal> {
        let answer = self.ask(shard, reading.at(shard, wait)).await;
        if answer.status() != StatusCode::OK {
            return Err(answer.into());
        }
        let mut lines = ShardLines::new(answer.into_body());
        match lines.next().await {
            Ok(head) => Ok(ShardFeed { shard, lines, head }),
            Err(error) => {
                Err(super::unavailable(format!("the feed of shard {shard} broke off: {error}")).into())
            }
        }
    }
}

impl Reading {
    /// Returns the request for one shard.
    fn at(&self, shard: u32, wait: Option<&str>) -> Request {
        let mut query: Vec<(&str, &str)> =
            self.same.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        query.extend(self.cursor.of(shard).map(|cursor| ("after", cursor)));
        query.extend(wait.map(|wait| ("wait", wait)));
        // Texts of a query can always be encoded, and the result is a valid URI.
        let query = serde_urlencoded::to_string(query).unwrap_or_default();
        let mut request = self.request.copy();
        *request.uri_mut() =
            format!("/v1/rollouts?{query}").parse().unwrap_or(Uri::from_static("/v1/rollouts"));
        request
    }
}

impl Merged {
    /// Returns the next line of all shards, with the cursor of the cluster.
    async fn next_line(&mut self) -> io::Result<Option<Bytes>> {
        if self.left == Some(0) {
            return Ok(None);
        }
        let Some(place) = next_feed(&self.feeds, self.reading.cursor.within()) else { return Ok(None) };
        let Some(feed) = self.feeds.get_mut(place) else { return Ok(None) };
        let Some(line) = feed.head.take() else { return Ok(None) };
        self.left = self.left.map(|left| left - 1);
        self.reading.cursor.advance(feed.shard, line.cursor(), line.remaining);
        if self.left != Some(0) {
            self.refill(place).await?;
        }
        Ok(Some(line.with_cursor(&self.reading.cursor.to_string())))
    }

    /// Reads the next line of a feed. A feed that broke off is read again after the cursor: a shard cuts off a reader that
    /// takes nothing for long, as when another shard has many lines, and its holder may have changed.
    async fn refill(&mut self, place: usize) -> io::Result<()> {
        let Some(feed) = self.feeds.get_mut(place) else { return Ok(()) };
        match feed.lines.next().await {
            Ok(head) => feed.head = head,
            Err(error) => {
                tracing::debug!(%error, shard = feed.shard, "the feed of a shard is read again");
                let again = self.admin.feed_of(feed.shard, &self.reading, None).await;
                *feed = again.map_err(|refused| {
                    io::Error::other(format!("shard {} answered {}: {error}", feed.shard, refused.status()))
                })?;
            }
        }
        Ok(())
    }
}

/// Returns the place of the feed with the next line: that of the shard with the rest of a group, or else the one whose next
/// trial became complete first.
fn next_feed(feeds: &[ShardFeed], within: Option<u32>) -> Option<usize> {
    let of_group = feeds.iter().position(|feed| within == Some(feed.shard) && feed.head.is_some());
    of_group.or_else(|| {
        let heads = feeds.iter().enumerate().filter_map(|(place, feed)| Some((feed.head.as_ref()?, place)));
        heads.min_by_key(|(head, _)| head.completed_at).map(|(_, place)| place)
    })
}
