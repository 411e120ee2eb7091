//! `rolltap run`

mod env_file;
mod harbor_options;
mod harbor_table;
mod options;
mod print_config;

use std::num::NonZeroUsize;
use std::path::Path;

use anyhow::Context;
use rolltap_orchestrator::agents::AgentOptions;
use rolltap_orchestrator::job::config::{AgentDefaults, AgentEntry, JobConfig, JobFile, OwnConfig};
use rolltap_orchestrator::job::{
    JobSettings, Outline, Progress, ProxyChoice, PublicPlace, Upstreams, run_job, tasks,
};
use rolltap_orchestrator::trial::Events;
use rolltap_orchestrator::trial::runner::harbor::HarborSettings;
use rolltap_proxy::{Address, PlaneTls};

pub(crate) use self::env_file::load as load_env_file;
pub(crate) use self::harbor_table::remedy;
#[cfg(test)]
pub(crate) use self::harbor_table::{Here, OPTIONS as HARBOR_OPTIONS};
pub(crate) use self::options::Arguments;
use self::print_config::print_config;
use crate::connection_options::{admin_tls, warn_of_plain_text};
use crate::option_values::Concurrency;
use crate::token_file::read_token;
use crate::{Outcome, terminal};

/// The number of trials that a job offers to workers at once, unless the user gives another one.
const OFFERED: usize = 1_000;

pub(crate) async fn run(mut arguments: Arguments) -> anyhow::Result<Outcome> {
    let file = job_file(&arguments)?;
    let file = with_flags(file, &mut arguments)?;
    if arguments.print_config {
        print_config(file, &arguments);
        return Ok(Outcome::Done);
    }
    let JobFile { job, own } = file;
    if job.agents.iter().flatten().all(|agent| agent.name.is_none()) && !arguments.quiet {
        terminal::note(
            "note: no agent is chosen, so the oracle runs the solution of each task; -a chooses an agent",
        );
    }
    // Lines of progress are not JSON.
    let mut progress = Progress::for_stderr(arguments.quiet || job.quiet || terminal::logs_json());
    let json = arguments.json;
    if json {
        progress = progress.telling(Events::to(std::io::stdout()));
    }
    let (rows, dry_run) = (arguments.rows, arguments.dry_run);
    let reading = progress.activity("reading", "the tasks");
    let mut settings = settings(job, own, arguments).await?;
    drop(reading);
    if dry_run {
        return show_plan(&mut settings);
    }
    let report = run_job(settings, progress, terminal::cancelled_by_signals()?).await?;
    if json {
        terminal::note(terminal::summary(&report, &std::io::stderr()).rows(rows));
    } else {
        terminal::say(terminal::summary(&report, &std::io::stdout()).rows(rows));
    }
    Ok(if report.is_clean() { Outcome::Done } else { Outcome::Failed })
}

/// Returns the settings of a job of these arguments and their file.
pub(crate) async fn job_settings(mut arguments: Arguments) -> anyhow::Result<JobSettings> {
    let file = job_file(&arguments)?;
    let JobFile { job, own } = with_flags(file, &mut arguments)?;
    settings(job, own, arguments).await
}

/// Asserts that each of these is the id of an option of `rolltap run`.
#[cfg(test)]
pub(crate) fn assert_options(ids: &[&str]) {
    let command = <Arguments as clap::Args>::augment_args(clap::Command::new("run"));
    for id in ids {
        assert!(command.get_arguments().any(|argument| argument.get_id() == id), "{id}");
    }
}

/// Prints the plan of the job. Fails as the job would.
fn show_plan(settings: &mut JobSettings) -> anyhow::Result<Outcome> {
    let outline = Outline::of(settings)?;
    terminal::say(&outline);
    match outline.problem() {
        Some(problem) => Err(problem.into()),
        None => Ok(Outcome::Done),
    }
}

/// Reads the job file, or the configuration of the job to resume. Without both, the settings are empty.
fn job_file(arguments: &Arguments) -> anyhow::Result<JobFile> {
    if let Some(path) = &arguments.config {
        return JobFile::read(path).with_context(|| format!("job file {} cannot be used", path.display()));
    }
    let Some(dir) = &arguments.resume else { return Ok(JobFile::default()) };
    let dir = dir.canonicalize().with_context(|| format!("no job directory {}", dir.display()))?;
    let mut file = JobFile::read(&dir.join("config.json"))
        .with_context(|| format!("cannot resume the job in {}", dir.display()))?;
    // The directory may have moved since the job began, so its present name counts.
    file.job.job_name = dir.file_name().map(|name| name.to_string_lossy().into_owned());
    file.job.jobs_dir = dir.parent().map(Path::to_owned);
    Ok(file)
}

/// Overrides the settings of the file with flags and variables.
fn with_flags(mut file: JobFile, arguments: &mut Arguments) -> anyhow::Result<JobFile> {
    let JobFile { job, own } = &mut file;
    job.n_attempts = arguments.samples.or(job.n_attempts);
    if let Some(Concurrency { most, is_auto }) = arguments.concurrency {
        (job.n_concurrent_trials, own.auto_concurrency) = (Some(most), is_auto);
    }
    if arguments.cluster.is_given() {
        // The slots of the workers are the limit.
        job.n_concurrent_trials = job.n_concurrent_trials.or(NonZeroUsize::new(OFFERED));
    }
    job.jobs_dir = arguments.jobs_dir.take().or(job.jobs_dir.take());
    job.job_name = arguments.job_name.take().or(job.job_name.take());
    job.timeout_multiplier = arguments.timeout_multiplier.or(job.timeout_multiplier);
    job.retry.max_retries = arguments.max_retries.unwrap_or(job.retry.max_retries);
    if arguments.force_build || arguments.no_force_build {
        job.environment.force_build = arguments.force_build;
    }
    own.n_concurrent_per_task = arguments.n_concurrent_per_task.or(own.n_concurrent_per_task);
    own.skip_invalid |= arguments.skip_invalid;
    own.kill_agent_processes |= arguments.kill_agent_processes;
    own.messages |= arguments.messages;
    own.reward = arguments.reward.take().or(own.reward.take());
    own.max_empty_trials = arguments.max_empty_trials.or(own.max_empty_trials);
    own.environment = arguments.environment.map(|kind| kind.to_string()).or(own.environment.take());
    if let Some(agents) = agents(arguments, job) {
        job.agents = Some(agents);
    }
    let paths = std::mem::take(&mut arguments.path);
    std::mem::take(&mut arguments.harbor).apply(job, paths)?;
    // An upstream on the command line replaces the proxy of the file, and --proxy replaces its token and files too.
    if arguments.proxy.is_some() || !arguments.upstream.is_empty() {
        own.proxy = arguments.proxy.take();
        own.proxy_token_file = arguments.proxy_token_file.take();
        own.proxy_ca = std::mem::take(&mut arguments.proxy_ca);
        own.proxy_client_cert = arguments.proxy_client_cert.take();
        own.proxy_client_key = arguments.proxy_client_key.take();
    }
    if arguments.listen.is_some() {
        own.listen = arguments.listen;
        own.public_url = arguments.public_url.take();
    }
    own.sampling = arguments.sampling.take().or(own.sampling.take());
    arguments.prompts.or(own);
    arguments.upstream_connections.or(own);
    arguments.plane_tls.or(own);
    Ok(file)
}

/// Returns an agent per model of the flags. `None` if the flags name neither agent nor model.
fn agents(arguments: &mut Arguments, job: &JobConfig) -> Option<Vec<AgentEntry>> {
    let models = std::mem::take(&mut arguments.model);
    let agents = match arguments.agent.take() {
        Some(name) => vec![AgentEntry { name: Some(name), ..AgentEntry::default() }],
        None if models.is_empty() => return None,
        None => job.agents.clone()?,
    };
    if models.is_empty() {
        return Some(agents);
    }
    let with =
        |agent: &AgentEntry, model: &String| AgentEntry { model_name: Some(model.clone()), ..agent.clone() };
    Some(agents.iter().flat_map(|agent| models.iter().map(|model| with(agent, model))).collect())
}

async fn settings(job: JobConfig, own: OwnConfig, arguments: Arguments) -> anyhow::Result<JobSettings> {
    let environment = job.environment_kind(&own)?;
    let runner = environment.runner();
    let defaults = AgentDefaults {
        runner,
        options: AgentOptions {
            command: arguments.agent_command.clone(),
            max_turns: arguments.max_turns,
            harbor_python: arguments.harbor_python.clone(),
            kwargs: arguments.agent_kwarg.iter().cloned().collect(),
            env: arguments.agent_env.iter().cloned().collect(),
        },
    };
    let agents = job.job_agents(&defaults)?;
    let history = arguments.prompts.history;
    let harbor = HarborSettings {
        python: arguments.harbor_python.clone(),
        environment_type: arguments
            .harbor_env
            .clone()
            .unwrap_or_else(|| HarborSettings::default().environment_type),
        environment_kwargs: arguments.harbor_env_kwarg.iter().cloned().collect(),
    };
    let preflight = !arguments.no_preflight && own.preflight.unwrap_or(true);
    let traces = arguments.traces.clone().settings()?;
    let cluster = arguments.cluster.clone().workers()?;
    let proxy = proxy(&job, own.clone(), arguments)?;
    let found = tasks::find(&job, runner).await?;
    let settings = JobSettings::of_file(JobFile { job, own }, agents, found, proxy)?;
    Ok(JobSettings { harbor, preflight, history, traces, cluster, ..settings })
}

fn proxy(job: &JobConfig, own: OwnConfig, arguments: Arguments) -> anyhow::Result<ProxyChoice> {
    if let Some(admin_url) = own.proxy {
        if !arguments.upstream.is_empty() {
            terminal::note("note: with --proxy, its own upstreams are used, not --upstream");
        }
        let token = own.proxy_token_file.as_deref().map(read_token).transpose()?;
        let tls = admin_tls(own.proxy_ca, own.proxy_client_cert, own.proxy_client_key)?;
        return Ok(ProxyChoice::External { admin_url, token, tls });
    }
    let public = public_place(&own, arguments.plane_tls.files()?)?;
    let render = arguments.prompts.render_settings()?;
    let http_proxy = arguments.upstream_connections.http_proxy()?;
    let session_headers = arguments.upstream_connections.session_headers()?;
    let tls = arguments.upstream_connections.files()?;
    let api_key = arguments.upstream_api_key.or(own.upstream_api_key);
    if !arguments.upstream.is_empty() {
        let upstreams = Box::new(Upstreams {
            addresses: arguments.upstream,
            api_key,
            render,
            tls,
            http_proxy,
            session_headers,
        });
        return Ok(ProxyChoice::Embedded { upstreams, public });
    }
    // Harbor's agents may name the upstream themselves. The section `rolltap` of the file overrides them.
    let (urls, api_key) = match job.agents_upstream()? {
        Some((url, key)) if own.upstream.is_empty() => (vec![url], key.or(api_key)),
        _ => (own.upstream, api_key),
    };
    let addresses = urls.iter().map(|url| url.parse()).collect::<Result<Vec<Address>, _>>()?;
    let upstreams = Box::new(Upstreams { addresses, api_key, render, tls, http_proxy, session_headers });
    Ok(ProxyChoice::Embedded { upstreams, public })
}

fn public_place(own: &OwnConfig, tls: Option<PlaneTls>) -> anyhow::Result<Option<PublicPlace>> {
    match (own.listen, &own.public_url) {
        (Some(listen), Some(url)) => {
            // A public URL with https belongs to a gateway that has TLS.
            if tls.is_none() && !listen.ip().is_loopback() && url.starts_with("http://") {
                warn_of_plain_text(&format!("--listen {listen}"));
            }
            Ok(Some(PublicPlace { listen, url: url.parse()?, tls }))
        }
        (None, None) if tls.is_some() => anyhow::bail!(
            "tls_cert is given without listen and public_url: without them only containers of this machine reach the \
             proxy, and no network needs TLS"
        ),
        (None, None) => Ok(None),
        _ => anyhow::bail!(
            "listen and public_url go together: where the proxy listens, and how agents reach that"
        ),
    }
}
