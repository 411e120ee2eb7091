//! The Python process that runs Harbor's trials: one per job, in a process group of its own. If it dies, its trials end
//! with a failure, and the next trial starts a new process.

use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::error::HarborError;
use super::protocol::{News, Order, TrialEvent};
use crate::environment::Tail;
use crate::job_dir::Log;

const PROGRAM: &str = include_str!("worker.py");

/// The maximum length of a message in bytes. A longer line is not the worker's.
const LONGEST_NEWS: u64 = 16 * 1024 * 1024;
/// The maximum length of a line of Harbor's log in bytes. A longer line is split.
const LONGEST_LOG: u64 = 16 * 1024;
/// The time for which the worker may remove its environments before it is killed.
const END_GRACE: Duration = Duration::from_secs(15);
/// The time limit for reading the last lines of its log.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A worker that was started. It may have died since.
pub(super) struct Worker {
    orders: UnboundedSender<String>,
    routes: Arc<Routes>,
    child: tokio::sync::Mutex<Child>,
    group: Option<Pid>,
    logs: Mutex<Option<JoinHandle<Tail>>>,
}

/// The receivers of messages by trial. `None` once the worker is gone. The name "" gets messages that concern no trial.
#[derive(Default)]
struct Routes(Mutex<Option<HashMap<String, UnboundedSender<News>>>>);

/// A running trial in the worker. Dropping this value stops its messages, but does not end the trial.
pub(crate) struct HarborTrial {
    worker: Arc<Worker>,
    name: String,
    news: UnboundedReceiver<News>,
}

impl Worker {
    /// Starts a worker with this Python. The receiver gets messages that concern no trial.
    pub(super) fn start(
        python: &Path,
        log: &Arc<Log>,
    ) -> Result<(Self, UnboundedReceiver<News>), HarborError> {
        let no_python = |source| HarborError::NoPython { python: python.to_owned(), source };
        let mut child = Command::new(python)
            // `-P` excludes modules of the working directory, because a task may be named harbor.
            .args(["-u", "-P", "-c", PROGRAM])
            // LiteLLM would fetch a list of prices at import, and Harbor would send telemetry.
            .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
            .env("HARBOR_TELEMETRY", "0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C must reach only the job, which ends the worker in its own order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(no_python)?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let (orders, waiting) = unbounded_channel();
        let routes = Arc::new(Routes(Mutex::new(Some(HashMap::new()))));
        let own = routes.listen(String::new());
        if let Some(stdin) = child.stdin.take() {
            tokio::spawn(write(stdin, waiting));
        }
        if let Some(stdout) = child.stdout.take() {
            tokio::spawn(read(stdout, Arc::clone(&routes), Arc::clone(log)));
        }
        let logs = child.stderr.take().map(|stderr| tokio::spawn(keep_log(stderr, Arc::clone(log))));
        let child = tokio::sync::Mutex::new(child);
        Ok((Self { orders, routes, child, group, logs: Mutex::new(logs) }, own))
    }

    pub(super) fn is_alive(&self) -> bool {
        self.routes.lock().is_some()
    }

    pub(super) fn order(&self, order: &Order<'_>) {
        if let Ok(line) = serde_json::to_string(order) {
            // A trial notices the death of its worker by itself: its receiver ends.
            let _ = self.orders.send(line);
        }
    }

    pub(super) fn run(self: &Arc<Self>, name: &str, config: &Value) -> HarborTrial {
        let news = self.routes.listen(name.to_owned());
        self.order(&Order::Run { trial: name, config });
        HarborTrial { worker: Arc::clone(self), name: name.to_owned(), news }
    }

    /// Returns the last lines of the worker's log, after it has ended.
    pub(super) async fn last_words(&self) -> String {
        let logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(logs) = logs else { return String::new() };
        match timeout(LAST_WORDS, logs).await {
            Ok(Ok(tail)) => tail.text(),
            Ok(Err(_)) | Err(_) => String::new(),
        }
    }

    /// Asks the worker to end its trials, waits for it, and kills the rest of its group after a timeout.
    pub(super) async fn end(&self) {
        let mut child = self.child.lock().await;
        if let (Some(leader), Ok(None)) = (self.group, child.try_wait()) {
            // Only the leader gets the signal, because the programs that remove its environments must survive it.
            let _ = kill_process(leader, Signal::TERM);
            if timeout(END_GRACE, child.wait()).await.is_err() {
                let _ = kill_process_group(leader, Signal::KILL);
            }
            let _ = child.wait().await;
        }
    }
}

impl Routes {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<HashMap<String, UnboundedSender<News>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a receiver for the messages of this name. It ends at once if the worker is gone.
    fn listen(&self, name: String) -> UnboundedReceiver<News> {
        let (sender, receiver) = unbounded_channel();
        if let Some(routes) = self.lock().as_mut() {
            routes.insert(name, sender);
        }
        receiver
    }

    fn forget(&self, name: &str) {
        if let Some(routes) = self.lock().as_mut() {
            routes.remove(name);
        }
    }

    fn deliver(&self, news: News) {
        let name = match &news {
            News::OfTrial { trial, .. } => trial.as_str(),
            News::Hello { .. } | News::Checked(_) => "",
        };
        if let Some(listener) = self.lock().as_ref().and_then(|routes| routes.get(name)) {
            // A closed receiver belongs to a trial that has been dropped.
            let _ = listener.send(news);
        }
    }
}

impl HarborTrial {
    /// Returns the next event of the trial, or `None` if the worker has died.
    pub(crate) async fn next(&mut self) -> Option<TrialEvent> {
        loop {
            match self.news.recv().await? {
                News::OfTrial { event, .. } => return Some(event),
                News::Hello { .. } | News::Checked(_) => {}
            }
        }
    }

    /// Lets Harbor continue with the tests.
    pub(crate) fn go(&self) {
        self.worker.order(&Order::Go { trial: &self.name });
    }

    /// Ends the trial. [`TrialEvent::Ended`] follows.
    pub(crate) fn cancel(&self) {
        self.worker.order(&Order::Cancel { trial: &self.name });
    }
}

impl Drop for HarborTrial {
    fn drop(&mut self) {
        self.worker.routes.forget(&self.name);
    }
}

/// Writes orders until all senders are dropped or the worker is gone.
async fn write(mut stdin: ChildStdin, mut orders: UnboundedReceiver<String>) {
    while let Some(mut line) = orders.recv().await {
        line.push('\n');
        if stdin.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Delivers messages until the worker is gone or sends an invalid message. Then all receivers end.
async fn read(stdout: impl AsyncRead + Unpin, routes: Arc<Routes>, log: Arc<Log>) {
    let mut stdout = BufReader::new(stdout);
    while let Some(line) = line(&mut stdout, LONGEST_NEWS).await {
        match serde_json::from_slice(&line) {
            Ok(news) => routes.deliver(news),
            Err(error) => {
                log.line(format!("harbor's worker sent a message that cannot be read: {error}"));
                break;
            }
        }
    }
    // Dropping the senders ends every receiver.
    routes.lock().take();
}

/// Copies Harbor's log to the job's log. Returns its last lines, for errors.
async fn keep_log(stderr: impl AsyncRead + Unpin, log: Arc<Log>) -> Tail {
    let mut stderr = BufReader::new(stderr);
    let mut tail = Tail::default();
    while let Some(line) = line(&mut stderr, LONGEST_LOG).await {
        let text = String::from_utf8_lossy(&line);
        tail.push(&text);
        log.line(format!("harbor: {}", text.trim_end()));
    }
    tail
}

/// Reads a line with its newline, or at most `longest` bytes. Returns `None` at the end of the stream.
async fn line(stream: &mut (impl AsyncBufReadExt + Unpin), longest: u64) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    match stream.take(longest).read_until(b'\n', &mut line).await {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_long_line_comes_in_parts_and_the_end_is_told() {
        let mut stream = BufReader::new(&b"abc\nabcdef"[..]);
        let mut lines = Vec::new();
        while let Some(part) = line(&mut stream, 4).await {
            lines.push(String::from_utf8(part).unwrap());
        }
        assert_eq!(lines, ["abc\n", "abcd", "ef"]);
    }

    #[tokio::test]
    async fn news_of_a_dead_worker_ends_at_once() {
        let routes = Arc::new(Routes(Mutex::new(Some(HashMap::new()))));
        let mut before = routes.listen("t".to_owned());
        let log = tempfile::tempdir().unwrap();
        let log = Arc::new(Log::create(&log.path().join("log")).unwrap());
        let said = b"{\"event\": \"agent_end\", \"trial\": \"t\"}\nTraceback\n";
        read(&said[..], Arc::clone(&routes), log).await;
        let news = News::OfTrial { trial: "t".to_owned(), event: TrialEvent::AgentEnd };
        assert_eq!(before.recv().await, Some(news));
        assert_eq!(before.recv().await, None);
        assert_eq!(routes.listen("u".to_owned()).recv().await, None);
    }
}
