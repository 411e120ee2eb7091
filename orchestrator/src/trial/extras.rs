//! What a job adds to its tasks, by Harbor's `TrialConfig`.

use std::collections::BTreeMap;

use crate::agents::Skill;
use crate::environment::Mount;
use crate::task::{Artifact, McpServer, Task};

/// Where skills are put that a job gives its agent, where the task names no place for its own: Harbor's.
const SKILLS_DIR: &str = "/runtime/skills";

/// What a job adds to its tasks. Nothing, unless it says so.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrialExtras {
    /// `verifier.disable`: the tests are not run, and there is no reward.
    pub without_verifier: bool,
    /// `verifier.env`: over what the task says, already resolved.
    pub verifier_env: BTreeMap<String, String>,
    /// `artifacts`: besides the task's.
    pub artifacts: Vec<Artifact>,
    /// `environment.delete` is false: containers stay when trials are over.
    pub keep: bool,
    /// `environment.mounts`: seen where the agent works.
    pub mounts: Vec<Mount>,
    /// `agent.skills`: besides what the task has.
    pub skills: Vec<Skill>,
    /// `agent.mcp_servers`: besides the task's, and instead of those of the same name.
    pub mcp_servers: Vec<McpServer>,
    /// `extra_instructions`, and the contents of `extra_instruction_paths` before them: appended to every instruction.
    pub instructions: Vec<String>,
}

impl TrialExtras {
    /// The task with these on top, its steps too.
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
        if task.steps.is_empty() {
            let texts = std::iter::once(&task.instruction).chain(&self.instructions);
            task.instruction = texts.map(String::as_str).collect::<Vec<_>>().join("\n\n");
        }
    }
}
