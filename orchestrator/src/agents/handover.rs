//! Checks whether an agent accepts everything that a task gives it in addition to the instruction.

use super::AgentSpec;
use crate::task::Task;

impl AgentSpec {
    /// Describes the part of a task that this agent would not see, or returns `None` if it accepts everything. The
    /// oracle and `nop` do not read the task, so nothing is missing for them.
    pub fn would_not_see(&self, task: &Task) -> Option<String> {
        let steps = task.steps.iter().map(|step| &step.task);
        std::iter::once(task).chain(steps).find_map(|task| self.would_not_see_of(task))
    }

    fn would_not_see_of(&self, task: &Task) -> Option<String> {
        let environment = &task.config.environment;
        let server = || environment.mcp_servers.first().map(|server| format!("MCP server {:?}", server.name));
        let skills = || environment.skills_dir.as_ref().map(|dir| format!("the skills in {dir}"));
        let trajectory = || task.trajectory.as_ref().map(|_| "the trajectory to continue".to_owned());
        match self {
            Self::Oracle | Self::Nop | Self::Command { .. } => None,
            // Harbor passes these to its agents or refuses the job.
            Self::Harbor(_) => None,
            Self::Terminal(_) | Self::Terminus2(_) => trajectory(),
            Self::Installed(agent) => {
                let server = server().filter(|_| agent.definition().mcp.is_none());
                let skills = skills().filter(|_| agent.definition().skills.is_none());
                server.or(skills).or_else(trajectory)
            }
        }
    }
}
