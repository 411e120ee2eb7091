//! The progress of a job on a terminal, as lines that are redrawn.

use std::time::{Duration, Instant};

use unicode_width::UnicodeWidthStr;

use super::board::{Board, RunningTrial};
use super::tasks::TaskFigures;
use crate::common::activity::ActivityView;
use crate::common::style::{BAD, BOLD, DIM, GOOD, Line, PLAIN, of_reward};
use crate::common::words::{clock, number, short};
use crate::failure::Phase;

/// The width of the bar.
const BAR: usize = 20;
/// The most activities that are shown.
const MOST_ACTIVITIES: usize = 3;
/// The most trials that are shown, however large the screen is.
const MOST_TRIALS: usize = 24;
/// The most tasks that are shown.
const MOST_TASKS: usize = 8;
/// Activities that take less time are not shown.
const ACTIVITY_PATIENCE: Duration = Duration::from_millis(500);

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) width: usize,
    pub(super) height: usize,
}

/// Returns the lines with escape sequences. They fit the size, with a line to spare for the cursor.
pub(super) fn lines(board: &Board, activities: &[ActivityView], now: Instant, size: Size) -> Vec<String> {
    // A terminal wraps a line of its whole width at once or not, which indicatif cannot know.
    let width = size.width.saturating_sub(1);
    let height = size.height.saturating_sub(1);
    let mut lines = Vec::new();
    if board.planned > 0 {
        lines.push(bar(board, now));
        lines.push(figures(board, now));
    }
    let is_long = |view: &&ActivityView| now.saturating_duration_since(view.since) >= ACTIVITY_PATIENCE;
    lines.extend(activities.iter().filter(is_long).take(MOST_ACTIVITIES).map(|view| activity(view, now)));
    lines.extend(task_lines(board, now, width, height.saturating_sub(lines.len()) / 3));
    let running = board.running();
    let room = height.saturating_sub(lines.len()).min(MOST_TRIALS);
    // One line is for the number of the others.
    let shown = if running.len() > room { room.saturating_sub(1) } else { running.len() };
    let label_width = running.iter().take(shown).map(|trial| trial.label.width()).max().unwrap_or(0);
    let label_width = label_width.min(width.saturating_sub(FIGURES_WIDTH));
    lines.extend(running.iter().take(shown).map(|trial| trial_line(trial, label_width, now)));
    if running.len() > shown && room > 0 {
        lines.push(Line::default().with(DIM, format!("  … and {} more", running.len() - shown)));
    }
    lines.iter().take(height).map(|line| line.render(width)).collect()
}

/// Returns a line for each task of a job of several tasks, at most `room` lines.
fn task_lines(board: &Board, now: Instant, width: usize, room: usize) -> Vec<Line> {
    let tasks = board.tasks.in_order();
    let room = room.min(MOST_TASKS);
    if tasks.len() < 2 || room == 0 {
        return Vec::new();
    }
    // One line is for the number of the others.
    let shown = if tasks.len() > room { room - 1 } else { tasks.len() };
    let name_width = tasks.iter().take(shown).map(|(name, _)| name.width()).max().unwrap_or(0);
    let name_width = name_width.min(width.saturating_sub(TASK_FIGURES_WIDTH));
    let mut lines: Vec<_> =
        tasks.iter().take(shown).map(|(name, task)| task_line(name, task, board, name_width, now)).collect();
    if tasks.len() > shown {
        lines.push(Line::default().with(DIM, format!("  … and {} more tasks", tasks.len() - shown)));
    }
    lines
}

/// The width of a task's line without its name.
const TASK_FIGURES_WIDTH: usize = 63;

fn task_line(name: &str, task: &TaskFigures, board: &Board, name_width: usize, now: Instant) -> Line {
    let TaskFigures { running, figures } = task;
    let line = Line::default()
        .with(PLAIN, "  ")
        .column(PLAIN, name, name_width)
        .right(PLAIN, format!("{} done", figures.done), 9)
        .right(PLAIN, format!("{running} running"), 12);
    let line = match figures.mean_reward() {
        Some(mean) => line.right(of_reward(mean), format!("reward {}", number(mean)), 14),
        None => line.right(DIM, "no reward yet", 14),
    };
    let style = if figures.failed > 0 { BAD } else { DIM };
    let line = line.right(style, format!("{} failed", figures.failed), 10);
    match figures.tokens_per_second(board.since, now) {
        Some(rate) => line.right(PLAIN, format!("{} tokens/s", short(rate.round() as u64)), 16),
        None => line,
    }
}

fn bar(board: &Board, now: Instant) -> Line {
    let filled = (BAR * board.all.done).checked_div(board.planned).unwrap_or(BAR).min(BAR);
    let line = Line::default()
        .with(GOOD, "━".repeat(filled))
        .with(DIM, "─".repeat(BAR - filled))
        .with(BOLD, format!(" {}/{} trials", board.all.done, board.planned))
        .with(PLAIN, format!("  {}", clock(now.saturating_duration_since(board.since))));
    match board.time_left(now).filter(|_| board.all.done < board.planned) {
        Some(left) => line.with(PLAIN, format!(", about {} left", clock(left))),
        None => line,
    }
}

fn figures(board: &Board, now: Instant) -> Line {
    let mut line = match board.all.mean_reward() {
        Some(mean) => Line::default().with(PLAIN, "mean reward ").with(of_reward(mean), number(mean)),
        None => Line::default().with(DIM, "no reward yet"),
    };
    let style = if board.all.failed > 0 { BAD } else { PLAIN };
    line = line.with(PLAIN, "  ").with(style, format!("{} failed", board.all.failed));
    if board.retried > 0 {
        line = line.with(PLAIN, format!("  {} retried", board.retried));
    }
    line = line.with(PLAIN, format!("  {} running", board.running_count()));
    match board.all.tokens_per_second(board.since, now) {
        Some(rate) => line.with(PLAIN, format!("  {} tokens/s", short(rate.round() as u64))),
        None => line,
    }
}

fn activity(view: &ActivityView, now: Instant) -> Line {
    let time = clock(now.saturating_duration_since(view.since));
    Line::default().with(PLAIN, format!("  {}  {time}  ", view.title)).with(DIM, &view.status)
}

const PHASE_WIDTH: usize = 12;
const TIME_WIDTH: usize = 8;
const CALLS_WIDTH: usize = 11;
const TOKENS_WIDTH: usize = 13;
/// The width of a trial's line without its label.
const FIGURES_WIDTH: usize = 4 + PHASE_WIDTH + TIME_WIDTH + CALLS_WIDTH + TOKENS_WIDTH;

fn trial_line(trial: &RunningTrial, label_width: usize, now: Instant) -> Line {
    let time = clock(now.saturating_duration_since(trial.phase_since));
    let line = Line::default()
        .with(PLAIN, "  ")
        .column(PLAIN, &trial.label, label_width)
        .with(PLAIN, "  ")
        .column(BOLD, phase(trial.phase), PHASE_WIDTH)
        .right(PLAIN, time, TIME_WIDTH);
    if trial.calls == 0 {
        return line;
    }
    let calls = if trial.calls == 1 { "1 call".to_owned() } else { format!("{} calls", short(trial.calls)) };
    line.right(PLAIN, calls, CALLS_WIDTH).right(
        PLAIN,
        format!("{} tokens", short(trial.tokens)),
        TOKENS_WIDTH,
    )
}

/// Names a phase for people.
pub(super) fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Open => "opening",
        Phase::EnvironmentSetup => "environment",
        Phase::Healthcheck => "health check",
        Phase::AgentSetup => "agent setup",
        Phase::StepSetup => "step setup",
        Phase::Agent => "agent",
        Phase::Seal => "sealing",
        Phase::Verifier => "verifier",
        Phase::Reward => "reward",
    }
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;

    use super::*;
    use crate::common::activity::Activities;
    use crate::job::progress::board::tests::sample;

    fn plain(lines: &[String]) -> Vec<String> {
        lines.iter().map(|line| strip_str(line).to_string()).collect()
    }

    #[test]
    fn the_longest_running_trials_come_first_and_the_others_are_counted() {
        let now = Instant::now();
        let shown = plain(&lines(&sample(12, now), &[], now, Size { width: 80, height: 8 }));
        assert_eq!(
            shown,
            [
                "━━────────────────── 4/40 trials  1:40, about 0:48 left",
                "mean reward 0.667  1 failed  12 running",
                "  task #0   agent           0:05",
                "  task #10  agent           0:05   10 calls 10.0k tokens",
                "  task #1   verifier        0:05     1 call  1.0k tokens",
                "  task #11  verifier        0:05   11 calls 11.0k tokens",
                "  … and 8 more",
            ]
        );
    }

    #[test]
    fn a_job_of_several_tasks_has_a_line_for_each() {
        let now = Instant::now();
        let mut board = sample(1, now);
        board.tasks.begin("other/task");
        board.tasks.end("other/task");
        let shown = plain(&lines(&board, &[], now, Size { width: 100, height: 24 }));
        assert_eq!(
            shown[2..4],
            [
                "  task         0 done   1 running no reward yet  0 failed",
                "  other/task   0 done   0 running no reward yet  0 failed",
            ]
        );
        assert_eq!(
            plain(&lines(&board, &[], now, Size { width: 100, height: 6 })).len(),
            4,
            "the screen is small"
        );
    }

    #[test]
    fn only_what_takes_a_while_is_shown_before_the_job_is_planned() {
        let activities = Activities::default();
        let _installing = activities.begin("installing agent", "codex");
        let now = Instant::now();
        let show = |now| lines(&Board::new(now), &activities.running(), now, Size { width: 80, height: 24 });
        assert!(show(now).is_empty());
        assert_eq!(plain(&show(now + Duration::from_secs(7))), ["  installing agent codex  0:07  "]);
    }

    proptest::proptest! {
        #[test]
        fn the_lines_fit_every_screen(running in 0_usize..60, width in 0_usize..200, height in 0_usize..60) {
            let now = Instant::now();
            let shown = plain(&lines(&sample(running, now), &[], now, Size { width, height }));
            proptest::prop_assert!(shown.len() < height.max(1));
            proptest::prop_assert!(shown.iter().all(|line| line.width() < width.max(1)), "{shown:?}");
        }
    }
}
