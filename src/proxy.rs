//! `rolltap proxy`

mod config;
mod node;
mod node_options;
mod options;
mod resolve;
mod tables;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rolltap_proxy::{PAGES_PATH, Settings};
use rolltap_viewer::{Collection, pages_below};
use sd_notify::NotifyState;

use self::config::GivenOptions;
pub(crate) use self::config::ProxyConfig;
#[cfg(test)]
pub(crate) use self::tables::FileTables;
use crate::Outcome;
use crate::connection_options::warn_of_plain_text;
use crate::terminal::{self, StopSignals};

/// Run the proxy alone, beside any trial runner
///
/// Agents call the agent plane with the key of a trial. At the admin plane, runners and trainers open, seal and reward
/// trials, and fetch calls and rollouts. Its path /ui has web pages over all trials.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Read settings from this TOML file (see configs/proxy.toml). Flags and environment variables override it.
    #[arg(long, env = "ROLLTAP_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Stop at the end of standard input, as at SIGTERM.
    ///
    /// The program that starts the proxy gives it a pipe as standard input, and holds the other end. When that program
    /// ends, even by SIGKILL, the pipe closes and the proxy stops.
    #[arg(long)]
    until_stdin_ends: bool,
    #[command(flatten)]
    given: GivenOptions,
}

/// How long calls in flight may continue after a signal to stop.
pub(super) const GRACE: Duration = Duration::from_secs(30);

const AFTER_HELP: &str = "\
Examples:
  rolltap proxy --upstream http://127.0.0.1:8000
  rolltap proxy --config configs/proxy.toml --listen 127.0.0.1:0

Then, for each trial:
  curl -s http://127.0.0.1:7071/v1/trials -H 'content-type: application/json' \\
    -d '{\"task_id\": \"hello\"}'
and give the agent the base_urls and the key of the answer.

The proxy stops on Ctrl-C or SIGTERM. It takes no new call, and calls in flight have 30 s to end.";

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    let mut stop = StopSignals::listen()?;
    if arguments.until_stdin_ends {
        stop.watch_input()?;
    }
    let (mut settings, node) =
        ProxyConfig::merged(arguments.config.as_deref(), arguments.given)?.settings()?;
    let captures = Collection::of_data_dir(&settings.data_dir);
    settings.pages = Some(pages_below(PAGES_PATH, captures, settings.render.tokenizer.clone()));
    terminal::hide_from_logs(Arc::clone(&settings.redaction));
    let scheme = if settings.agent_tls.is_some() { "https" } else { "http" };
    let exposed = planes_in_plain_text(&settings);
    if let Some(node) = node {
        return node::run(settings, node, exposed, stop).await;
    }
    let proxy = rolltap_proxy::start(settings).await?;
    announce(exposed, scheme, proxy.agent_addrs(), proxy.admin_addr());
    notify(NotifyState::Ready);
    // A broken store records nothing, so calls in flight get no time to end.
    let (grace, broken) = tokio::select! {
        () = stop.next() => (GRACE, None),
        error = proxy.broken() => (Duration::ZERO, Some(error)),
    };
    notify(NotifyState::Stopping);
    let stopped = proxy.shutdown(grace).await;
    match (broken, stopped) {
        (Some(error), _) => Err(error.into()),
        (None, Err(error)) => {
            terminal::report(&error.into());
            Ok(Outcome::Failed)
        }
        (None, Ok(())) => Ok(Outcome::Done),
    }
}

/// Prints the addresses of both planes, and a warning if other machines reach some without TLS.
fn announce(exposed: Option<String>, scheme: &str, agents: &[SocketAddr], admin: SocketAddr) {
    if let Some(planes) = exposed {
        warn_of_plain_text(&planes);
    }
    for address in agents {
        terminal::say(format_args!("agent plane listens on {scheme}://{address}"));
    }
    terminal::say(format_args!("admin plane listens on {scheme}://{admin}"));
    terminal::say(format_args!("viewer is at {scheme}://{admin}{PAGES_PATH}"));
}

/// Returns the addresses that other machines reach without TLS, with their flags. `None` if there is no such address.
fn planes_in_plain_text(settings: &Settings) -> Option<String> {
    if settings.agent_tls.is_some() {
        return None;
    }
    let agents = settings.listen.iter().map(|address| ("--listen", *address));
    let planes = agents.chain([("--admin", settings.admin)]);
    let exposed = planes.filter(|(_, address)| !address.ip().is_loopback());
    let exposed: Vec<String> = exposed.map(|(flag, address)| format!("{flag} {address}")).collect();
    (!exposed.is_empty()).then(|| exposed.join(" and "))
}

/// Notifies systemd, or another program that starts the proxy and sets `NOTIFY_SOCKET`.
pub(crate) fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!("the service manager behind NOTIFY_SOCKET cannot be notified: {error}");
    }
}
