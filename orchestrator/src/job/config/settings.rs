//! Converts a job's file, with flags applied, to the settings of a job.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::parts::AgentEntry;
use super::{JobConfig, Metric, OwnConfig};
use crate::agents::{AgentOptions, AgentSpec, AgentSpecError, Skill};
use crate::environment::{EnvironmentKind, UnknownEnvironment};
use crate::failure::{PhaseLimit, TimeoutPolicy};
use crate::task::Runner;
use crate::trial::resolved;
use crate::trial::{AgentLimit, AgentTimeouts, JobAgent, TaskOverrides};

/// Harbor's default of `n_concurrent_trials`.
pub(super) const CONCURRENCY: usize = 4;

/// The prefix by which rolltap's own records name an environment that Harbor does not know.
const OWN_ENVIRONMENT: &str = "rolltap:";

/// Options of agents from flags. They hold for agents whose entry in the file does not set them.
#[derive(Clone, Debug, Default)]
pub struct AgentDefaults {
    /// Whether the agents are rolltap's or Harbor's.
    pub runner: Runner,
    /// `--agent-command`, `--max-turns`
    pub options: AgentOptions,
}

/// Why a well-formed job file cannot become a job.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// An agent cannot be created.
    #[error("agents[{at}]: {problem}")]
    Agent {
        /// The index of the agent's entry.
        at: usize,
        /// The reason.
        problem: String,
    },
    /// An agent does not exist, or it has options of another agent.
    #[error(transparent)]
    Spec(#[from] AgentSpecError),
    /// The environment does not exist.
    #[error(transparent)]
    Environment(#[from] UnknownEnvironment),
    /// Two agents name different upstreams and would each need a proxy.
    #[error(
        "agents of one job have one upstream, but there are base_url {one:?} and {other:?}: run a job each"
    )]
    Upstreams {
        /// The URL of one agent.
        one: String,
        /// The URL of the other agent.
        other: String,
    },
    /// A variable of this host is not set.
    #[error("{key} is the environment variable {variable}, which is not set")]
    Variable {
        /// The key that names the variable.
        key: String,
        /// The variable.
        variable: String,
    },
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
}

impl JobConfig {
    /// Returns the number of samples of each task by each agent. The default is 1.
    pub fn samples(&self) -> NonZeroU32 {
        self.n_attempts.unwrap_or(NonZeroU32::MIN)
    }

    /// Returns the number of trials that run at once.
    pub fn concurrency(&self) -> NonZeroUsize {
        self.n_concurrent_trials.or(NonZeroUsize::new(CONCURRENCY)).unwrap_or(NonZeroUsize::MIN)
    }

    /// Returns the job's agents. The default is the oracle, as in Harbor.
    ///
    /// # Errors
    /// Fails for an agent that rolltap does not have, and for settings that it would ignore.
    pub fn job_agents(&self, defaults: &AgentDefaults) -> Result<Vec<JobAgent>, SettingsError> {
        let oracle = [AgentEntry::default()];
        let entries = self.agents.as_deref().unwrap_or(&oracle);
        entries.iter().enumerate().map(|(at, entry)| job_agent(at, entry, defaults)).collect()
    }

    /// Returns the changes to the tasks' time limits.
    pub fn timeouts(&self, own: &OwnConfig) -> TimeoutPolicy {
        let only = |multiplier| PhaseLimit { multiplier, ..PhaseLimit::default() };
        TimeoutPolicy {
            multiplier: self.timeout_multiplier.unwrap_or(1.0),
            agent: only(self.agent_timeout_multiplier),
            agent_setup: only(self.agent_setup_timeout_multiplier),
            verifier: PhaseLimit {
                override_sec: self.verifier.override_timeout_sec,
                max_sec: self.verifier.max_timeout_sec,
                multiplier: self.verifier_timeout_multiplier,
            },
            environment_build: only(self.environment_build_timeout_multiplier),
            trial_deadline_sec: own.trial_deadline_sec,
        }
    }

    /// Returns Harbor's metrics. The default is the mean.
    pub fn job_metrics(&self) -> Vec<Metric> {
        let metrics: Vec<_> = self.metrics.iter().map(|config| config.metric).collect();
        if metrics.is_empty() { vec![Metric::Mean] } else { metrics }
    }

    /// Returns the kind of environment. The `rolltap` section has priority, because it names the kinds that Harbor does
    /// not know.
    ///
    /// # Errors
    /// Fails for a kind that rolltap does not have.
    pub fn environment_kind(&self, own: &OwnConfig) -> Result<EnvironmentKind, SettingsError> {
        let section = &self.environment;
        let recorded = section.import_path.as_deref();
        let recorded = recorded.map(|path| path.strip_prefix(OWN_ENVIRONMENT).unwrap_or(path));
        let name = own.environment.as_deref().or(section.kind.as_deref()).or(recorded);
        Ok(name.unwrap_or("docker").parse()?)
    }

    /// Returns the values of the job that replace those of its tasks.
    ///
    /// # Errors
    /// Fails if a file with instructions cannot be read.
    pub fn overrides(&self) -> Result<TaskOverrides, SettingsError> {
        let mut instructions = Vec::new();
        for path in &self.extra_instruction_paths {
            let text = std::fs::read_to_string(path);
            instructions.push(text.map_err(|source| SettingsError::Read { path: path.clone(), source })?);
        }
        instructions.extend(self.extra_instructions.iter().cloned());
        Ok(TaskOverrides {
            cpus: self.environment.override_cpus,
            memory_mb: self.environment.override_memory_mb,
            storage_mb: self.environment.override_storage_mb,
            env: self.environment.env.clone(),
            keep: self.environment.delete == Some(false),
            mounts: self.environment.mounts.clone().unwrap_or_default(),
            verifier_env: self.verifier.env.clone(),
            without_verifier: self.verifier.disable,
            artifacts: self.artifacts.clone(),
            instructions,
            kill_agent_processes: false,
        })
    }

    /// Returns the upstream that agents name by `base_url`, and its API key.
    ///
    /// # Errors
    /// Fails if two agents name different upstreams, or if the variable of a key is not set.
    pub fn agents_upstream(&self) -> Result<Option<(String, Option<String>)>, SettingsError> {
        let mut named: Option<(String, Option<String>)> = None;
        for (at, agent) in self.agents.iter().flatten().enumerate() {
            let Some(url) = &agent.base_url else { continue };
            let key = match &agent.model_api_key_name {
                None => None,
                Some(variable) => Some(std::env::var(variable).map_err(|_| SettingsError::Variable {
                    key: format!("agents[{at}].model_api_key_name"),
                    variable: variable.clone(),
                })?),
            };
            match &named {
                Some((one, _)) if one != url => {
                    return Err(SettingsError::Upstreams { one: one.clone(), other: url.clone() });
                }
                _ => named = Some((url.clone(), key)),
            }
        }
        Ok(named)
    }
}

fn job_agent(at: usize, entry: &AgentEntry, defaults: &AgentDefaults) -> Result<JobAgent, SettingsError> {
    let wrong = |problem: String| SettingsError::Agent { at, problem };
    let name = entry.name.as_deref().unwrap_or("oracle");
    let is_terminal = name == "terminal";
    let mut options = defaults.options.clone();
    for (key, value) in &entry.kwargs {
        match (key.as_str(), value) {
            // Harbor writes `null` for an argument that is not set.
            (_, Value::Null) => {}
            ("command", Value::String(command)) if name == "command" => {
                options.command = Some(command.clone())
            }
            ("max_turns", value) if is_terminal => {
                let turns = value.as_u64().and_then(|turns| u32::try_from(turns).ok());
                let turns =
                    turns.ok_or_else(|| wrong(format!("kwargs.max_turns = {value}: not a number")))?;
                options.max_turns = Some(turns);
            }
            _ => {
                options.kwargs.insert(key.clone(), value.clone());
            }
        }
    }
    options.env.extend(resolved(&entry.env, "env").map_err(|error| wrong(error.to_string()))?);
    let spec = match defaults.runner {
        Runner::Rolltap => AgentSpec::new(name, options)?,
        Runner::Harbor => AgentSpec::of_harbor(name, options)?,
    };
    let timeouts = AgentTimeouts {
        override_sec: entry.override_timeout_sec,
        max_sec: entry.max_timeout_sec,
        override_setup_sec: entry.override_setup_timeout_sec,
    };
    let limit =
        entry.n_concurrent.map(|trials| AgentLimit { trials, group: entry.concurrency_group.clone() });
    // A relative path would be wrong if the job is resumed from another directory.
    let is_file = matches!(spec, AgentSpec::Installed(_)) && Path::new(name).is_file();
    let file = if is_file { Path::new(name).canonicalize().ok() } else { None };
    let asked = file.map_or_else(|| name.to_owned(), |file| file.display().to_string());
    // The record has the references to this host's variables, not their values.
    let mut env = defaults.options.env.clone();
    env.extend(entry.env.clone());
    let mcp_servers = entry.mcp_servers.clone();
    let skills = Skill::find(&entry.skills).map_err(|error| wrong(error.to_string()))?;
    Ok(JobAgent { spec, asked, env, mcp_servers, skills, model: entry.model_name.clone(), timeouts, limit })
}
