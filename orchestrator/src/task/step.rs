//! The steps of a task, each as a task of its own in the environment of the whole.

use std::path::PathBuf;

use super::config::{AgentConfig, Healthcheck, MinReward, StepConfig, VerifierConfig};
use super::inputs::InputDirs;
use super::{SeparateVerifier, Task, TaskError};

/// One of a task's steps.
#[derive(Clone, Debug)]
pub struct Step {
    /// Its name: the directory below `steps/`, in the task and in the trial.
    pub name: String,
    /// What is to be done, by whom, for how long, and how it is judged.
    pub task: Task,
    /// Files that are put into the workdir before its agent begins. A `setup.sh` among them is run.
    pub workdir: Option<PathBuf>,
    /// Run after that.
    pub healthcheck: Option<Healthcheck>,
    /// What it must give for the next step to be begun.
    pub min_reward: Option<MinReward>,
}

impl Step {
    /// The step of a task that is loaded but for its steps.
    pub(super) fn of(whole: &Task, config: &StepConfig, inputs: &InputDirs) -> Result<Self, TaskError> {
        let below = PathBuf::from("steps").join(&config.name);
        let dir = whole.dir.join(&below);
        let mut task = whole.clone();
        task.config.agent = agent(&whole.config.agent, &config.agent);
        task.config.verifier = verifier(&whole.config.verifier, &config.verifier);
        task.network = whole.network.of_step(&task.config);
        task.config.artifacts.extend(config.artifacts.iter().cloned());
        task.config.steps.clear();
        // Where a step has no solution of its own, the oracle runs the task's.
        if dir.join("solution").is_dir() {
            task.solution = inputs.input(&below.join("solution"))?;
        }
        task.tests.push(inputs.input(&below.join("tests"))?);
        task.read_instruction(&dir)?;
        task.separate_verifier = SeparateVerifier::of(whole, Some(config)).map(Box::new);
        task.must_have_tests()?;
        let workdir = dir.join("workdir");
        Ok(Self {
            name: config.name.clone(),
            task,
            workdir: workdir.is_dir().then_some(workdir),
            healthcheck: config.healthcheck.clone(),
            min_reward: config.min_reward.clone(),
        })
    }
}

/// What the step does not say is as the task says.
fn agent(whole: &AgentConfig, step: &AgentConfig) -> AgentConfig {
    let network = if step.network_mode.is_some() { step } else { whole };
    AgentConfig {
        timeout_sec: step.timeout_sec.or(whole.timeout_sec),
        user: step.user.clone().or_else(|| whole.user.clone()),
        network_mode: network.network_mode,
        allowed_hosts: network.allowed_hosts.clone(),
    }
}

/// As for the agent, but for the timeout: a step's verifier never has the task's, in Harbor either.
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
