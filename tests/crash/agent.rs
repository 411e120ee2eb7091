//! An agent and its runner. Each trial in turn is opened, used for a conversation, sealed and rewarded, while the proxy
//! may fail at any time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::dialects::{Speech, Turn};
use super::holders::Lease;
use super::ledger::{Book, Reward, State};
use super::rng::Chance;
use super::shared_state::{Lost, Moment, Visit, World};
use super::tokens;

/// The number of groups of a cluster.
const GROUPS: u32 = 31;

/// Runs until the task is aborted.
pub(crate) async fn live(world: Arc<World>, number: u64) {
    let mut agent = Agent { chance: Chance::of(world.seed ^ 0xa9e2, number), world };
    loop {
        let (book, key) = agent.open().await;
        agent.converse(&book, &key).await;
        agent.seal(&book).await;
        agent.reward(&book).await;
        agent.read_back(&book).await;
    }
}

struct Agent {
    world: Arc<World>,
    chance: Chance,
}

/// A complete answer.
struct Heard {
    text: String,
    /// The lease of the node that answered. `None` without a cluster.
    lease: Option<Lease>,
}

impl Agent {
    /// Retries until a trial is open. A trial whose opening was not answered is abandoned, because its key is unknown.
    async fn open(&mut self) -> (Book, String) {
        loop {
            let visit = self.world.visit().await;
            let number = self.world.new_trial();
            let book = Book::new(number, Speech::any(&mut self.chance));
            self.world.enter(book.clone());
            let mut asked = json!({"task_id": "crash", "trial_id": book.page().trial_id});
            if self.world.is_cluster.load(Ordering::Relaxed) {
                // The groups spread over the shards, and each trial is on the shard of its group.
                asked["group_id"] = json!(format!("group-{}", number % GROUPS));
                asked["sample_index"] = json!(number / GROUPS);
            }
            self.world.moments[Moment::Opening as usize].notify_one();
            let Ok(opened) = visit.admin(Method::POST, "/v1/trials", &asked).await else { continue };
            let opened: Value = serde_json::from_str(&opened).unwrap();
            book.page().state = State::Open;
            return (book, opened["key"].as_str().unwrap().to_owned());
        }
    }

    async fn converse(&mut self, book: &Book, key: &str) {
        let mut turns: Vec<Turn> = Vec::new();
        for _ in 0..self.chance.among(1..6) {
            let longest = Duration::from_millis(self.world.think_millis.load(Ordering::Relaxed));
            tokio::time::sleep(self.chance.below(longest)).await;
            let name = tokens::word(tokens::of_trial(book.page().number));
            let words =
                (0..self.chance.among(5..60)).map(|_| tokens::word(self.chance.among(tokens::WORDS) as u32));
            let said = format!("{name} {}", words.collect::<Vec<_>>().join(" "));
            let mut other = self.clone_for_other();
            let answered = if self.chance.per_cent(10) {
                // Agents sometimes sample in parallel on purpose.
                tokio::join!(self.call(book, key, &turns, &said), other.call(book, key, &turns, &said)).0
            } else {
                self.call(book, key, &turns, &said).await
            };
            turns.push(Turn { said, answered });
        }
    }

    fn clone_for_other(&mut self) -> Self {
        Self { world: Arc::clone(&self.world), chance: Chance::of(self.chance.next(), 0) }
    }

    /// Repeats a request until the agent has read the end of an answer.
    async fn call(&mut self, book: &Book, key: &str, turns: &[Turn], say: &str) -> String {
        let body_of = |speech: Speech| speech.body(turns, say);
        loop {
            let world = Arc::clone(&self.world);
            let visit = world.visit().await;
            let stream = self.chance.per_cent(60);
            let speech = book.page().speech.streaming(stream);
            let leaves = stream && self.chance.per_cent(4);
            book.page().asked += 1;
            let earlier = book.page().lease;
            let Ok(Some(heard)) = self.hear(&visit, key, speech, &body_of(speech), leaves).await else {
                continue;
            };
            let number = book.page().number;
            self.check_lease(book, earlier, heard.lease);
            let text = heard.text;
            let answer = tokens::ids_of(&text).first().and_then(|&first| tokens::answer_at(first));
            let sent = answer.and_then(|answer| world.upstream.text(number, answer));
            match (answer, sent) {
                (Some(answer), Some(sent)) if sent == text => book.page().seen.insert(answer),
                (_, sent) => {
                    world.complain(format!("trial-{number} read {text:?}; upstream had sent {sent:?}"));
                    false
                }
            };
            world.seen.fetch_add(1, Ordering::Relaxed);
            return text;
        }
    }

    /// Checks that the answer is not that of a node which another had replaced before the request. `earlier` is the lease of the
    /// trial's latest answer then.
    fn check_lease(&self, book: &Book, earlier: Option<Lease>, lease: Option<Lease>) {
        if let (Some(earlier), Some(lease)) = (earlier, lease)
            && !lease.may_follow(earlier)
        {
            self.world.complain(format!("{}: {lease:?} answered after {earlier:?}", book.page().trial_id));
        }
        let mut page = book.page();
        page.lease = page.lease.max(lease);
    }

    /// Returns a complete answer, or `None` if the agent itself left before the end.
    async fn hear(
        &self,
        visit: &Visit<'_>,
        key: &str,
        speech: Speech,
        body: &Value,
        leaves: bool,
    ) -> Result<Option<Heard>, Lost> {
        let mut answer = visit.call(key, speech.path(), body).await?;
        let lease = self.world.lease_of(&answer);
        let mut came = Vec::new();
        loop {
            match answer.chunk().await {
                Ok(Some(bytes)) => came.extend_from_slice(&bytes),
                Ok(None) => {
                    let came = String::from_utf8_lossy(&came);
                    self.world.complain(format!("{speech:?}: the answer ended without its end: {came}"));
                    return Ok(None);
                }
                Err(_) => return Err(visit.lost().await),
            }
            if let Some(text) = speech.ended(&came) {
                self.world.moments[Moment::Answered as usize].notify_one();
                return Ok(Some(Heard { text, lease }));
            }
            if leaves {
                return Ok(None);
            }
        }
    }

    /// Seals the trial until the seal is acknowledged. Sometimes two runners do it at once, and either answer counts.
    async fn seal(&mut self, book: &Book) {
        let path = format!("/v1/trials/{}/seal", book.page().trial_id);
        let twice = self.chance.per_cent(30);
        book.page().state = State::Sealing;
        while book.page().state != State::Sealed {
            let visit = self.world.visit().await;
            self.world.moments[Moment::Sealing as usize].notify_one();
            let seal = async || {
                if visit.admin(Method::POST, &path, &json!({})).await.is_ok() {
                    book.page().state = State::Sealed;
                }
            };
            if twice {
                tokio::join!(seal(), seal());
            } else {
                seal().await;
            }
        }
    }

    async fn reward(&mut self, book: &Book) {
        let path = format!("/v1/trials/{}/reward", book.page().trial_id);
        let number = (self.chance.unit() * 1000.0).round() / 1000.0;
        book.page().reward = Reward::Sent(number);
        loop {
            let visit = self.world.visit().await;
            self.world.moments[Moment::Rewarding as usize].notify_one();
            let body = json!({"rewards": {"reward": number}});
            if visit.admin(Method::PUT, &path, &body).await.is_ok() {
                book.page().reward = Reward::Kept(number);
                return;
            }
        }
    }

    /// Stores the current responses about the trial, for a comparison after a restart.
    async fn read_back(&self, book: &Book) {
        let trial_id = book.page().trial_id.clone();
        let visit = self.world.visit().await;
        let told = async |what: &str| {
            visit.admin(Method::GET, &format!("/v1/trials/{trial_id}/{what}"), &json!({})).await
        };
        let (Ok(calls), Ok(rollout)) = (told("calls").await, told("rollout").await) else { return };
        let mut page = book.page();
        (page.calls, page.rollout) = (Some(calls), Some(rollout));
    }
}
