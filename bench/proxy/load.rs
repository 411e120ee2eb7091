//! Agents that call as fast as the answers arrive, and check that each answer is complete.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;

use crate::answer::Knobs;
use crate::client::Client;
use crate::clock::now_us;
use crate::reading::Reading;
use crate::request::{self, Size};

/// The longest time of one call.
const CALL_LIMIT: Duration = Duration::from_secs(60);

/// Fails if the call takes longer than the limit.
pub(crate) async fn limited<T>(call: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let called = tokio::time::timeout(CALL_LIMIT, call).await;
    called.unwrap_or_else(|_| Err("a call took more than a minute".to_owned()))
}

/// The load that the agents produce.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) knobs: Knobs,
    pub(crate) at_once: usize,
    /// Calls of all agents together.
    pub(crate) calls: usize,
    pub(crate) stream: bool,
    pub(crate) size: Size,
    /// The calls of a conversation. With several, each request is longer than the previous one.
    pub(crate) turns: usize,
    /// The time between the starts of two agents.
    pub(crate) ramp: Duration,
    /// The time from the start of the load in which the latency of tokens does not count.
    pub(crate) skip: Duration,
}

/// The counts of the answers.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) calls: usize,
    pub(crate) tokens: usize,
    pub(crate) errors: usize,
    pub(crate) first_error: Option<String>,
    /// Microseconds between upstream's write and the agent's read, for each token of a paced stream.
    pub(crate) one_way: Vec<u64>,
    /// The largest number of concurrent calls.
    pub(crate) at_once: usize,
}

impl Seen {
    fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.tokens += other.tokens;
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
        self.one_way.extend(other.one_way);
        self.at_once = self.at_once.max(other.at_once);
    }
}

/// State that the agents of one load share.
struct Shared {
    load: Load,
    target: SocketAddr,
    path: String,
    bodies: Vec<Bytes>,
    began_us: u64,
    left: AtomicUsize,
    active: AtomicUsize,
}

/// Puts the load on `target`. Returns the counts, and the largest value of `resident` during the load.
pub(crate) async fn run(
    load: &Load,
    target: SocketAddr,
    path: &str,
    resident: impl Fn() -> f64,
) -> (Seen, f64) {
    let shared = Arc::new(Shared {
        load: *load,
        target,
        path: path.to_owned(),
        bodies: (0..load.turns)
            .map(|turns| request::body(&load.knobs, load.stream, load.size, "", turns))
            .collect(),
        began_us: now_us(),
        left: AtomicUsize::new(load.calls),
        active: AtomicUsize::new(0),
    });
    let mut agents = JoinSet::new();
    for number in 0..load.at_once {
        agents.spawn(Arc::clone(&shared).agent(number));
    }
    let (mut seen, mut largest) = (Seen::default(), resident());
    let mut tick = tokio::time::interval(Duration::from_millis(50));
    loop {
        tokio::select! {
            of_agent = agents.join_next() => match of_agent {
                Some(of_agent) => seen.add(of_agent.unwrap()),
                None => return (seen, largest),
            },
            _ = tick.tick() => largest = largest.max(resident()),
        }
    }
}

impl Shared {
    async fn agent(self: Arc<Self>, number: usize) -> Seen {
        let (mut seen, mut client) = (Seen::default(), None);
        tokio::time::sleep(self.load.ramp * number as u32).await;
        for body in self.bodies.iter().cycle() {
            if self
                .left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                .is_err()
            {
                break;
            }
            seen.at_once = seen.at_once.max(self.active.fetch_add(1, Ordering::Relaxed) + 1);
            let called = limited(self.call(&mut client, body, &mut seen.one_way)).await;
            self.active.fetch_sub(1, Ordering::Relaxed);
            match called {
                Ok(tokens) => {
                    seen.calls += 1;
                    seen.tokens += tokens;
                }
                Err(error) => {
                    seen.errors += 1;
                    seen.first_error.get_or_insert(error);
                    client = None;
                }
            }
        }
        seen
    }

    /// Makes a call and returns the number of its tokens.
    async fn call(
        &self,
        client: &mut Option<Client>,
        body: &Bytes,
        one_way: &mut Vec<u64>,
    ) -> Result<usize, String> {
        let Load { knobs, stream, skip, .. } = &self.load;
        let client = match client {
            Some(client) => client,
            None => client.insert(Client::connect(self.target).await?),
        };
        let counts_from = self.began_us + skip.as_micros() as u64;
        let mut reading = Reading::new(knobs, *stream);
        let read = client.call(&self.path, body.clone(), |part| {
            let counts = knobs.delay_us > 0 && now_us() >= counts_from;
            reading.take(part, |microseconds| {
                if counts {
                    one_way.push(microseconds);
                }
            });
            true
        });
        read.await?;
        reading.finish()
    }
}
