//! The open trials of each server, and whether another one fits beside them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rolltap_rollout::ids::TrialId;

use super::correction::Correction;
use super::forecast::{Growing, peak};
use super::lengths::Lengths;
use super::report::CacheReport;

/// The number of open trials at a server whose KV cache is not known.
pub const FIXED_TRIALS: usize = 4;
/// The share of a cache that a trial is expected to need before any trial has ended.
const FIRST_SHARE: u64 = 4;
/// The number of trials by which a server may have more than another one before the other is preferred, although it does
/// not have the prompt of the trial's task.
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
}

/// What is known of a server's KV cache.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cache {
    /// The server has not been asked yet.
    Unknown,
    /// The server tells nothing of it.
    Untold,
    Known(CacheReport),
}

#[derive(Debug)]
struct Server {
    cache: Cache,
    correction: Correction,
    open: BTreeSet<TrialId>,
    /// The number of reports in a row with a queue.
    queued: u32,
}

/// An open trial. It holds its place before its first call.
#[derive(Debug)]
struct OpenTrial {
    server: ServerId,
    /// The task and the agent. Empty for a trial that was not admitted here.
    kind: String,
    /// The tokens of its conversation, with the prompt that its kind shares.
    tokens: u64,
}

/// A call that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedCall {
    /// The tokens of its prompt.
    pub prompt: u64,
    /// The tokens of its answer.
    pub answer: u64,
    /// Whether the prompt begins with the tokens of an earlier call of the trial.
    pub continues: bool,
}

/// The state of a server, for its status.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheStatus {
    /// The last report. `None` if the server tells nothing of its cache.
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
        let new = Server {
            cache: Cache::Unknown,
            correction: Correction::default(),
            open: BTreeSet::new(),
            queued: 0,
        };
        self.servers.entry(server).or_insert(new);
    }

    /// Removes a server. Its trials remain open, without a server.
    pub fn remove(&mut self, server: ServerId) {
        self.servers.remove(&server);
    }

    /// Takes a report, or `None` if the server tells nothing of its cache. Returns whether this is news: the server tells
    /// for the first time, or no longer.
    pub fn report(&mut self, server: ServerId, report: Option<CacheReport>) -> bool {
        let Some(server) = self.servers.get_mut(&server) else { return false };
        let told = matches!(server.cache, Cache::Known(_));
        let is_news = server.cache == Cache::Unknown || told != report.is_some();
        server.queued = match report {
            // A request waits shortly before each step. A queue of a quarter is none of that kind.
            Some(report) if report.waiting > report.running / 4 => server.queued.saturating_add(1),
            _ => 0,
        };
        if let Some(report) = &report {
            server.correction.report(report);
        }
        server.cache = report.map_or(Cache::Untold, Cache::Known);
        is_news
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
        // A server that has the prompt of the task computes it once for all samples of a group.
        let is_close = |candidate: &&Candidate| least.is_some_and(|least| candidate.trials <= least + LEAD);
        let with_prefix = candidates.iter().filter(|candidate| candidate.has_prefix).filter(is_close);
        let chosen = with_prefix.min_by_key(|candidate| candidate.trials);
        let chosen = chosen.or_else(|| candidates.iter().min_by_key(|candidate| candidate.trials));
        let Some(&Candidate { server, .. }) = chosen else {
            let known =
                servers.iter().filter_map(|server| Some((server, self.servers.get(server)?.open.len())));
            let shortest = known.min_by_key(|(_, trials)| *trials).map(|(server, _)| *server);
            if let Some(server) = shortest.and_then(|server| self.servers.get_mut(&server)) {
                server.correction.was_short();
            }
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
            Cache::Untold => server.open.len() < FIXED_TRIALS,
            // A trial that is too long for the whole cache must run nevertheless.
            Cache::Known(_) if server.open.is_empty() => true,
            Cache::Known(_) if server.queued >= QUEUED => false,
            Cache::Known(report) => {
                self.forecast(server, report, Some(kind)) <= server.correction.size(report.capacity)
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
            let now = tokens.saturating_sub(self.lengths.prefix(kind));
            let end = self.lengths.expected(kind, now);
            let end = end.unwrap_or_else(|| now.max(report.capacity / FIRST_SHARE));
            // Half a block at the end of each conversation is empty, on average.
            let left = end.saturating_sub(now);
            growing.push(Growing { now: now.saturating_add(report.block_size / 2), left });
        }
        let shared = kinds.iter().fold(0, |sum: u64, kind| sum.saturating_add(self.lengths.prefix(kind)));
        peak(growing).saturating_add(shared)
    }

    /// Notes a call that ended at a server. The trial may be one that was not admitted here.
    pub fn ended_call(&mut self, trial: &TrialId, server: ServerId, call: EndedCall) {
        match self.open.get(trial).map(|open| open.server) {
            Some(before) if before == server => {}
            Some(_) => self.moved(trial, server),
            None => self.place(trial, "", server, 0),
        }
        let Some(open) = self.open.get_mut(trial) else { return };
        let expected = match open.tokens {
            0 => {
                self.lengths.begun(&open.kind, call.prompt);
                0
            }
            before if call.continues => before.min(call.prompt),
            _ => 0,
        };
        open.tokens = call.prompt.saturating_add(call.answer);
        if let Some(server) = self.servers.get_mut(&server) {
            server.correction.expect(expected);
        }
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
        let own = open.tokens.saturating_sub(self.lengths.prefix(&open.kind));
        self.lengths.ended(&open.kind, own);
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
        let report = if let Cache::Known(report) = server.cache { Some(report) } else { None };
        Some(CacheStatus {
            report,
            limit: report.map(|report| server.correction.size(report.capacity)),
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
