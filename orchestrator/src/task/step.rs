//! The steps of a task. Each is a task of its own in the environment of the whole task.

use std::path::PathBuf;

use super::config::{AgentConfig, Healthcheck, MinReward, StepConfig, VerifierConfig};
use super::inputs::InputDirs;
use super::{SeparateVerifier, Task, TaskError};

/// A step of a task.
#[derive(Clone, Debug)]
pub struct Step {
    /// The step's name, which is its directory below `steps/` in the task and in the trial.
    pub name: String,
    /// The step as a task: instruction, agent, limits and verifier.
    pub task: Task,
    /// The directory of files that are copied into the workdir before the step's agent starts. A `setup.sh` among them
    /// is run.
    pub workdir: Option<PathBuf>,
    /// The health check that runs after `setup.sh`.
    pub healthcheck: Option<Healthcheck>,
    /// The rewards that the step must reach for the next step to start.
    pub min_reward: Option<MinReward>,
}

impl Step {
    /// Loads a step of `whole`, a task that is loaded except for its steps. Adds everything that is wrong to `errors`.
    pub(super) fn of(
        whole: &Task,
        config: &StepConfig,
        inputs: &InputDirs,
        errors: &mut Vec<TaskError>,
    ) -> Option<Self> {
        let below = PathBuf::from("steps").join(&config.name);
        let dir = whole.dir.join(&below);
        let mut task = whole.clone();
        task.config.agent = agent(&whole.config.agent, &config.agent);
        task.config.verifier = verifier(&whole.config.verifier, &config.verifier);
        task.network = whole.network.of_step(&task.config);
        task.config.artifacts.extend(config.artifacts.iter().cloned());
        task.config.steps.clear();
        // Without a solution in the step, the oracle runs the task's solution.
        let mut input = |name: &str| inputs.input(&below.join(name)).map_err(|error| errors.push(error)).ok();
        if dir.join("solution").is_dir() {
            task.solution = input("solution")?;
        }
        // The step's tests are copied over those of the whole task.
        task.tests.push(input("tests")?);
        errors.extend(task.read_instruction(&dir).err());
        task.separate_verifier = SeparateVerifier::of(whole, Some(config)).map(Box::new);
        errors.extend(task.must_have_tests().err());
        let workdir = dir.join("workdir");
        Some(Self {
            name: config.name.clone(),
            task,
            workdir: workdir.is_dir().then_some(workdir),
            healthcheck: config.healthcheck.clone(),
            min_reward: config.min_reward.clone(),
        })
    }
}

/// Merges the settings of an agent. Keys that the step lacks have the task's values.
fn agent(whole: &AgentConfig, step: &AgentConfig) -> AgentConfig {
    // `allowed_hosts` belongs to a network mode, so both come from the same table.
    let network = if step.network_mode.is_some() { step } else { whole };
    AgentConfig {
        timeout_sec: step.timeout_sec.or(whole.timeout_sec),
        user: step.user.clone().or_else(|| whole.user.clone()),
        network_mode: network.network_mode,
        allowed_hosts: network.allowed_hosts.clone(),
    }
}

/// Merges the settings of a verifier like those of an agent, except for the timeout: a step never inherits the task's,
/// as in Harbor.
fn verifier(whole: &VerifierConfig, step: &VerifierConfig) -> VerifierConfig {
    let network = if step.network_mode.is_some() { step } else { whole };
    let mut env = whole.env.clone();
    env.extend(step.env.clone());
    VerifierConfig {
        timeout_sec: step.timeout_sec,
        env,
        user: step.user.clone().or_else(|| whole.user.clone()),
        network_mode: network.network_mode,
        allowed_hosts: network.allowed_hosts.clone(),
        environment_mode: step.mode().or(whole.mode()),
        environment: step.environment.clone().or_else(|| whole.environment.clone()),
        collect: [whole.collect.clone(), step.collect.clone()].concat(),
    }
}
