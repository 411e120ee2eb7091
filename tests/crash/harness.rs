//! One proxy, and a caller that sends one call at a time and records the acknowledged ones.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::{Method, Response};
use rolltap_testing::limit;
use serde_json::{Value, json};

use super::dialects::Speech;
use super::ledger::{Book, Reward, State};
use super::proxy::{Launch, Proxy};
use super::shared_state::World;
use super::tokens;
use super::upstream::{HOLD, Upstream};
use super::verify;

pub(crate) struct Stage {
    pub(crate) world: Arc<World>,
    pub(crate) launch: Launch,
    pub(crate) proxy: Proxy,
}

/// An open trial and its key.
#[derive(Clone)]
pub(crate) struct Trial {
    pub(crate) book: Book,
    key: String,
}

/// The way in which an answer failed.
#[derive(Debug)]
pub(crate) enum Refused {
    /// Before its body, with an error status.
    Status { code: u16, retry_after: Option<String> },
    /// In the middle, by an event or by the connection's end.
    BrokenOff,
}

impl Stage {
    /// Starts a proxy. `change` can modify its launch settings.
    pub(crate) async fn set(dir: &Path, change: impl FnOnce(&mut Launch)) -> Self {
        let upstream = Upstream::start(7, Duration::ZERO).await;
        let mut launch = Launch::new(dir, &upstream.url);
        change(&mut launch);
        let (world, proxy) = (World::new(7, upstream), launch.start().await);
        Self { world, launch, proxy }
    }

    /// Kills the proxy with `kill -9` and starts another one on the same captures.
    pub(crate) async fn kill_and_start(&mut self) {
        self.proxy.kill().await;
        self.proxy = self.launch.start().await;
    }

    pub(crate) async fn admin(&self, method: Method, path: &str, body: Value) -> Response {
        let url = format!("{}{path}", self.proxy.place.admin);
        self.world.http.request(method, url).json(&body).send().await.unwrap()
    }

    pub(crate) async fn open(&self) -> Result<Trial, Refused> {
        let book = Book::new(self.world.new_trial(), Speech::chat());
        self.world.enter(book.clone());
        let asked = json!({"task_id": "disk", "trial_id": book.page().trial_id});
        let opened = accepted(self.admin(Method::POST, "/v1/trials", asked).await)?;
        let opened: Value = opened.json().await.unwrap();
        book.page().state = State::Open;
        Ok(Trial { book, key: opened["key"].as_str().unwrap().to_owned() })
    }

    /// Sends a call with this number of words. The answer is recorded if its end was seen.
    pub(crate) async fn call(&self, trial: &Trial, words: usize) -> Result<(), Refused> {
        self.hear(trial, false, &"word ".repeat(words)).await
    }

    /// Makes a streaming call with this number of words, and returns at its last event.
    pub(crate) async fn streaming_call(&self, trial: &Trial, words: usize) -> Result<(), Refused> {
        self.hear(trial, true, &"word ".repeat(words)).await
    }

    /// Makes a streaming call that stops half-way until the upstream releases it.
    pub(crate) async fn held_call(&self, trial: &Trial) -> Result<(), Refused> {
        self.hear(trial, true, HOLD).await
    }

    /// Sends a request, marked as its first try, or as a retry if `retry_count` is given. Returns its answer unread.
    pub(crate) async fn ask(
        &self,
        trial: &Trial,
        stream: bool,
        say: &str,
        retry_count: Option<u32>,
    ) -> Result<Response, Refused> {
        let number = trial.book.page().number;
        let speech = Speech::chat().streaming(stream);
        let body = speech.body(&[], &format!("{} {say}", tokens::word(tokens::of_trial(number))));
        trial.book.page().asked += 1;
        let url = format!("{}/t/{}{}", self.proxy.place.agents, trial.key, speech.path());
        let mut request = self.world.http.post(url).json(&body);
        if let Some(count) = retry_count {
            request = request.header("x-stainless-retry-count", count);
        }
        accepted(request.send().await.map_err(|_| Refused::BrokenOff)?)
    }

    /// Returns one of the counts of the trial's calls, by its name in the trial's status.
    pub(crate) async fn calls(&self, trial: &Trial, count: &str) -> u64 {
        let path = format!("/v1/trials/{}", trial.book.page().trial_id);
        let status: Value = self.admin(Method::GET, &path, json!({})).await.json().await.unwrap();
        status["calls"][count].as_u64().unwrap()
    }

    async fn hear(&self, trial: &Trial, stream: bool, say: &str) -> Result<(), Refused> {
        let number = trial.book.page().number;
        let mut answer = self.ask(trial, stream, say, None).await?;
        let (speech, mut came) = (Speech::chat().streaming(stream), Vec::new());
        // Agents take the last event for the end, before the end of the body.
        let text = loop {
            let Ok(Some(bytes)) = answer.chunk().await else { return Err(Refused::BrokenOff) };
            came.extend_from_slice(&bytes);
            if let Some(text) = speech.ended(&came) {
                break text;
            }
        };
        let answer = tokens::answer_at(tokens::ids_of(&text)[0]).unwrap();
        assert_eq!(self.world.upstream.text(number, answer).as_deref(), Some(&*text));
        trial.book.page().seen.insert(answer);
        Ok(())
    }

    pub(crate) async fn seal(&self, trial: &Trial) -> Result<(), Refused> {
        let path = format!("/v1/trials/{}/seal", trial.book.page().trial_id);
        trial.book.page().state = State::Sealing;
        accepted(self.admin(Method::POST, &path, json!({})).await)?;
        trial.book.page().state = State::Sealed;
        Ok(())
    }

    pub(crate) async fn reward(&self, trial: &Trial, number: f64) -> Result<(), Refused> {
        let path = format!("/v1/trials/{}/reward", trial.book.page().trial_id);
        trial.book.page().reward = Reward::Sent(number);
        accepted(self.admin(Method::PUT, &path, json!({"rewards": {"reward": number}})).await)?;
        trial.book.page().reward = Reward::Kept(number);
        Ok(())
    }

    /// Returns status and text of `/readyz`.
    pub(crate) async fn ready(&self) -> (u16, String) {
        let answer = self.admin(Method::GET, "/readyz", json!({})).await;
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    pub(crate) async fn until_ready(&self) {
        let deadline = Instant::now() + limit(20);
        while self.ready().await.0 != 200 {
            assert!(
                Instant::now() < deadline,
                "never ready: {:?}\n{}",
                self.ready().await,
                self.launch.log_text()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Returns every broken promise, for all trials.
    pub(crate) async fn breaches(&self) -> Vec<String> {
        let mut breaches = Vec::new();
        for book in self.world.books() {
            let verdict = verify::trial(&self.world, &self.proxy.place.admin, &book).await;
            breaches.extend(verdict.breaches);
        }
        breaches
    }

    /// Checks that nothing acknowledged is missing, before and after a restart, and that the captures are valid.
    pub(crate) async fn assert_nothing_is_lost(&mut self) {
        assert_eq!(self.breaches().await, [""; 0]);
        self.kill_and_start().await;
        assert_eq!(self.breaches().await, [""; 0], "after a restart; {}", self.launch.log_text());
        let (code, said) = self.launch.check();
        assert_eq!(code, Some(0), "{said}");
    }
}

/// Returns the answer if its status is a success.
fn accepted(answer: Response) -> Result<Response, Refused> {
    if answer.status().is_success() {
        return Ok(answer);
    }
    let retry_after = answer.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
    Err(Refused::Status { code: answer.status().as_u16(), retry_after })
}
