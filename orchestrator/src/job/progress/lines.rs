//! The progress of a job as lines that stay: on standard error without a terminal, and of failures on a terminal.

use std::time::{Duration, Instant};

use super::board::Board;
use super::screen::phase;
use crate::common::activity::{ActivityNews, ActivityView};
use crate::common::shown_path::shown;
use crate::common::style::{BAD, Line, PLAIN, of_reward};
use crate::common::words::{clock, counted, first_line, number, short};
use crate::job_dir::JobDir;
use crate::trial::{TrialOutcome, in_words};

/// Formats the number of trials of a job, and how many ended in an earlier run.
pub(in crate::job) fn to_be_done(trials: usize, before: usize) -> String {
    let trials = counted(trials as u64, "trial");
    if before == 0 { format!("{trials} to run") } else { format!("{trials}, {before} of them ended before") }
}

/// Formats the state in which a resumed job begins.
pub(in crate::job) fn resumed(dir: &JobDir, planned: usize, done: &[TrialOutcome]) -> String {
    let failed = done.iter().filter(|trial| trial.failure.is_some()).count();
    let (complete, left) = (done.len(), planned.saturating_sub(done.len()));
    format!(
        "resuming {}: {complete} of {} complete ({failed} failed), {left} to run",
        shown(dir.path()).display(),
        counted(planned as u64, "trial")
    )
}

/// Formats the state of a running job.
pub(super) fn heartbeat(board: &Board, now: Instant) -> String {
    let phases: Vec<_> =
        board.phases().into_iter().map(|(of, count)| format!("{count} {}", phase(of))).collect();
    let mut parts = vec![format!("[{}/{}] {} running", board.all.done, board.planned, board.running_count())];
    if let (Some(part), false) = (parts.first_mut(), phases.is_empty()) {
        *part = format!("{part} ({})", phases.join(", "));
    }
    parts.extend(board.all.mean_reward().map(|mean| format!("mean reward {}", number(mean))));
    parts.push(format!("{} failed", board.all.failed));
    if board.retried > 0 {
        parts.push(format!("{} retried", board.retried));
    }
    let rate = board.all.tokens_per_second(board.since, now);
    parts.extend(rate.map(|rate| format!("{} tokens/s", short(rate.round() as u64))));
    parts.push(clock(now.saturating_duration_since(board.since)));
    parts.extend(board.time_left(now).map(|left| format!("about {} left", clock(left))));
    parts.join(", ")
}

/// Formats news of an activity.
pub(super) fn activity(news: &ActivityNews, now: Instant) -> String {
    let took = |view: &ActivityView| clock(now.saturating_duration_since(view.since));
    match news {
        ActivityNews::Runs(view) => format!("{} …", view.title),
        ActivityNews::Ended(view) => format!("{}: ended after {}", view.title, took(view)),
    }
}

/// Formats an attempt that ended, as one line.
pub(super) fn ended(trial: &TrialOutcome) -> Line {
    let (style, reward) = match trial.reward {
        Some(reward) => (of_reward(reward), reward.to_string()),
        None if trial.rewards.is_empty() => (PLAIN, "none".to_owned()),
        None => (PLAIN, format!("none ({})", in_words(&trial.rewards, f64::to_string))),
    };
    let calls = trial.status.as_ref().map_or(0, |status| status.calls.total);
    let calls = counted(calls, "call");
    let seconds = trial.duration().as_secs_f64();
    let line = Line::default()
        .with(PLAIN, format!("{}  reward ", trial.name))
        .with(style, reward)
        .with(PLAIN, format!("  {calls}  {seconds:.1} s"));
    match &trial.failure {
        // The whole message is in the trial's exception.txt.
        Some(failure) => line.with(PLAIN, "  ").with(BAD, first_line(&failure.to_string())),
        None => line,
    }
}

/// Formats an attempt that another attempt follows after this wait.
pub(super) fn retried(trial: &TrialOutcome, wait: Duration) -> Line {
    ended(trial).with(PLAIN, format!("; retried in {} s", number(wait.as_secs_f64())))
}
