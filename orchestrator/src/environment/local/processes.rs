//! Finds and kills the processes of a local environment.
//!
//! Every process has a mark in its environment variables, which children inherit. The mark also finds processes that
//! left their group or session. It does not find a process that cleared its environment: this is no sandbox.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// The variable that marks every process of an environment.
pub(super) const MARK: &str = "ROLLTAP_ENVIRONMENT";
/// The variable that marks every process of one command.
pub(super) const COMMAND_MARK: &str = "ROLLTAP_EXEC";

/// The most rounds of listing. Processes may fork during one, so the list is read until it is empty.
const ROUNDS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// Kills every process with this mark. Returns false if some remain after all rounds.
pub(super) async fn kill_marked(name: &str, mark: &str) -> bool {
    for _ in 0..ROUNDS {
        if kill_marked_now(name, mark) == 0 {
            return true;
        }
        tokio::time::sleep(PAUSE).await;
    }
    false
}

/// Kills the marked processes that exist now, and returns their number.
pub(super) fn kill_marked_now(name: &str, mark: &str) -> usize {
    let assignment = format!("{name}={mark}").into_bytes();
    let is_marked =
        |environ: Vec<u8>| environ.split(|byte| *byte == 0).any(|variable| variable == assignment);
    let Ok(processes) = fs::read_dir("/proc") else { return 0 };
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let marked = pids.filter(|pid| fs::read(format!("/proc/{pid}/environ")).is_ok_and(is_marked));
    let mut found = 0;
    for pid in marked.filter_map(Pid::from_raw) {
        // The process may have ended since the listing.
        let _ = kill_process(pid, Signal::KILL);
        found += 1;
    }
    found
}

/// Kills a process group. Its leader must not have been waited for yet, so that its id cannot belong to another
/// process.
pub(super) fn kill_group(leader: Option<u32>) {
    let leader = leader.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    if let Some(leader) = leader {
        let _ = kill_process_group(leader, Signal::KILL);
    }
}
