//! What the agents share: the upstream, the way to whichever proxy runs now, and their books.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::{Client, Method, Response, StatusCode};
use rolltap_testing::limit;
use serde_json::Value;
use tokio::sync::{Notify, watch};

use super::ledger::Book;
use super::proxy::Place;
use super::upstream::Upstream;

pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) upstream: Upstream,
    pub(crate) http: Client,
    /// How often a proxy came up, and where it is while it is there.
    place: watch::Sender<(u64, Option<Place>)>,
    visitors: AtomicUsize,
    next_trial: AtomicU32,
    books: Mutex<Vec<Book>>,
    complaints: Mutex<Vec<String>>,
    /// Whether the proxy may refuse with 503, since its disk is full.
    pub(crate) is_full: AtomicBool,
    /// Told when it is such a moment.
    pub(crate) moments: [Notify; 5],
    pub(crate) seen: AtomicU64,
    pub(crate) lost: AtomicU64,
}

/// What a kill may be timed to hit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Moment {
    /// Such a request is about to be sent.
    Opening,
    Sealing,
    Rewarding,
    /// Somebody was told just now that something is done.
    Done,
    /// An agent saw the end of an answer just now.
    Answered,
}

/// The proxy died before it answered whole.
#[derive(Debug)]
pub(crate) struct Lost;

/// Somebody who deals with the proxy that is there now.
pub(crate) struct Visit<'a> {
    world: &'a World,
    generation: u64,
    pub(crate) place: Place,
}

impl World {
    pub(crate) fn new(seed: u64, upstream: Upstream) -> Arc<Self> {
        Arc::new(Self {
            seed,
            upstream,
            http: Client::builder().timeout(limit(60)).build().unwrap(),
            place: watch::Sender::new((0, None)),
            visitors: AtomicUsize::new(0),
            next_trial: AtomicU32::new(0),
            books: Mutex::default(),
            complaints: Mutex::default(),
            is_full: AtomicBool::new(false),
            moments: std::array::from_fn(|_| Notify::new()),
            seen: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        })
    }

    /// Agents may call this proxy from now on.
    pub(crate) fn comes_up(&self, place: &Place) {
        self.place.send_modify(|(generation, there)| {
            (*generation, *there) = (*generation + 1, Some(place.clone()))
        });
    }

    /// Nobody begins anything new; returns when all have noticed that the proxy is gone.
    pub(crate) async fn is_down(&self) {
        self.place.send_modify(|(_, there)| *there = None);
        while self.visitors.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits for a proxy.
    pub(crate) async fn visit(&self) -> Visit<'_> {
        let mut places = self.place.subscribe();
        loop {
            let (generation, there) = places.wait_for(|(_, there)| there.is_some()).await.unwrap().clone();
            self.visitors.fetch_add(1, Ordering::SeqCst);
            let visit = Visit { world: self, generation, place: there.unwrap() };
            // Whoever takes the proxy away counts visitors after that: those that came in between leave again.
            let now = self.place.borrow();
            if now.0 == generation && now.1.is_some() {
                return visit;
            }
        }
    }

    pub(crate) fn new_trial(&self) -> u32 {
        self.next_trial.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn enter(&self, book: Book) {
        self.books.lock().unwrap().push(book);
    }

    pub(crate) fn books(&self) -> Vec<Book> {
        self.books.lock().unwrap().clone()
    }

    /// Something that must not be, seen by an agent.
    pub(crate) fn complain(&self, what: String) {
        self.complaints.lock().unwrap().push(what);
    }

    pub(crate) fn complaints(&self) -> Vec<String> {
        self.complaints.lock().unwrap().clone()
    }
}

impl Visit<'_> {
    /// A request of the admin plane, which must succeed.
    pub(crate) async fn admin(&self, method: Method, path: &str, body: &Value) -> Result<String, Lost> {
        let url = format!("{}{path}", self.place.admin);
        let answer = self.world.http.request(method.clone(), url).json(body).send().await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(_) => return Err(self.lost().await),
        };
        let status = answer.status();
        let Ok(text) = answer.text().await else { return Err(self.lost().await) };
        if self.may_refuse(status) {
            return Err(self.lost().await);
        }
        if !status.is_success() {
            self.world.complain(format!("{method} {path}: {status}: {text}"));
        }
        if method != Method::GET {
            self.world.moments[Moment::Done as usize].notify_one();
        }
        Ok(text)
    }

    /// A call of an agent, whose answer must begin well.
    pub(crate) async fn call(&self, key: &str, path: &str, body: &Value) -> Result<Response, Lost> {
        let url = format!("{}/t/{key}{path}", self.place.agents);
        let Ok(answer) = self.world.http.post(url).json(body).send().await else {
            return Err(self.lost().await);
        };
        let status = answer.status();
        if status == StatusCode::OK {
            return Ok(answer);
        }
        let Ok(text) = answer.text().await else { return Err(self.lost().await) };
        if !self.may_refuse(status) {
            self.world.complain(format!("POST {path}: {status}: {text}"));
        }
        Err(self.lost().await)
    }

    /// Whether that is what a proxy answers whose disk is full. Its client comes again once there is another proxy.
    fn may_refuse(&self, status: StatusCode) -> bool {
        status == StatusCode::SERVICE_UNAVAILABLE && self.world.is_full.load(Ordering::Relaxed)
    }

    /// Waits until this proxy is known to be gone; a connection that breaks while it stays is a fault.
    pub(crate) async fn lost(&self) -> Lost {
        self.world.lost.fetch_add(1, Ordering::Relaxed);
        let generation = self.generation;
        let mut places = self.world.place.subscribe();
        let is_over = |(now, there): &(u64, Option<Place>)| *now > generation || there.is_none();
        if tokio::time::timeout(limit(20), places.wait_for(is_over)).await.is_err() {
            self.world.complain("a connection broke while the proxy was there".to_owned());
        }
        Lost
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.world.visitors.fetch_sub(1, Ordering::SeqCst);
    }
}
