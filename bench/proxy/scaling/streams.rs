//! Open paced streams: with more of them, each is slower, so that the tokens per second are always the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::JoinSet;

use super::{Cost, Sizes};
use crate::answer::Knobs;
use crate::client::Client;
use crate::gate::PATH;
use crate::reading::Reading;
use crate::request::{self, Size};
use crate::stage::Stage;

/// The numbers of streams, and the milliseconds between two tokens of one stream: 10 000 tokens a second in each case.
const SIZES: [(usize, u64); 3] = [(200, 20), (2000, 200), (MOST, 800)];

/// The largest number of streams.
pub(super) const MOST: usize = 8000;

/// A trial has a limited number of concurrent calls.
const STREAMS_PER_TRIAL: usize = 200;

/// The time between the starts of two streams.
const RAMP: Duration = Duration::from_micros(500);

/// The tokens that each stream still has at the end of the window, if the streams open without a delay.
const SPARE: Duration = Duration::from_secs(8);

pub(super) struct Streams {
    /// The seconds in which processor time and tokens count.
    pub(super) seconds: usize,
}

/// Counts of all streams of a round.
#[derive(Default)]
struct Live {
    /// Streams that have a token.
    begun: AtomicUsize,
    ended: AtomicUsize,
    tokens: AtomicU64,
}

impl Sizes for Streams {
    const COUNT: usize = SIZES.len();
    const TITLE: &str = "open streams, per token";

    fn name(&self, size: usize) -> String {
        let (streams, pace) = SIZES[size];
        format!("{streams} streams, a token each {pace} ms")
    }

    async fn add(&self, size: usize, stage: &Stage, on_proxy: bool, cost: &mut Cost) {
        let ((streams, pace), process) = (SIZES[size], stage.side(on_proxy));
        let window = Duration::from_secs(self.seconds as u64);
        let lasts = RAMP * streams as u32 + window + SPARE;
        let tokens = lasts.as_millis() as usize / pace as usize;
        let knobs = Knobs { prompt: 500, tokens, delay_us: pace * 1000, continues: false };
        let body = request::body(&knobs, true, Size { first: 1000, observation: 0 }, "", 0);
        let resident = process.resident_kib();
        let (live, mut agents) = (Arc::new(Live::default()), JoinSet::new());
        let mut path = PATH.to_owned();
        let begin = Instant::now();
        for number in 0..streams {
            if on_proxy && number % STREAMS_PER_TRIAL == 0 {
                path = format!("/t/{}{PATH}", process.open_trial().await);
            }
            tokio::time::sleep((RAMP * number as u32).saturating_sub(begin.elapsed())).await;
            let client = Client::connect(process.address).await.unwrap();
            agents.spawn(stream(client, path.clone(), body.clone(), knobs, Arc::clone(&live)));
        }
        while live.begun.load(Ordering::Relaxed) < streams {
            assert!(begin.elapsed() < lasts, "not all streams could begin in {lasts:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // At this time the streams of each size have about five tokens. Later, fast streams have more than slow ones.
        cost.kib.get_or_insert((process.resident_kib() - resident) / streams as f64);
        let (seconds, before) = (process.cpu_seconds(), live.tokens.load(Ordering::Relaxed));
        tokio::time::sleep(window).await;
        cost.seconds += process.cpu_seconds() - seconds;
        cost.work += (live.tokens.load(Ordering::Relaxed) - before) as f64;
        let ended = live.ended.load(Ordering::Relaxed);
        assert!(ended == 0, "{ended} of {streams} streams ended while they were measured");
        // The agents close their connections, and the streams need not end.
        agents.shutdown().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn stream(mut client: Client, path: String, body: Bytes, knobs: Knobs, live: Arc<Live>) {
    let mut reading = Reading::new(&knobs, true);
    let read = client.call(&path, body, |part| {
        let before = reading.tokens;
        reading.take(part, |_| {});
        live.tokens.fetch_add((reading.tokens - before) as u64, Ordering::Relaxed);
        if before == 0 && reading.tokens > 0 {
            live.begun.fetch_add(1, Ordering::Relaxed);
        }
        true
    });
    read.await.unwrap();
    live.ended.fetch_add(1, Ordering::Relaxed);
}
