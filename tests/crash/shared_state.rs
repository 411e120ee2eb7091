//! The state that agents share: the upstream, the address of the current proxy, and their books.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::{Client, Method, Response, StatusCode};
use rolltap_testing::limit;
use serde_json::Value;
use tokio::sync::{Notify, watch};

use super::holders::{Holders, Lease};
use super::ledger::{Book, Page, Reward, State};
use super::proxy::Place;
use super::upstream::Upstream;

pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) upstream: Upstream,
    pub(crate) http: Client,
    /// The number of starts of the proxy, and its address while it runs.
    place: watch::Sender<(u64, Option<Place>)>,
    visitors: AtomicUsize,
    next_trial: AtomicU32,
    books: Mutex<Vec<Book>>,
    complaints: Mutex<Vec<String>>,
    /// The nodes of a cluster that answered.
    pub(crate) holders: Holders,
    /// Whether the proxy may reject requests with 503, because its disk is full.
    pub(crate) is_full: AtomicBool,
    /// Whether connections may break while there is a place, because nodes of a cluster answer in turn.
    pub(crate) is_cluster: AtomicBool,
    /// The longest time that an agent thinks before a call.
    pub(crate) think_millis: AtomicU64,
    /// Notified at each such moment.
    pub(crate) moments: [Notify; 5],
    pub(crate) seen: AtomicU64,
    pub(crate) lost: AtomicU64,
}

/// The pause of a client before it repeats a request to a cluster.
const AGAIN: Duration = Duration::from_millis(100);

/// The moment that a kill should hit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Moment {
    /// Such a request is about to be sent.
    Opening,
    Sealing,
    Rewarding,
    /// A request was acknowledged just now.
    Done,
    /// An agent saw the end of an answer just now.
    Answered,
}

/// The proxy died before the end of its answer.
#[derive(Debug)]
pub(crate) struct Lost;

/// A client of the current proxy.
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
            http: rolltap_testing::client_builder().timeout(limit(60)).build().unwrap(),
            place: watch::Sender::new((0, None)),
            visitors: AtomicUsize::new(0),
            next_trial: AtomicU32::new(0),
            books: Mutex::default(),
            complaints: Mutex::default(),
            holders: Holders::default(),
            is_full: AtomicBool::new(false),
            is_cluster: AtomicBool::new(false),
            think_millis: AtomicU64::new(0),
            moments: std::array::from_fn(|_| Notify::new()),
            seen: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        })
    }

    /// Lets agents call this proxy.
    pub(crate) fn comes_up(&self, place: &Place) {
        self.place.send_modify(|(generation, there)| {
            (*generation, *there) = (*generation + 1, Some(place.clone()))
        });
    }

    /// Lets no agent begin a request. Returns when all agents have noticed that the proxy is gone.
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
            // `is_down` removes the proxy before it counts visitors, so a visitor that entered in between leaves again.
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

    /// Returns the names of the trials whose reward was acknowledged.
    pub(crate) fn rewarded(&self) -> Vec<String> {
        let books = self.books();
        let pages = books.iter().map(Book::page);
        let is_rewarded = |page: &Page| page.state == State::Sealed && matches!(page.reward, Reward::Kept(_));
        pages.filter(|page| is_rewarded(page)).map(|page| page.trial_id.clone()).collect()
    }

    /// Records the node that answers. Without a cluster, an answer names none.
    pub(crate) fn lease_of(&self, answer: &Response) -> Option<Lease> {
        if !self.is_cluster.load(Ordering::Relaxed) {
            return None;
        }
        self.holders.record(answer.headers()).map_err(|breach| self.complain(breach)).ok()
    }

    /// Records a breach that an agent saw.
    pub(crate) fn complain(&self, what: String) {
        self.complaints.lock().unwrap().push(what);
    }

    pub(crate) fn complaints(&self) -> Vec<String> {
        self.complaints.lock().unwrap().clone()
    }
}

impl Visit<'_> {
    /// Sends a request to the admin plane, which must succeed.
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

    /// Sends a call of an agent. Its answer must begin with a success.
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

    /// Returns whether a proxy with a full disk may answer this. Its client retries at the next proxy.
    fn may_refuse(&self, status: StatusCode) -> bool {
        let may_refuse = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        status == StatusCode::SERVICE_UNAVAILABLE
            && (may_refuse(&self.world.is_full) || may_refuse(&self.world.is_cluster))
    }

    /// Waits until this proxy is known to be gone. A connection that breaks while the proxy runs is a defect.
    pub(crate) async fn lost(&self) -> Lost {
        self.world.lost.fetch_add(1, Ordering::Relaxed);
        if self.world.is_cluster.load(Ordering::Relaxed) {
            tokio::time::sleep(AGAIN).await;
            return Lost;
        }
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
