//! The options of `rolltap run` that set keys of the job file, with the names of Harbor's own options.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use rolltap_orchestrator::environment::Mount;
use rolltap_orchestrator::job::config::{AgentEntry, JobConfig, mcp_servers};
use rolltap_orchestrator::job::tasks::DatasetArguments;
use rolltap_orchestrator::task::Artifact;

use crate::option_values::{factor, json, one_or_more, variable};

#[derive(Args, Debug, Default)]
pub(super) struct HarborOptions {
    #[command(flatten)]
    tasks: TaskOptions,
    #[command(flatten)]
    agents: AgentOptions,
    #[command(flatten)]
    environment: EnvironmentOptions,
    #[command(flatten)]
    verifier: VerifierOptions,
    #[command(flatten)]
    limits: LimitOptions,
}

const TASKS: &str = "Tasks";

#[derive(Args, Debug, Default)]
#[command(next_help_heading = TASKS)]
struct TaskOptions {
    /// Run the tasks of this dataset: a directory, the URL of a git repository, a registry file of Harbor, or the name
    /// of a dataset in --registry-path or --repo.
    ///
    /// A URL may name a version and a directory: https://host/org/name@v1.0, or https://host/org/name/tree/v1.0/tasks.
    /// Without a directory, the tasks are in `tasks`. A name may have a version: bench@1.0. These tasks replace the
    /// tasks of --config.
    #[arg(short, long, value_name = "DATASET")]
    dataset: Option<String>,
    /// Look up the name of --dataset in this registry file of Harbor, or in registry.json of this directory.
    #[arg(long, value_name = "PATH")]
    registry_path: Option<PathBuf>,
    /// Take the tasks from this git repository: a URL, or org/name on GitHub, with @REVISION after it for a branch, tag
    /// or commit.
    ///
    /// --path is the directory of the tasks in the repository, by default `tasks`. With --dataset NAME, the tasks are
    /// those of the registry file of the repository.
    #[arg(long, value_name = "REPOSITORY")]
    repo: Option<String>,
    /// Take the task of --path from this git repository.
    #[arg(long, value_name = "URL", requires = "path")]
    task_git_url: Option<String>,
    /// Take this commit, branch or tag of --task-git-url. [default: the newest commit]
    #[arg(long, value_name = "REVISION", requires = "task_git_url")]
    task_git_commit: Option<String>,
    /// Run the task of this name only: the name of its directory in --dataset or --path.
    #[arg(short, long, value_name = "NAME")]
    task: Option<String>,
    /// Run the tasks whose names match this shell pattern, like 'add-*'. Repeat the flag for more.
    #[arg(short, long, value_name = "PATTERN")]
    include_task_name: Vec<String>,
    /// Leave out the tasks whose names match this shell pattern. Repeat the flag for more.
    #[arg(short = 'x', long, value_name = "PATTERN")]
    exclude_task_name: Vec<String>,
    /// Run at most this many tasks of each dataset, in the order of their names.
    #[arg(short = 'l', long, value_name = "NUMBER", value_parser = one_or_more::<usize>, allow_negative_numbers = true)]
    n_tasks: Option<usize>,
    /// Append the text of this file to every instruction. Repeat the flag for more.
    #[arg(long, value_name = "FILE")]
    extra_instruction_path: Vec<PathBuf>,
    /// Append this text to every instruction, after the files. Repeat the flag for more.
    #[arg(long, value_name = "TEXT")]
    extra_instruction: Vec<String>,
    /// Download this path from each environment after its trial. Repeat the flag for more.
    #[arg(long, value_name = "PATH", value_parser = artifact)]
    artifact: Vec<Artifact>,
}

#[derive(Args, Debug, Default)]
#[command(next_help_heading = super::options::AGENT)]
struct AgentOptions {
    /// Give the agent the MCP servers of this file: a .mcp.json of Claude Code, or Harbor's form in JSON, YAML or TOML.
    /// Repeat the flag for more.
    #[arg(long, value_name = "FILE")]
    mcp_config: Vec<PathBuf>,
    /// Give the agent the skill in this directory, or the skills in its sub-directories. Repeat the flag for more.
    #[arg(long, visible_alias = "skills", value_name = "DIR")]
    skill: Vec<String>,
    /// Run at most this many trials of each agent at the same time.
    #[arg(long, value_name = "NUMBER", value_parser = one_or_more::<NonZeroUsize>, allow_negative_numbers = true)]
    n_concurrent_agents: Option<NonZeroUsize>,
}

#[derive(Args, Debug, Default)]
#[command(next_help_heading = super::options::AGENT)]
struct EnvironmentOptions {
    /// Preserve the container of each trial, stopped, for inspection.
    #[arg(long, overrides_with = "delete")]
    no_delete: bool,
    /// Remove the container of each trial, which is the default.
    #[arg(long, overrides_with = "no_delete")]
    delete: bool,
    /// Give each environment this many CPUs, instead of the number of its task.
    #[arg(long, value_name = "NUMBER", value_parser = factor, allow_negative_numbers = true)]
    override_cpus: Option<f64>,
    /// Give each environment this much memory in MiB, instead of the size of its task.
    #[arg(long, value_name = "MIB", value_parser = one_or_more::<u64>, allow_negative_numbers = true)]
    override_memory_mb: Option<u64>,
    /// Declare this much disk space in MiB for each environment. It is recorded and not enforced, as in Harbor.
    #[arg(long, value_name = "MIB", value_parser = one_or_more::<u64>, allow_negative_numbers = true)]
    override_storage_mb: Option<u64>,
    /// Mount these directories and volumes in each environment, as a JSON list in the form of Docker Compose.
    ///
    /// An example is '[{"type": "bind", "source": "/data", "target": "/data", "read_only": true}]'.
    #[arg(long, visible_alias = "mounts-json", value_name = "JSON", value_parser = json::<Mounts>)]
    mounts: Option<Mounts>,
}

/// A list of mounts. clap would take a `Vec` for an option with several values.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(transparent)]
struct Mounts(Vec<Mount>);

#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Verifier")]
struct VerifierOptions {
    /// Set an environment variable of the tests. Repeat the flag for more.
    #[arg(long, visible_alias = "ve", value_name = "NAME=VALUE", value_parser = variable)]
    verifier_env: Vec<(String, String)>,
    /// Skip the tests. No trial has a reward then.
    #[arg(long, overrides_with = "enable_verification")]
    disable_verification: bool,
    /// Run the tests, which is the default.
    #[arg(long, overrides_with = "disable_verification")]
    enable_verification: bool,
}

#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Time limits and retries")]
struct LimitOptions {
    /// Multiply the time limit of the agent by this factor. [default: the value of --timeout-multiplier]
    #[arg(long, value_name = "FACTOR", value_parser = factor, allow_negative_numbers = true)]
    agent_timeout_multiplier: Option<f64>,
    /// Multiply the time limit of the tests by this factor. [default: the value of --timeout-multiplier]
    #[arg(long, value_name = "FACTOR", value_parser = factor, allow_negative_numbers = true)]
    verifier_timeout_multiplier: Option<f64>,
    /// Multiply the time limit for the setup of the agent by this factor. [default: the value of --timeout-multiplier]
    #[arg(long, value_name = "FACTOR", value_parser = factor, allow_negative_numbers = true)]
    agent_setup_timeout_multiplier: Option<f64>,
    /// Multiply the time limit for building and starting an environment by this factor. [default: the value of
    /// --timeout-multiplier]
    #[arg(long, value_name = "FACTOR", value_parser = factor, allow_negative_numbers = true)]
    environment_build_timeout_multiplier: Option<f64>,
    /// Retry failures of this exception type, like RuntimeError. Repeat the flag for more. [default: every type that
    /// --retry-exclude does not name]
    #[arg(long, value_name = "EXCEPTION")]
    retry_include: Vec<String>,
    /// Never retry failures of this exception type. Repeat the flag for more. The flag replaces Harbor's list, which
    /// has the time-outs, missing rewards and refusals.
    #[arg(long, value_name = "EXCEPTION")]
    retry_exclude: Vec<String>,
}

impl HarborOptions {
    /// Sets the keys of the job, which has the agents of the flags by now. `paths` are those of `--path`.
    pub(super) fn apply(self, job: &mut JobConfig, paths: Vec<PathBuf>) -> anyhow::Result<()> {
        self.tasks.apply(job, paths)?;
        self.agents.apply(job)?;
        self.environment.apply(job);
        self.verifier.apply(job);
        self.limits.apply(job);
        Ok(())
    }
}

impl TaskOptions {
    fn apply(self, job: &mut JobConfig, paths: Vec<PathBuf>) -> anyhow::Result<()> {
        replace(&mut job.extra_instruction_paths, self.extra_instruction_path);
        replace(&mut job.extra_instructions, self.extra_instruction);
        replace(&mut job.artifacts, self.artifact);
        let arguments = DatasetArguments {
            paths,
            dataset: self.dataset,
            repo: self.repo,
            registry_path: self.registry_path,
            task_git_url: self.task_git_url,
            task_git_commit: self.task_git_commit,
            task: self.task,
            include: self.include_task_name,
            exclude: self.exclude_task_name,
            n_tasks: self.n_tasks,
        };
        Ok(arguments.apply(job)?)
    }
}

impl AgentOptions {
    fn apply(self, job: &mut JobConfig) -> anyhow::Result<()> {
        let mut servers = Vec::new();
        for file in &self.mcp_config {
            servers.extend(mcp_servers(file)?);
        }
        if servers.is_empty() && self.skill.is_empty() && self.n_concurrent_agents.is_none() {
            return Ok(());
        }
        // Without an entry, the job has one agent, the oracle.
        for agent in job.agents.get_or_insert_with(|| vec![AgentEntry::default()]) {
            agent.mcp_servers.extend(servers.iter().cloned());
            agent.skills.extend(self.skill.iter().cloned());
            agent.n_concurrent = self.n_concurrent_agents.or(agent.n_concurrent);
        }
        Ok(())
    }
}

impl EnvironmentOptions {
    fn apply(self, job: &mut JobConfig) {
        let section = &mut job.environment;
        if self.no_delete || self.delete {
            section.delete = Some(self.delete);
        }
        section.override_cpus = self.override_cpus.or(section.override_cpus);
        section.override_memory_mb = self.override_memory_mb.or(section.override_memory_mb);
        section.override_storage_mb = self.override_storage_mb.or(section.override_storage_mb);
        section.mounts = self.mounts.map(|Mounts(mounts)| mounts).or(section.mounts.take());
    }
}

impl VerifierOptions {
    fn apply(self, job: &mut JobConfig) {
        job.verifier.env.extend(self.verifier_env);
        if self.disable_verification || self.enable_verification {
            job.verifier.disable = self.disable_verification;
        }
    }
}

impl LimitOptions {
    fn apply(self, job: &mut JobConfig) {
        job.agent_timeout_multiplier = self.agent_timeout_multiplier.or(job.agent_timeout_multiplier);
        job.verifier_timeout_multiplier =
            self.verifier_timeout_multiplier.or(job.verifier_timeout_multiplier);
        job.agent_setup_timeout_multiplier =
            self.agent_setup_timeout_multiplier.or(job.agent_setup_timeout_multiplier);
        job.environment_build_timeout_multiplier =
            self.environment_build_timeout_multiplier.or(job.environment_build_timeout_multiplier);
        if !self.retry_include.is_empty() {
            job.retry.include_exceptions = Some(self.retry_include.into_iter().collect());
        }
        if !self.retry_exclude.is_empty() {
            job.retry.exclude_exceptions = Some(self.retry_exclude.into_iter().collect());
        }
    }
}

/// Parses an artifact by the rules of a job file.
fn artifact(path: &str) -> Result<Artifact, String> {
    serde_json::from_value(path.into()).map_err(|error| error.to_string())
}

/// Replaces the values of the file by those of the flags, if there are any.
fn replace<T>(of_file: &mut Vec<T>, of_flags: Vec<T>) {
    if !of_flags.is_empty() {
        *of_file = of_flags;
    }
}
