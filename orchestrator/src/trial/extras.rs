//! A job's additions to its tasks, from Harbor's `TrialConfig`.

use std::collections::BTreeMap;

use crate::agents::Skill;
use crate::environment::Mount;
use crate::task::{Artifact, McpServer, Task};

/// Harbor's directory for the skills that a job gives its agent, if the task has no `skills_dir`.
const SKILLS_DIR: &str = "/runtime/skills";

/// A job's additions to its tasks. The default adds nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrialExtras {
    /// `verifier.disable`: the tests do not run, and there is no reward.
    pub without_verifier: bool,
    /// `verifier.env`, which overrides the task's variables. References to this host's variables are resolved already.
    pub verifier_env: BTreeMap<String, String>,
    /// `artifacts`, in addition to the task's.
    pub artifacts: Vec<Artifact>,
    /// Whether `environment.delete` is false: containers remain after their trials.
    pub keep: bool,
    /// `rolltap.kill_agent_processes`: the agent's processes are ended before the tests, unless the task decides
    /// otherwise.
    pub kill_agent_processes: bool,
    /// `environment.mounts`: mounted where the agent works.
    pub mounts: Vec<Mount>,
    /// `agent.skills`, in addition to the task's.
    pub skills: Vec<Skill>,
    /// `agent.mcp_servers`, in addition to the task's. They replace servers of the same name.
    pub mcp_servers: Vec<McpServer>,
    /// `extra_instruction_paths` (their contents), then `extra_instructions`. They are appended to every instruction.
    pub instructions: Vec<String>,
}

impl TrialExtras {
    /// Returns the task and its steps with these additions.
    pub fn applied_to(&self, task: &Task) -> Task {
        let mut task = task.clone();
        self.apply(&mut task);
        for step in &mut task.steps {
            self.apply(&mut step.task);
        }
        task
    }

    fn apply(&self, task: &mut Task) {
        task.config.verifier.env.extend(self.verifier_env.clone());
        task.config.artifacts.extend(self.artifacts.iter().cloned());
        let servers = &mut task.config.environment.mcp_servers;
        servers.retain(|server| self.mcp_servers.iter().all(|other| other.name != server.name));
        servers.extend(self.mcp_servers.iter().cloned());
        if !self.skills.is_empty() {
            task.config.environment.skills_dir.get_or_insert_with(|| SKILLS_DIR.to_owned());
        }
        // The instruction of a task with steps is in its steps.
        if task.steps.is_empty() {
            let texts = std::iter::once(&task.instruction).chain(&self.instructions);
            task.instruction = texts.map(String::as_str).collect::<Vec<_>>().join("\n\n");
        }
    }
}
