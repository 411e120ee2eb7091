//! `rolltap env`

use std::net::{Ipv4Addr, SocketAddr};
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use rolltap_orchestrator::env_server::{self, GymSettings};
use rolltap_orchestrator::environment::EnvironmentKind;

use crate::Outcome;
use crate::terminal::{self, StopSignals};
use crate::token_file::read_token;

/// Serve terminal environments over HTTP, for trainers that own the loop
///
/// A trainer creates an environment of a Harbor task and resets it. It steps the environment with keystrokes or with
/// the answers of a model, and closes it. The reward is the verdict of the task's tests at the end of an episode.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Listen at this address. An address off loopback requires --token-file; port 0 takes a free port.
    #[arg(long, env = "ROLLTAP_ENV_LISTEN", value_name = "ADDRESS", default_value_t = DEFAULT_LISTEN)]
    listen: SocketAddr,
    /// Choose where tasks run: docker, or local (directories and processes of this host, without a sandbox).
    ///
    /// A request may choose docker in each case. It may choose local only with this flag.
    #[arg(short, long, value_name = "KIND", default_value = "docker", value_parser = ["docker", "local"])]
    environment: String,
    /// Limit the number of environments. The answer to a request for more is 503.
    #[arg(long, value_name = "N", default_value_t = GymSettings::DEFAULT_MAX_ENVS)]
    max_envs: NonZeroUsize,
    /// Limit the number of environments that start at the same time. Further starts wait.
    #[arg(long, value_name = "N", default_value_t = GymSettings::DEFAULT_MAX_STARTS)]
    max_starts: NonZeroUsize,
    /// Remove an environment after this many seconds without a call. A request may choose another lease.
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_LEASE)]
    lease: NonZeroU64,
    /// Require the token in this file from callers (Authorization: Bearer …).
    ///
    /// The token has at least 16 characters. Other users must not be able to read the file.
    #[arg(long, env = "ROLLTAP_ENV_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
}

const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7080);
const DEFAULT_LEASE: NonZeroU64 = NonZeroU64::MIN.saturating_add(GymSettings::DEFAULT_LEASE.as_secs() - 1);

const AFTER_HELP: &str = "\
Examples:
  rolltap env
  rolltap env -e local --listen 127.0.0.1:0

Then, for each environment (docs/reference/env-server-api.md has all calls):
  curl -s http://127.0.0.1:7080/v1/envs -H 'content-type: application/json' -d '{\"task\": \"/path/of/task\"}'
  curl -s -X POST http://127.0.0.1:7080/v1/envs/ID/reset
  curl -s http://127.0.0.1:7080/v1/envs/ID/step -d '{\"action\": {\"keystrokes\": \"ls\\n\"}}'

The server stops on Ctrl-C or SIGTERM. It ends the steps in flight and removes all environments.";

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    let mut stop = StopSignals::listen()?;
    let token = arguments.token_file.as_deref().map(read_token).transpose()?;
    let environment: EnvironmentKind = arguments.environment.parse()?;
    let server = env_server::start(GymSettings {
        listen: arguments.listen,
        token,
        environment,
        max_envs: arguments.max_envs,
        max_starts: arguments.max_starts,
        lease: Duration::from_secs(arguments.lease.get()),
    })
    .await?;
    terminal::say(format_args!("listening on http://{}", server.address()));
    stop.next().await;
    server.shutdown().await;
    Ok(Outcome::Done)
}
