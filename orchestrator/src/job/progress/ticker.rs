//! The thread that redraws the progress, or writes a line at intervals. It is no task of the runtime, whose threads may
//! be busy.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::board::Board;
use super::lines;
use super::output::{self, Output};
use super::screen;
use crate::common::activity::Activities;

/// The time between two drawings.
const REDRAW: Duration = Duration::from_millis(200);
/// The time between two looks at activities without a terminal.
const LOOK: Duration = Duration::from_secs(1);
/// The time between two lines without a terminal.
const HEARTBEAT: Duration = Duration::from_secs(60);
/// Activities that take less time get no line.
const ACTIVITY_PATIENCE: Duration = Duration::from_secs(3);

/// The values that the job, its trials and the ticker share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) output: Output,
    pub(super) activities: Activities,
    board: Mutex<Board>,
}

impl Shared {
    pub(super) fn new(output: Output) -> Self {
        let board = Mutex::new(Board::new(Instant::now()));
        Self { output, activities: Activities::default(), board }
    }

    pub(super) fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn redraw(&self) {
        let running = self.activities.running();
        let drawn = screen::lines(&self.board(), &running, Instant::now(), output::size());
        self.output.redraw(&drawn);
    }
}

/// The lines that are due without a terminal.
#[derive(Debug)]
struct Heartbeat {
    next: Instant,
}

impl Heartbeat {
    /// Returns the lines that are due: news of activities, and the state of the job once a minute.
    fn due(&mut self, board: &Board, activities: &Activities, now: Instant) -> Vec<String> {
        let news = activities.news(now, ACTIVITY_PATIENCE);
        let mut due: Vec<_> = news.iter().map(|news| lines::activity(news, now)).collect();
        if now >= self.next {
            self.next = now + HEARTBEAT;
            // Before the job is planned, only activities can be named.
            if board.planned > 0 {
                due.push(lines::heartbeat(board, now));
            }
        }
        due
    }
}

/// The running thread. It ends when this value is dropped.
#[derive(Debug)]
pub(super) struct Ticker {
    shared: Arc<Shared>,
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    /// Starts the thread. `None` if there is no output. If the system starts no further thread, only ends of trials are
    /// shown.
    pub(super) fn start(shared: &Arc<Shared>) -> Option<Self> {
        let (stop, stopped) = mpsc::channel();
        let inside = Arc::clone(shared);
        let run: Box<dyn FnOnce() + Send> = match shared.output {
            Output::Quiet => return None,
            Output::Redrawn(_) => Box::new(move || every(REDRAW, &stopped, || inside.redraw())),
            Output::Lines => {
                let mut heartbeat = Heartbeat { next: Instant::now() + HEARTBEAT };
                Box::new(move || {
                    every(LOOK, &stopped, || {
                        let due = heartbeat.due(&inside.board(), &inside.activities, Instant::now());
                        due.iter().for_each(|line| inside.output.line(line));
                    });
                })
            }
        };
        let thread = thread::Builder::new().name("progress".to_owned()).spawn(run).ok();
        Some(Self { shared: Arc::clone(shared), stop: Some(stop), thread })
    }
}

fn every(pause: Duration, stopped: &mpsc::Receiver<()>, mut tick: impl FnMut()) {
    while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        tick();
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has already been printed.
            drop(thread.join());
        }
        self.shared.output.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_due_each_minute_and_after_a_few_seconds_of_an_activity() {
        let start = Instant::now();
        let (mut board, activities) = (Board::new(start), Activities::default());
        let mut heartbeat = Heartbeat { next: start + HEARTBEAT };
        assert!(heartbeat.due(&board, &activities, start + HEARTBEAT).is_empty(), "the job is not planned");
        board.plan(3, &[], start);
        let building = activities.begin("building the image of", "hello");
        let later = start + HEARTBEAT * 2;
        let due = heartbeat.due(&board, &activities, later);
        assert_eq!(due, ["building the image of hello …", "[0/3] 0 running, 0 failed, 2:00"]);
        drop(building);
        let due = heartbeat.due(&board, &activities, later + LOOK);
        assert_eq!(due.len(), 1, "{due:?}");
        assert!(due.concat().starts_with("building the image of hello: ended after 2:0"), "{due:?}");
    }
}
