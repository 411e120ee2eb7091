//! The agent's hands and eyes: waiting for a first prompt, and typing what an answer says. For whoever has the model's
//! answers from elsewhere, too.

use std::time::Duration;

use crate::answer::Command;
use crate::terminal::{SendError, Terminal};

/// How long the shell gets to show its first prompt.
const FIRST_PROMPT: Duration = Duration::from_secs(5);
/// Output that pauses for this long is taken as done.
const QUIET: Duration = Duration::from_millis(50);
/// How long output that is still coming is waited for, beyond what the model asked for.
const SETTLE: Duration = Duration::from_millis(500);

/// Returns when a shell that was just started shows its prompt, or takes too long to.
pub async fn wait_for_prompt(terminal: &Terminal) {
    terminal.settled(2 * QUIET, FIRST_PROMPT).await;
}

/// Types the commands, waits after each as long as it says, and lets the output settle. Ends early if the terminal closes.
/// What could not be typed is a warning for the model. Dropped half-way it has typed no part of a command.
pub async fn carry_out(terminal: &Terminal, commands: &[Command]) -> Vec<String> {
    let warning = type_all(terminal, commands).await;
    terminal.settled(QUIET, SETTLE).await;
    warning.into_iter().collect()
}

async fn type_all(terminal: &Terminal, commands: &[Command]) -> Option<String> {
    for (index, Command { keystrokes, wait }) in commands.iter().enumerate() {
        match terminal.send_keys(keystrokes).await {
            // Ends early if the terminal closes; both ends of the wait are good.
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
