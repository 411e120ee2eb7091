//! The open trials of each server, and whether another one fits beside them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rolltap_rollout::ids::TrialId;

use super::correction::{Caches, Correction};
use super::forecast::{Growing, peak};
use super::lengths::Lengths;
use super::prefixes::Prefixes;
use super::report::CacheReport;

/// The number of open trials at a server whose KV cache is not known.
pub const FIXED_TRIALS: usize = 4;
/// Before enough trials have ended, a trial is expected to need a quarter of the smallest cache, or half of the model's context
/// if that is less.
const FIRST_SHARE: u64 = 4;
const FIRST_CONTEXT: u64 = 2;
/// A server that has the prompt of a trial's task is preferred, unless it has more than this many trials more than the
/// server with the fewest.
const LEAD: usize = 2;
/// The number of reports in a row with a queue after which no further trial is admitted.
const QUEUED: u32 = 2;

/// Identifies a server.
pub type ServerId = u64;

/// Decides which trials may be open, so that the KV cache of each server holds the conversations of its open trials until
/// they end. The decisions depend on nothing but the calls of these methods.
#[derive(Debug, Default)]
pub struct CacheLedger {
    servers: BTreeMap<ServerId, Server>,
    open: HashMap<TrialId, OpenTrial>,
    lengths: Lengths,
    prefixes: Prefixes,
    correction: Correction,
    /// The longest context of the model, in tokens, if it is known.
    context: Option<u64>,
}

/// A server's KV cache.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cache {
    /// The server has not been asked yet.
    Unknown,
    /// The metrics of the server are missing or unusable.
    Unavailable,
    Known(CacheReport),
}

#[derive(Debug)]
struct Server {
    cache: Cache,
    /// The time of the last report, in seconds.
    reported: f64,
    open: BTreeSet<TrialId>,
    /// The number of reports in a row with a queue.
    queued: u32,
}

impl Server {
    fn report(&self) -> Option<CacheReport> {
        match self.cache {
            Cache::Known(report) => Some(report),
            Cache::Unknown | Cache::Unavailable => None,
        }
    }
}

/// An open trial. It holds its place before its first call.
#[derive(Debug)]
struct OpenTrial {
    server: ServerId,
    /// The task and the agent. Empty for a trial that was never admitted.
    kind: String,
    /// The tokens of its conversation, with the prompt that its kind shares.
    tokens: u64,
}

/// A call that ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EndedCall {
    /// The tokens of its prompt.
    pub prompt: u64,
    /// The tokens of its answer.
    pub answer: u64,
    /// The tokens with which its prompt and an earlier call of the trial begin.
    pub known: u64,
    /// The seconds between its start and its end.
    pub seconds: f64,
}

/// The state of a server, for its status.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheStatus {
    /// The last report. `None` if the metrics of the server are missing or unusable.
    pub report: Option<CacheReport>,
    /// The tokens that open trials may need at once. `None` if [`FIXED_TRIALS`] decides.
    pub limit: Option<u64>,
    /// The tokens that the open trials are expected to need at once.
    pub forecast: u64,
    /// The number of open trials.
    pub trials: usize,
}

impl CacheLedger {
    /// Adds a server. Its cache is not known yet, so no trial is admitted there.
    pub fn add(&mut self, server: ServerId) {
        let new = Server { cache: Cache::Unknown, reported: 0.0, open: BTreeSet::new(), queued: 0 };
        self.servers.entry(server).or_insert(new);
    }

    /// Removes a server. Its trials remain open, without a server.
    pub fn remove(&mut self, server: ServerId) {
        self.servers.remove(&server);
    }

    /// Sets the longest context of the model, in tokens.
    pub fn set_context(&mut self, tokens: u64) {
        self.context = Some(tokens);
    }

    /// Updates the cache of a server from its metrics, or from `None` if they are missing or unusable. `now` is a time in
    /// seconds, whose zero is arbitrary. Returns whether the metrics became usable or ceased to be.
    pub fn report(&mut self, server: ServerId, report: Option<CacheReport>, now: f64) -> bool {
        let Some(server) = self.servers.get_mut(&server) else { return false };
        let was_known = matches!(server.cache, Cache::Known(_));
        let is_news = server.cache == Cache::Unknown || was_known != report.is_some();
        server.queued = match report {
            // Each request waits for the next step of the engine, so a short queue is usual.
            Some(report) if report.waiting > report.running / 4 => server.queued.saturating_add(1),
            _ => 0,
        };
        let progress = server
            .report()
            .zip(report)
            .and_then(|(before, report)| report.since(&before, now - server.reported));
        (server.cache, server.reported) = (report.map_or(Cache::Unavailable, Cache::Known), now);
        let open = server.open.len();
        if let Some(progress) = progress {
            self.correction.add(progress, open);
            self.review();
        }
        self.estimate_lengths();
        is_news
    }

    /// Reviews the correction if it is due.
    fn review(&mut self) {
        let known = || self.servers.values().filter_map(|server| Some((server, server.report()?)));
        let capacity = known().fold(0, |sum: u64, (_, report)| sum.saturating_add(report.capacity));
        let servers = known().count();
        if self.correction.is_due(capacity, servers) {
            let forecasts = known().map(|(server, report)| self.forecast(server, report, None));
            let forecast = forecasts.fold(0, u64::saturating_add);
            self.correction.review(Caches { servers, capacity, forecast });
        }
    }

    fn estimate_lengths(&mut self) {
        let caches = self.servers.values().filter_map(|server| server.report());
        let smallest = caches.map(|report| report.capacity / FIRST_SHARE).min();
        let of_context = self.context.map(|context| context / FIRST_CONTEXT);
        let Some(assumed) = smallest.into_iter().chain(of_context).min() else { return };
        let own = self.open.values().map(|open| open.tokens.saturating_sub(self.prefixes.of(&open.kind)));
        self.lengths.estimate(own, assumed);
    }

    /// Opens a place for a trial at one of these servers, if its conversation fits beside those of the open trials. Returns
    /// the server. A trial that is open keeps its place.
    pub fn admit(&mut self, trial: &TrialId, kind: &str, servers: &[ServerId]) -> Option<ServerId> {
        if let Some(open) = self.open.get(trial).filter(|open| servers.contains(&open.server)) {
            return Some(open.server);
        }
        let fitting = servers.iter().copied().filter(|&server| self.fits(server, kind));
        let candidates: Vec<Candidate> = fitting.filter_map(|server| self.candidate(server, kind)).collect();
        let least = candidates.iter().map(|candidate| candidate.trials).min();
        // A server that has the prompt of the task in its cache need not compute it again.
        let is_close = |candidate: &&Candidate| least.is_some_and(|least| candidate.trials <= least + LEAD);
        let with_prefix = candidates.iter().filter(|candidate| candidate.has_prefix).filter(is_close);
        let chosen = with_prefix.min_by_key(|candidate| candidate.trials);
        let chosen = chosen.or_else(|| candidates.iter().min_by_key(|candidate| candidate.trials));
        let Some(&Candidate { server, .. }) = chosen else {
            self.correction.was_short();
            return None;
        };
        self.release(trial);
        self.place(trial, kind, server, 0);
        Some(server)
    }

    fn place(&mut self, trial: &TrialId, kind: &str, server: ServerId, tokens: u64) {
        self.open.insert(trial.clone(), OpenTrial { server, kind: kind.to_owned(), tokens });
        if let Some(server) = self.servers.get_mut(&server) {
            server.open.insert(trial.clone());
        }
    }

    fn candidate(&self, server: ServerId, kind: &str) -> Option<Candidate> {
        let open = &self.servers.get(&server)?.open;
        let has_prefix = open.iter().any(|trial| self.open.get(trial).is_some_and(|open| open.kind == kind));
        Some(Candidate { server, trials: open.len(), has_prefix })
    }

    /// Whether a trial of this kind fits beside the open trials of a server.
    fn fits(&self, id: ServerId, kind: &str) -> bool {
        let Some(server) = self.servers.get(&id) else { return false };
        match server.cache {
            Cache::Unknown => false,
            Cache::Unavailable => server.open.len() < FIXED_TRIALS,
            // A trial that is too long for the whole cache must run nevertheless.
            Cache::Known(_) if server.open.is_empty() => true,
            Cache::Known(_) if server.queued >= QUEUED => false,
            Cache::Known(report) => {
                self.forecast(server, report, Some(kind)) <= self.correction.size(report.capacity)
            }
        }
    }

    /// Returns the tokens that the open trials of a server need at once, with another one of this kind if there is one.
    fn forecast(&self, server: &Server, report: CacheReport, another: Option<&str>) -> u64 {
        let open = server.open.iter().filter_map(|trial| self.open.get(trial));
        let open = open.map(|open| (open.kind.as_str(), open.tokens)).chain(another.map(|kind| (kind, 0)));
        let (mut kinds, mut growing) = (BTreeSet::new(), Vec::new());
        for (kind, tokens) in open {
            kinds.insert(kind);
            let now = tokens.saturating_sub(self.prefixes.of(kind));
            let end = self.lengths.expected(now).min(report.capacity);
            // Half a block at the end of each conversation is empty, on average.
            let left = end.saturating_sub(now);
            growing.push(Growing { now: now.saturating_add(report.block_size / 2), left });
        }
        let shared = kinds.iter().fold(0, |sum: u64, kind| sum.saturating_add(self.prefixes.of(kind)));
        peak(growing).saturating_add(shared)
    }

    /// Records the length of a conversation after a call. The trial may be one that was never admitted.
    pub fn ended_call(&mut self, trial: &TrialId, server: ServerId, call: EndedCall) {
        match self.open.get(trial).map(|open| open.server) {
            Some(before) if before == server => {}
            Some(_) => self.moved(trial, server),
            None => self.place(trial, "", server, 0),
        }
        let Some(open) = self.open.get_mut(trial) else { return };
        let expected = match open.tokens {
            0 => {
                self.prefixes.begun(&open.kind, call.prompt);
                0
            }
            _ => call.known,
        };
        open.tokens = call.prompt.saturating_add(call.answer);
        self.correction.expect(expected, call.seconds);
    }

    /// Moves a trial whose server takes no calls any more. Nothing of it is in the cache of the new one.
    fn moved(&mut self, trial: &TrialId, server: ServerId) {
        if let Some(OpenTrial { kind, .. }) = self.remove_open(trial) {
            self.place(trial, &kind, server, 0);
        }
    }

    /// Frees the place of a trial that makes no further call. Idempotent.
    pub fn release(&mut self, trial: &TrialId) {
        let Some(open) = self.remove_open(trial).filter(|open| open.tokens > 0) else { return };
        self.lengths.ended(open.tokens.saturating_sub(self.prefixes.of(&open.kind)));
    }

    fn remove_open(&mut self, trial: &TrialId) -> Option<OpenTrial> {
        let open = self.open.remove(trial)?;
        if let Some(server) = self.servers.get_mut(&open.server) {
            server.open.remove(trial);
        }
        Some(open)
    }

    /// Returns the number of open trials.
    pub fn open_trials(&self) -> usize {
        self.open.len()
    }

    /// Returns the state of a server.
    pub fn status(&self, server: ServerId) -> Option<CacheStatus> {
        let server = self.servers.get(&server)?;
        let report = server.report();
        Some(CacheStatus {
            report,
            limit: report.map(|report| self.correction.size(report.capacity)),
            forecast: report.map_or(0, |report| self.forecast(server, report, None)),
            trials: server.open.len(),
        })
    }
}

/// A server where a trial fits.
struct Candidate {
    server: ServerId,
    trials: usize,
    /// Whether a trial of the same kind is open there.
    has_prefix: bool,
}

#[cfg(test)]
mod tests;
