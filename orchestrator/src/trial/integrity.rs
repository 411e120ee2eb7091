//! Looks for signs that the agent of a trial manipulated its tests or its reward. The signs mark the trial. They never
//! change its reward, and a failure to look is no failure of the trial.

use std::path::Path;

use futures_util::TryStreamExt;
use jiff::Timestamp;
use rolltap_proxy::api::TrialOpened;
use serde_json::Value;

use super::Trial;
use crate::admin_client::AdminError;
use crate::agents::AgentSpec;
use crate::environment::{Environment, Paths};
use crate::failure::chain;
use crate::verify::integrity::{
    Action, Inspector, Reason, Rules, Suspicion, Ticks, of_message, of_trajectory, process_reference,
};

/// The working directory of environments that Harbor starts. No rule depends on it.
const WORKDIR: &str = "/";
/// The largest trajectory that is read, in bytes.
const LARGEST_TRAJECTORY: u64 = 64 * 1024 * 1024;
/// The most files of trajectories that are read.
const MOST_TRAJECTORIES: usize = 256;

impl Trial<'_> {
    /// Returns the moment before the agent's time on the clock of the environment's processes, if its processes are to
    /// be ended.
    pub(super) async fn reference_of_processes(&self, environment: &Environment) -> Option<Ticks> {
        if self.ends_processes() { process_reference(environment).await } else { None }
    }

    /// Whether the agent's processes are ended before the tests. The task decides before the job does.
    pub(super) fn ends_processes(&self) -> bool {
        self.task.config.kills_agent_processes().unwrap_or(self.plan.extras.kill_agent_processes)
    }

    /// Makes the rules for the trial's instructions, as the agent reads them in this environment.
    pub(super) fn prepare_rules(&mut self, environment: &Environment) {
        if self.rules.is_none() {
            let instruction = environment.instruction(&self.instructions());
            self.rules = Some(Rules::new(environment.paths(), &instruction));
        }
    }

    fn instructions(&self) -> String {
        let of_steps = self.task.steps.iter().map(|step| step.task.instruction.as_str());
        std::iter::once(self.task.instruction.as_str()).chain(of_steps).collect::<Vec<_>>().join("\n")
    }

    /// Inspects an environment in which the tests are about to run, and removes what the agent left where tests and
    /// rewards belong. `since` is the start of the agent's time.
    pub(super) async fn inspect(
        &mut self,
        environment: &Environment,
        since: Timestamp,
        ticks: Option<Ticks>,
    ) {
        let (Some(rules), kills) = (&self.rules, self.ends_processes()) else { return };
        if kills && ticks.is_none() {
            self.log.line("the agent's processes are not ended: the environment has no /proc");
        }
        let inspected = Inspector { rules, since, ticks, kills }.inspect(environment).await;
        match inspected {
            Ok(inspection) => {
                if !inspection.is_complete {
                    self.log.line("the environment is not inspected to the end");
                }
                let (left, survivors) = (inspection.processes, inspection.survivors);
                match (left, kills) {
                    (0, _) => {}
                    (_, false) => self.log.line(format!("processes of the agent that still run: {left}")),
                    (_, true) => self.log.line(format!(
                        "processes of the agent ended: {}, not ended: {survivors}",
                        left.saturating_sub(survivors)
                    )),
                }
                self.suspect(inspection.found);
            }
            Err(error) => self.log.line(format!("the environment is not inspected: {}", chain(&error))),
        }
    }

    /// Compares the task's files on this host with those that the job read.
    pub(super) async fn check_task_files(&mut self) {
        let files = self.plan.task_files.clone();
        // Tests may be large, and hashing them would block the runtime.
        let changes = tokio::task::spawn_blocking(move || files.changes()).await.unwrap_or_default();
        for change in changes {
            self.add_sign(Suspicion::new(Reason::TaskFilesChanged, &change));
        }
    }

    /// Examines the agent's commands: those in its captured answers, or else those in its trajectory.
    pub(super) async fn examine_commands(&mut self, opened: &TrialOpened) {
        if !self.has_worked() {
            return;
        }
        self.outcome.suspicious.get_or_insert_default();
        if self.is_honest() {
            return;
        }
        let mut actions = match self.captured_actions(opened).await {
            Ok(actions) => actions,
            Err(error) => {
                self.log.line(format!("the agent's answers are not examined: {}", chain(&error)));
                Vec::new()
            }
        };
        if actions.is_empty() {
            actions = self.recorded_actions().await;
        }
        if let AgentSpec::Command { command, .. } = &self.plan.agent.spec {
            actions.push(Action::Run(command.clone()));
        }
        let rules = self.rules.take();
        let rules = rules.unwrap_or_else(|| Rules::new(&Paths::in_container(WORKDIR), &self.instructions()));
        let examined = tokio::task::spawn_blocking(move || {
            actions.iter().flat_map(|action| rules.examine(action)).collect::<Vec<_>>()
        });
        match examined.await {
            Ok(found) => self.suspect(found),
            Err(error) => self.log.line(format!("the agent's commands are not examined: {error}")),
        }
    }

    /// Whether an agent had its time, in one of the steps at least.
    fn has_worked(&self) -> bool {
        let of_steps = || self.outcome.steps.iter().any(|step| step.round.agent_execution.is_some());
        self.outcome.agent_execution.is_some() || of_steps()
    }

    /// The oracle runs the author's solution.
    fn is_honest(&self) -> bool {
        self.plan.agent.spec.name() == "oracle"
    }

    async fn captured_actions(&self, opened: &TrialOpened) -> Result<Vec<Action>, AdminError> {
        if self.outcome.status.as_ref().is_none_or(|status| status.calls.total == 0) {
            return Ok(Vec::new());
        }
        let mut answers = std::pin::pin!(self.context.admin.answers(opened).await?);
        let mut actions = Vec::new();
        while let Some(answer) = answers.try_next().await? {
            actions.extend(of_message(&answer.message));
        }
        Ok(actions)
    }

    /// Reads the trajectories in the agent's folders. Agents write them, so a file that cannot be read is ignored.
    async fn recorded_actions(&self) -> Vec<Action> {
        let of_steps = self.task.steps.iter().map(|step| self.dir.step(&step.name));
        let dirs: Vec<_> = std::iter::once(self.dir.agent()).chain(of_steps.map(|dir| dir.agent())).collect();
        let read = move || dirs.iter().flat_map(|dir| trajectories(dir)).collect();
        tokio::task::spawn_blocking(read).await.unwrap_or_default()
    }

    fn suspect(&mut self, found: Vec<Suspicion>) {
        if !self.is_honest() {
            found.into_iter().for_each(|sign| self.add_sign(sign));
        }
    }

    fn add_sign(&mut self, sign: Suspicion) {
        let line = format!("suspicious: {}: {}", sign.reason.as_str(), sign.evidence);
        if self.outcome.suspicious.get_or_insert_default().add(sign) {
            self.log.line(line);
        }
    }
}

/// Returns the actions in the trajectories of a folder.
fn trajectories(dir: &Path) -> Vec<Action> {
    let Ok(entries) = dir.read_dir() else { return Vec::new() };
    let is_trajectory = |name: &str| name.starts_with("trajectory") && name.ends_with(".json");
    let mut names: Vec<_> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.retain(|name| is_trajectory(name));
    names.sort();
    let parsed = |name: &String| -> Option<Value> {
        let path = dir.join(name);
        let metadata = path.symlink_metadata().ok()?;
        if !metadata.is_file() || metadata.len() > LARGEST_TRAJECTORY {
            return None;
        }
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    };
    let found = names.iter().take(MOST_TRAJECTORIES).filter_map(parsed);
    found.flat_map(|trajectory| of_trajectory(&trajectory)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trajectories_of_a_folder_are_read_and_other_files_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let call = r#"{"steps": [{"tool_calls": [{"arguments": {"keystrokes": "ls\n"}}]}]}"#;
        std::fs::write(dir.path().join("trajectory.json"), call).unwrap();
        std::fs::write(dir.path().join("trajectory.cont-1.json"), call).unwrap();
        std::fs::write(dir.path().join("trajectory.broken.json"), "{").unwrap();
        std::fs::write(dir.path().join("other.json"), call).unwrap();
        std::os::unix::fs::symlink("other.json", dir.path().join("trajectory.link.json")).unwrap();
        let run = Action::Run("ls\n".to_owned());
        assert_eq!(trajectories(dir.path()), [run.clone(), run]);
        assert_eq!(trajectories(&dir.path().join("missing")), []);
    }
}
