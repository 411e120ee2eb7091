//! Waits for the first prompt and types the commands of an answer. Also used by callers that get a model's answers from
//! another source.

use std::time::Duration;

use crate::answer::Command;
use crate::terminal::{SendError, Terminal};

/// The time limit for the shell's first prompt.
const FIRST_PROMPT: Duration = Duration::from_secs(5);
/// The pause after which output counts as complete.
const QUIET: Duration = Duration::from_millis(50);
/// The time limit for output to pause, after the wait that the model requested.
const SETTLE: Duration = Duration::from_millis(500);

/// Returns when a new shell shows its prompt, or after a time limit.
pub async fn wait_for_prompt(terminal: &Terminal) {
    terminal.settled(2 * QUIET, FIRST_PROMPT).await;
}

/// Types the commands, waits after each for its duration, and lets the output settle. Ends early if the terminal
/// closes. Returns warnings for the model about commands that were not typed. If it is dropped early, no command was
/// typed in part.
pub async fn carry_out(terminal: &Terminal, commands: &[Command]) -> Vec<String> {
    let warning = type_all(terminal, commands).await;
    terminal.settled(QUIET, SETTLE).await;
    warning.into_iter().collect()
}

async fn type_all(terminal: &Terminal, commands: &[Command]) -> Option<String> {
    for (index, Command { keystrokes, wait }) in commands.iter().enumerate() {
        match terminal.send_keys(keystrokes).await {
            // The wait ends early if the terminal closes. Both ends are normal.
            Ok(()) => drop(tokio::time::timeout(*wait, terminal.closed()).await),
            Err(SendError::Closed) => return None,
            Err(SendError::NotReading) => {
                return Some(format!(
                    "The program in the terminal does not read its input. Command {} and those after it were not typed.",
                    index + 1
                ));
            }
        }
    }
    None
}
