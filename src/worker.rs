//! `rolltap worker`

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use rolltap_orchestrator::environment::EnvironmentKind;
use rolltap_orchestrator::job::worker::{WorkerSettings, WorkerStarted, work};
use sd_notify::NotifyState;

use crate::Outcome;
use crate::cluster_options::ClusterOptions;
use crate::connection_options::admin_tls;
use crate::option_values::one_or_more;
use crate::proxy::notify;
use crate::terminal;
use crate::token_file::read_token;

/// Run trials of a cluster on this host
///
/// A worker takes trials that `rolltap run --cluster` and `rolltap serve --cluster` put into the queue, runs them in its own
/// environments, and hands their results over. Start one on each host.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Run this many trials at once.
    #[arg(short = 'n', long, value_name = "NUMBER", default_value = "4", value_parser = one_or_more::<NonZeroUsize>,
          allow_negative_numbers = true)]
    slots: NonZeroUsize,
    /// Run trials in this environment: docker or local. Repeat the flag for both.
    ///
    /// A worker takes the trials of jobs with these environments alone. With local, agents can do all that your user can
    /// do.
    #[arg(
        short,
        long = "env",
        visible_alias = "environment",
        value_name = "ENVIRONMENT",
        value_delimiter = ',',
        default_value = "docker"
    )]
    environments: Vec<EnvironmentKind>,
    /// Open and seal trials at the admin plane of the cluster's proxy with this URL.
    #[arg(long, env = "ROLLTAP_PROXY", value_name = "ADMIN_URL")]
    proxy: String,
    /// Send the token in this file to that admin plane. It needs the roles open and reward.
    #[arg(long, env = "ROLLTAP_PROXY_TOKEN_FILE", value_name = "FILE")]
    proxy_token_file: Option<PathBuf>,
    /// Trust the authorities in this PEM file for that admin plane, besides those of the system. Repeat the flag for
    /// several files.
    #[arg(long, value_name = "FILE")]
    proxy_ca: Vec<PathBuf>,
    /// Identify the worker to that admin plane by the certificate in this PEM file.
    #[arg(long, value_name = "FILE", requires = "proxy_client_key")]
    proxy_client_cert: Option<PathBuf>,
    /// Read the private key of --proxy-client-cert from this PEM file.
    #[arg(long, value_name = "FILE", requires = "proxy_client_cert")]
    proxy_client_key: Option<PathBuf>,
    /// Name the worker in logs and results. [default: the name of the host]
    #[arg(long, env = "ROLLTAP_WORKER_NAME", value_name = "NAME")]
    name: Option<String>,
    /// Store tasks and the folders of running trials in this directory. [default: ~/.cache/rolltap/worker]
    ///
    /// Each worker of a host needs its own. Tasks remain there for later jobs.
    #[arg(long, env = "ROLLTAP_WORKER_DIR", value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterOptions,
}

const AFTER_HELP: &str = "\
Example:
  rolltap worker --cluster nats://host-a:4222,nats://host-b:4222,nats://host-c:4222 \\
    --cluster-objects s3://captures/runs --proxy http://rolltap.example:7071 \\
    --proxy-token-file worker.token -n 16
then, anywhere:
  rolltap run -p tasks -a terminal --cluster … --cluster-objects … --proxy http://rolltap.example:7071

Environment variables that a task or an agent refers to as ${NAME} come from this process.

After Ctrl-C or SIGTERM, the worker takes no further trial and ends when its trials have ended. A second
signal gives its trials back, and other workers begin them anew.

Exit codes: 0 after a signal; 1 if this host could run no further trial; 2 for wrong usage or configuration.";

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    let cancellation = terminal::drained_by_signals()?;
    let cluster = arguments.cluster.workers()?.context(
        "cluster is missing: give the URLs of the NATS servers as --cluster, like nats://127.0.0.1:4222",
    )?;
    let tls = admin_tls(arguments.proxy_ca, arguments.proxy_client_cert, arguments.proxy_client_key)?;
    let settings = WorkerSettings {
        cluster,
        name: arguments.name.unwrap_or_else(host_name),
        slots: arguments.slots,
        environments: arguments.environments,
        admin_url: arguments.proxy,
        token: arguments.proxy_token_file.as_deref().map(read_token).transpose()?,
        tls,
        dir: arguments.dir,
    };
    let worked = work(settings, cancellation, show_start).await;
    notify(NotifyState::Stopping);
    match worked {
        Ok(()) => Ok(Outcome::Done),
        Err(error) if error.is_of_the_host() => {
            terminal::report(&error.into());
            Ok(Outcome::Failed)
        }
        Err(error) => Err(error.into()),
    }
}

fn show_start(worker: &WorkerStarted) {
    let WorkerStarted { name, slots, dir } = worker;
    terminal::say(format_args!(
        "worker {name} takes trials, {slots} at once; tasks are in {}",
        dir.display()
    ));
    notify(NotifyState::Ready);
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
