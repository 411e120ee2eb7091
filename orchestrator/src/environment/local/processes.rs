//! Finding and killing the processes of a local environment.
//!
//! Everything that is started there carries a mark in its environment variables, which children inherit. So processes
//! that left their group or session are found too; one that also cleared its environment is not: this is no sandbox.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// In the environment of everything that an environment starts.
pub(super) const MARK: &str = "ROLLTAP_ENVIRONMENT";
/// In the environment of everything that one command starts.
pub(super) const COMMAND_MARK: &str = "ROLLTAP_EXEC";

/// Processes may fork while they are listed, so the list is read until it is empty.
const ROUNDS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// Kills every process with this mark. False if there are some still.
pub(super) async fn kill_marked(name: &str, mark: &str) -> bool {
    for _ in 0..ROUNDS {
        if kill_marked_now(name, mark) == 0 {
            return true;
        }
        tokio::time::sleep(PAUSE).await;
    }
    false
}

/// One round of it. Returns how many there were.
pub(super) fn kill_marked_now(name: &str, mark: &str) -> usize {
    let assignment = format!("{name}={mark}").into_bytes();
    let is_marked =
        |environ: Vec<u8>| environ.split(|byte| *byte == 0).any(|variable| variable == assignment);
    let Ok(processes) = fs::read_dir("/proc") else { return 0 };
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let marked = pids.filter(|pid| fs::read(format!("/proc/{pid}/environ")).is_ok_and(is_marked));
    let mut found = 0;
    for pid in marked.filter_map(Pid::from_raw) {
        // It may have ended by itself in between.
        let _ = kill_process(pid, Signal::KILL);
        found += 1;
    }
    found
}

/// Kills a group whose leader has not been waited for, so that its id cannot be another's.
pub(super) fn kill_group(leader: Option<u32>) {
    let leader = leader.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    if let Some(leader) = leader {
        let _ = kill_process_group(leader, Signal::KILL);
    }
}
