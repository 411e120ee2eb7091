//! `rolltap env`

use std::net::{Ipv4Addr, SocketAddr};
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use rolltap_orchestrator::env_server::{self, GymSettings};
use rolltap_orchestrator::environment::EnvironmentKind;

use crate::Outcome;
use crate::proxy::read_token;
use crate::terminal::{self, StopSignals};

/// Terminal environments over HTTP, for trainers that own the loop
///
/// Make an environment of a Harbor task, reset it, step it with keystrokes or with a model's answers, close it. The reward
/// is the verdict of the task's tests at the end of an episode.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Address to listen on. Off loopback it needs --token-file. Port 0 takes a free one.
    #[arg(long, env = "ROLLTAP_ENV_LISTEN", value_name = "ADDRESS", default_value_t = DEFAULT_LISTEN)]
    listen: SocketAddr,
    /// Where tasks run: docker, or local (directories and processes of this host, no sandbox). Environments may ask for
    /// docker in any case, and for local only if it is given here.
    #[arg(short, long, value_name = "KIND", default_value = "docker", value_parser = ["docker", "local"])]
    environment: String,
    /// Environments at once; one more is answered with 503.
    #[arg(long, value_name = "N", default_value_t = GymSettings::DEFAULT_MAX_ENVS)]
    max_envs: NonZeroUsize,
    /// Environments that are started at once; further ones wait.
    #[arg(long, value_name = "N", default_value_t = GymSettings::DEFAULT_MAX_STARTS)]
    max_starts: NonZeroUsize,
    /// Seconds after which an environment that nobody calls is removed, unless it asks for other ones.
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_LEASE)]
    lease: NonZeroU64,
    /// File with the token that callers must bear, of 16 characters at least; nobody else should be able to read it.
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

Stops on Ctrl-C or SIGTERM: steps under way are ended, and all environments removed.";

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
