//! Runs the terminal agent in a tmux session of the environment, so that a person can watch it.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use rolltap_agent::terminal::{CommandOutput, Ran, RunCommand};
use tokio::sync::{mpsc, oneshot};

use crate::environment::{Environment, EnvironmentKind, Exec, ExecOutput, Tail};
use crate::failure::{Cause, Phase, TrialFailure};

/// The session's name, for `tmux attach -t`.
pub(crate) const SESSION: &str = "rolltap";
/// The time limit of a tmux command. tmux answers at once, but a Docker engine under load does not.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// Installs tmux with the image's package manager, unless tmux exists.
const INSTALL: &str = r#"command -v tmux >/dev/null 2>&1 && exit 0
if command -v apt-get >/dev/null 2>&1; then
  export DEBIAN_FRONTEND=noninteractive; apt-get update && apt-get install -y --no-install-recommends tmux
elif command -v apk >/dev/null 2>&1; then apk add --no-cache tmux
elif command -v dnf >/dev/null 2>&1; then dnf install -y tmux
elif command -v yum >/dev/null 2>&1; then yum install -y tmux
elif command -v zypper >/dev/null 2>&1; then zypper install -y -n tmux
elif command -v pacman >/dev/null 2>&1; then pacman -Sy --noconfirm tmux
else echo "no package manager that is known" >&2; exit 1
fi >&2
command -v tmux >/dev/null 2>&1"#;

/// Ensures that tmux exists, within the time limit of the agent's setup.
pub(crate) async fn install(
    environment: &Environment,
    timeout: Option<Duration>,
) -> Result<(), TrialFailure> {
    let is_container = environment.kind() == EnvironmentKind::Docker;
    let exec = Exec {
        // On a host nothing is installed.
        command: if is_container { INSTALL } else { "command -v tmux" }.to_owned(),
        user: is_container.then(|| "root".to_owned()),
        timeout,
        ..Exec::default()
    };
    match environment.exec(exec).await {
        Ok(output) if output.exit_code == Some(0) => Ok(()),
        Ok(output) => {
            let mut said = Tail::default();
            said.push(&String::from_utf8_lossy(&output.stderr));
            let why = format!("there is no tmux, and it could not be installed: {}", said.text());
            Err(TrialFailure::new(Phase::AgentSetup, Cause::Environment, why))
        }
        Err(error) => Err(TrialFailure::from_error(Phase::AgentSetup, Cause::Environment, &error)),
    }
}

struct TmuxRequest {
    command: String,
    done: oneshot::Sender<io::Result<CommandOutput>>,
}

/// Passes commands to [`serve`], so that a terminal does not borrow the environment.
pub(crate) struct Relay(mpsc::Sender<TmuxRequest>);

/// The receiver of the commands, for [`serve`].
pub(crate) struct Requests(mpsc::Receiver<TmuxRequest>);

pub(crate) fn relay() -> (Relay, Requests) {
    let (sender, receiver) = mpsc::channel(1);
    (Relay(sender), Requests(receiver))
}

impl RunCommand for Relay {
    fn run(&self, command: String) -> Ran<'_> {
        Box::pin(async move {
            let (done, output) = oneshot::channel();
            let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
            self.0.send(TmuxRequest { command, done }).await.map_err(|_| gone())?;
            output.await.map_err(|_| gone())?
        })
    }
}

/// Runs the commands as this user, one after the other, until the relay is dropped.
pub(crate) async fn serve(requests: Requests, environment: &Environment, user: Option<&str>) {
    let Requests(mut requests) = requests;
    let env = variables(environment);
    while let Some(TmuxRequest { command, done }) = requests.recv().await {
        let exec = Exec {
            command,
            env: env.clone(),
            user: user.map(str::to_owned),
            timeout: Some(COMMAND_TIMEOUT),
            ..Exec::default()
        };
        let output = environment.exec(exec).await.map(output_of).map_err(io::Error::other);
        // The caller may have been cancelled.
        let _ = done.send(output);
    }
}

fn output_of(output: ExecOutput) -> CommandOutput {
    CommandOutput { success: output.exit_code == Some(0), stdout: output.stdout, stderr: output.stderr }
}

/// Returns variables for tmux. On a host the trial has a tmux server of its own. In a container `tmux attach` must find
/// the server, so it is the default one.
fn variables(environment: &Environment) -> BTreeMap<String, String> {
    if environment.kind() != EnvironmentKind::Local {
        return BTreeMap::new();
    }
    let scratch = Path::new(&environment.paths().logs).with_file_name("tmp");
    BTreeMap::from([("TMUX_TMPDIR".to_owned(), scratch.to_string_lossy().into_owned())])
}
