//! From a job's file, flags laid over it, to what a job runs.

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

/// Harbor's `n_concurrent_trials` where nobody says one.
pub(super) const CONCURRENCY: usize = 4;

/// What our own records of an environment that Harbor does not know begin with.
const OWN_ENVIRONMENT: &str = "rolltap:";

/// What flags say of agents, for those of which the file says nothing else.
#[derive(Clone, Debug, Default)]
pub struct AgentDefaults {
    /// Whose agents are meant.
    pub runner: Runner,
    /// `--agent-command`, `--max-turns`
    pub options: AgentOptions,
}

/// What a job's file asks for, well-formed, and still cannot be.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// An agent that cannot be made.
    #[error("agents[{at}]: {problem}")]
    Agent {
        /// Which one.
        at: usize,
        /// Why.
        problem: String,
    },
    /// No such agent, or one whose options are another's.
    #[error(transparent)]
    Spec(#[from] AgentSpecError),
    /// No such environment.
    #[error(transparent)]
    Environment(#[from] UnknownEnvironment),
    /// Agents that would need proxies of their own.
    #[error(
        "agents of one job have one upstream, but there are base_url {one:?} and {other:?}: run a job each"
    )]
    Upstreams {
        /// One agent's.
        one: String,
        /// Another's.
        other: String,
    },
    /// A variable of this host that is not set.
    #[error("{key} is the environment variable {variable}, which is not set")]
    Variable {
        /// The key.
        key: String,
        /// The variable.
        variable: String,
    },
    /// A file that is not there.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

impl JobConfig {
    /// Samples of each task by each agent.
    pub fn samples(&self) -> NonZeroU32 {
        self.n_attempts.unwrap_or(NonZeroU32::MIN)
    }

    /// Trials at once.
    pub fn concurrency(&self) -> NonZeroUsize {
        self.n_concurrent_trials.or(NonZeroUsize::new(CONCURRENCY)).unwrap_or(NonZeroUsize::MIN)
    }

    /// The job's agents; the oracle where nobody says one, as in Harbor.
    ///
    /// # Errors
    /// An agent that rolltap has not, or settings that it would ignore.
    pub fn job_agents(&self, defaults: &AgentDefaults) -> Result<Vec<JobAgent>, SettingsError> {
        let oracle = [AgentEntry::default()];
        let entries = self.agents.as_deref().unwrap_or(&oracle);
        entries.iter().enumerate().map(|(at, entry)| job_agent(at, entry, defaults)).collect()
    }

    /// What becomes of tasks' time limits.
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

    /// Harbor's metrics; the mean where nobody says one.
    pub fn job_metrics(&self) -> Vec<Metric> {
        let metrics: Vec<_> = self.metrics.iter().map(|config| config.metric).collect();
        if metrics.is_empty() { vec![Metric::Mean] } else { metrics }
    }

    /// Where trials run. Our own section says so for kinds that Harbor does not know.
    ///
    /// # Errors
    /// A kind that rolltap has not.
    pub fn environment_kind(&self, own: &OwnConfig) -> Result<EnvironmentKind, SettingsError> {
        let section = &self.environment;
        let recorded = section.import_path.as_deref();
        let recorded = recorded.map(|path| path.strip_prefix(OWN_ENVIRONMENT).unwrap_or(path));
        let name = own.environment.as_deref().or(section.kind.as_deref()).or(recorded);
        Ok(name.unwrap_or("docker").parse()?)
    }

    /// What the job says instead of its tasks.
    ///
    /// # Errors
    /// A file with instructions that cannot be read.
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
        })
    }

    /// The upstream that agents name by `base_url`, and its key.
    ///
    /// # Errors
    /// Two agents name different ones, or a key's variable is not set.
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
    // A job that is gone on with may be in another directory.
    let is_file = matches!(spec, AgentSpec::Installed(_)) && Path::new(name).is_file();
    let file = if is_file { Path::new(name).canonicalize().ok() } else { None };
    let asked = file.map_or_else(|| name.to_owned(), |file| file.display().to_string());
    let mut env = defaults.options.env.clone();
    env.extend(entry.env.clone());
    let mcp_servers = entry.mcp_servers.clone();
    let skills = Skill::find(&entry.skills).map_err(|error| wrong(error.to_string()))?;
    Ok(JobAgent { spec, asked, env, mcp_servers, skills, model: entry.model_name.clone(), timeouts, limit })
}
