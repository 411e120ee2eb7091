//! The mixed load: calls of four kinds that begin at given times, whether or not earlier calls have ended.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::answer::Knobs;
use crate::client::Client;
use crate::clock::now_us;
use crate::load::limited;
use crate::reading::Reading;
use crate::request::{self, Size};
use crate::trials::{Trial, Trials};

/// A kind of calls.
#[derive(Debug)]
pub(crate) struct Kind {
    knobs: Knobs,
    stream: bool,
    size: Size,
    turns: usize,
    /// The calls of a trial. A conversation has a trial of its own.
    calls: usize,
    /// The calls per second, relative to the paced streams.
    share: f64,
    agents: usize,
    /// The number of tokens after which the agent closes its connection.
    aborts_after: Option<usize>,
}

const PACED: Kind = Kind {
    knobs: Knobs { prompt: 500, tokens: 75, delay_us: 20_000, continues: false },
    stream: true,
    size: Size { first: 1000, observation: 0 },
    turns: 1,
    calls: 10,
    share: 1.0,
    agents: 400,
    aborts_after: None,
};

pub(crate) const KINDS: [Kind; 4] = [
    PACED,
    Kind {
        knobs: Knobs { prompt: 300, tokens: 64, delay_us: 0, continues: false },
        stream: false,
        calls: 100,
        share: 8.0,
        agents: 64,
        ..PACED
    },
    Kind {
        knobs: Knobs { prompt: 0, tokens: 100, delay_us: 0, continues: true },
        stream: false,
        size: Size { first: 8000, observation: 2000 },
        turns: 20,
        calls: 20,
        share: 2.0,
        agents: 64,
        ..PACED
    },
    Kind { share: 0.2, agents: 100, aborts_after: Some(10), ..PACED },
];

/// The counts since the last look at them.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// Microseconds between upstream's write and the agent's read, for each token of a paced stream.
    pub(crate) one_way: Vec<u64>,
    /// Microseconds from the due begin of a small whole answer to its end.
    pub(crate) whole: Vec<u64>,
    pub(crate) errors: usize,
    pub(crate) first_error: Option<String>,
}

/// What all agents share.
pub(crate) struct Mix {
    target: SocketAddr,
    pub(crate) trials: Trials,
    pub(crate) window: Mutex<Window>,
    pub(crate) answered: AtomicU64,
    pub(crate) aborted: AtomicU64,
}

/// The times at which calls of one kind are due, in microseconds.
type Due = Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<u64>>>;

impl Mix {
    pub(crate) fn new(target: SocketAddr, admin: SocketAddr) -> Arc<Self> {
        Arc::new(Self {
            target,
            trials: Trials::new(admin),
            window: Mutex::default(),
            answered: AtomicU64::new(0),
            aborted: AtomicU64::new(0),
        })
    }

    /// Starts the agents. They end when the senders of the due times are dropped, after they ended their trials.
    pub(crate) fn start(self: &Arc<Self>) -> (Vec<mpsc::UnboundedSender<u64>>, JoinSet<()>) {
        let (mut senders, mut agents) = (Vec::new(), JoinSet::new());
        for kind in &KINDS {
            let (sender, due) = mpsc::unbounded_channel();
            let due = Arc::new(tokio::sync::Mutex::new(due));
            let bodies: Arc<[Bytes]> = (0..kind.turns)
                .map(|turns| request::body(&kind.knobs, kind.stream, kind.size, "", turns))
                .collect();
            for number in 1..=kind.agents {
                // The first trials have different lengths, so that the trials of a kind do not all end together.
                let first = (kind.calls * number).div_ceil(kind.agents);
                agents.spawn(Arc::clone(self).agent(kind, first, Arc::clone(&bodies), Arc::clone(&due)));
            }
            senders.push(sender);
        }
        (senders, agents)
    }

    async fn agent(self: Arc<Self>, kind: &'static Kind, first: usize, bodies: Arc<[Bytes]>, due: Due) {
        let (mut client, mut trial, mut made, mut calls) = (None, None, 0, first);
        while let Some(due_us) = next(&due).await {
            let current = match &mut trial {
                Some(current) => current,
                None => trial.insert(self.trials.open().await),
            };
            let body = &bodies[made % bodies.len()];
            if let Err(error) = limited(self.call(kind, &mut client, body, current, due_us)).await {
                let mut window = self.window.lock().unwrap();
                window.errors += 1;
                window.first_error.get_or_insert(error);
                client = None;
            }
            made += 1;
            if made == calls {
                self.end(&mut trial).await;
                (made, calls) = (0, kind.calls);
            }
        }
        self.end(&mut trial).await;
    }

    async fn end(&self, trial: &mut Option<Trial>) {
        if let Some(trial) = trial.take() {
            self.trials.end(trial).await;
        }
    }

    async fn call(
        &self,
        kind: &Kind,
        client: &mut Option<Client>,
        body: &Bytes,
        trial: &mut Trial,
        due_us: u64,
    ) -> Result<(), String> {
        let connected = match client {
            Some(client) => client,
            None => client.insert(Client::connect(self.target).await?),
        };
        let mut reading = Reading::new(&kind.knobs, kind.stream);
        let mut one_way = Vec::new();
        let read = connected.call(&trial.path, body.clone(), |part| {
            reading.take(part, |microseconds| one_way.push(microseconds));
            kind.aborts_after.is_none_or(|after| reading.tokens < after)
        });
        read.await?;
        if kind.aborts_after.is_some() {
            *client = None;
            self.aborted.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        reading.finish()?;
        trial.answered += 1;
        self.answered.fetch_add(1, Ordering::Relaxed);
        let mut window = self.window.lock().unwrap();
        if kind.stream {
            window.one_way.extend(one_way);
        } else if kind.turns == 1 {
            window.whole.push(now_us() - due_us);
        }
        Ok(())
    }
}

async fn next(due: &Due) -> Option<u64> {
    due.lock().await.recv().await
}

/// Announces calls at a rate that changes. It lasts until it is dropped.
pub(crate) async fn announce(rate: &Mutex<f64>, senders: Vec<mpsc::UnboundedSender<u64>>) -> ! {
    const TICK: Duration = Duration::from_millis(5);
    let mut tick = tokio::time::interval(TICK);
    // Before the first announcement, half a call of each kind is due, so that the kinds do not all begin together.
    let mut parts = KINDS.map(|kind| kind.share.fract() / 2.0);
    loop {
        let due = tick.tick().await;
        let behind = due.elapsed().as_micros() as u64;
        let rate = *rate.lock().unwrap();
        for ((kind, part), sender) in KINDS.iter().zip(&mut parts).zip(&senders) {
            *part += rate * kind.share * TICK.as_secs_f64();
            while *part >= 1.0 {
                *part -= 1.0;
                // A closed channel means that the agents have failed, and the soak fails on that.
                let _ = sender.send(now_us() - behind);
            }
        }
    }
}
