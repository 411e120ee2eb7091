//! Runs an agent that a [`Definition`] declares: installed once per job, set up in each environment, and run there as
//! its users run it.

use std::collections::BTreeMap;
use std::sync::Arc;

use regex::RegexBuilder;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::definition::{
    Chosen, Definition, FileText, Mcp, OutcomeCause, VERSION_OPTION, Values, check_version, in_words,
};
use super::instruction::INSTRUCTION_FILE;
use super::invocation::{self, LAYER_MISSING, NOT_READY, Setup};
use super::layer::{self, Layer, LayerError};
use super::{AgentOutcome, Assignment, Ready};
use crate::environment::{Environment, EnvironmentError, Exec, ExecOutput, Share};
use crate::failure::{Cause, Phase, TrialFailure};
use crate::task::McpServer;

/// The number of bytes at the end of each output stream that the outcome rules search.
const OUTCOME_TAIL: usize = 64 * 1024;
/// The number of bytes of output in an error message.
const COMPLAINT: usize = 2000;

/// An agent with its definition and options.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InstalledAgent {
    #[serde(skip)]
    definition: Arc<Definition>,
    /// `None` if the image has the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(flatten)]
    kwargs: Map<String, Value>,
    #[serde(skip)]
    chosen: Chosen,
    #[serde(skip)]
    env: BTreeMap<String, String>,
    #[serde(skip)]
    layer: Option<Layer>,
}

impl InstalledAgent {
    /// Creates the agent with these options and environment variables.
    ///
    /// # Errors
    /// Returns a message about an unknown option or an invalid value.
    pub(super) fn new(
        definition: Arc<Definition>,
        mut kwargs: Map<String, Value>,
        env: BTreeMap<String, String>,
    ) -> Result<Self, String> {
        let chosen = definition.choose(&kwargs)?;
        let asked = match kwargs.remove(VERSION_OPTION) {
            None | Some(Value::Null) => None,
            Some(Value::String(version)) => Some(version),
            Some(Value::Number(version)) => Some(version.to_string()),
            Some(other) => return Err(format!("option \"version\": {other} is not text")),
        };
        let version = match (definition.install.default_version(), asked) {
            (None, Some(_)) => {
                return Err("it is not installed but part of the image: it has no version".to_owned());
            }
            (None, None) => None,
            (Some(default), asked) => Some(asked.unwrap_or_else(|| default.to_owned())),
        };
        // The version becomes a part of paths and of package managers' arguments.
        version.iter().try_for_each(|version| check_version(version))?;
        Ok(Self { definition, version, kwargs, chosen, env, layer: None })
    }

    /// Returns the agent's definition.
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// Installs the agent on this host, if it is not installed yet.
    pub(super) async fn install(&mut self) -> Result<(), LayerError> {
        if let Some(version) = &self.version {
            self.layer = Box::pin(layer::layer(&self.definition, version)).await?;
        }
        Ok(())
    }

    pub(super) fn shares(&self) -> Vec<Share> {
        self.layer.iter().map(Layer::share).collect()
    }

    /// Sets the agent up: checks that its programs are visible, writes its files and checks that it starts.
    pub(super) async fn set_up(&self, assignment: &Assignment<'_>) -> Result<Ready, TrialFailure> {
        self.check_handover(assignment)?;
        let values = &self.values(assignment);
        let files = self.files(assignment, values)?;
        let setup = Setup {
            definition: &self.definition,
            values,
            files: &files,
            skills_dir: assignment.skills_dir,
            installed: self.layer.is_some(),
        };
        let mut env = self.variables(values);
        env.extend(setup.variables());
        let exec = Exec {
            command: setup.script(),
            env,
            user: assignment.task.config.agent.user.clone(),
            timeout: assignment.timeout,
            ..Exec::default()
        };
        let mut output = assignment.environment.exec(exec.clone()).await.map_err(environment_failed)?;
        // A remote Docker engine mounts its own directories, not those of this host.
        if let (Some(LAYER_MISSING), Some(layer)) = (output.exit_code, &self.layer) {
            tracing::warn!(
                "the engine does not see {}: agent {} is copied into each container, which takes its time",
                layer.host.display(),
                self.definition.name
            );
            assignment.environment.upload(&layer.host, &layer.inside).await.map_err(environment_failed)?;
            output = assignment.environment.exec(exec).await.map_err(environment_failed)?;
        }
        match output.exit_code {
            Some(0) => Ok(Ready { version: Some(last_line(&output.stdout)) }),
            _ => Err(self.not_ready(&output, assignment)),
        }
    }

    fn not_ready(&self, output: &ExecOutput, assignment: &Assignment<'_>) -> TrialFailure {
        let name = &self.definition.name;
        let message = match output.exit_code {
            _ if output.timed_out => {
                let limit = assignment.timeout.unwrap_or_default().as_secs_f64();
                format!("agent {name} was not ready after {limit} s")
            }
            Some(NOT_READY) | None => format!("agent {name} cannot work in this environment"),
            Some(code) => format!("getting agent {name} ready ended with exit code {code}"),
        };
        let said = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
        let said = tail(&said, COMPLAINT);
        let cause = if output.timed_out { Cause::AgentSetupTimeout } else { Cause::Environment };
        TrialFailure::new(Phase::AgentSetup, cause, format!("{message}: {}", said.trim()))
    }

    /// Returns the files of the definition. One of these gets the task's MCP servers.
    fn files(&self, assignment: &Assignment<'_>, values: &Values) -> Result<Vec<FileText>, TrialFailure> {
        let servers = assignment.mcp_servers;
        let handover = match &self.definition.mcp {
            Some(Mcp::InFile(handover)) if !servers.is_empty() => Some(handover),
            _ => None,
        };
        let entries = handover.map(|handover| handover.entries(servers)).transpose();
        let entries = entries.map_err(|server| self.refuses_server(&server.name))?;
        let listed = handover.zip(entries.as_ref());
        let mut files = Vec::new();
        let mut written = false;
        for file in &self.definition.files {
            let extra = listed.filter(|(handover, _)| handover.path == file.path);
            written |= extra.is_some();
            let extra = extra.map(|(handover, entries)| (handover.key.as_str(), entries));
            files.push(FileText { path: file.path.fill(values), text: file.content.render(values, extra) });
        }
        // The list of servers may be a file of its own, which exists only if there are servers.
        if let Some((handover, entries)) = listed.filter(|_| !written) {
            files.push(handover.own_file(values, entries));
        }
        Ok(files)
    }

    fn refuses_server(&self, server: &str) -> TrialFailure {
        let name = &self.definition.name;
        let message =
            format!("agent {name} does not support MCP server {server:?}: it accepts no server of that kind");
        TrialFailure::new(Phase::AgentSetup, Cause::Environment, message)
    }

    /// Returns the agent's environment variables. The user's have priority over those of options and definition.
    fn variables(&self, values: &Values) -> BTreeMap<String, String> {
        let mut env: BTreeMap<_, _> =
            self.definition.env.iter().map(|(name, value)| (name.clone(), value.fill(values))).collect();
        env.extend(self.chosen.env.clone());
        env.extend(self.env.clone());
        env
    }

    fn values(&self, assignment: &Assignment<'_>) -> Values {
        let paths = assignment.environment.paths();
        let urls = assignment.urls_inside;
        let layer = self.layer.as_ref().map(|layer| match assignment.environment {
            Environment::Docker(_) => layer.inside.clone(),
            // The local environment mounts nothing.
            Environment::Local(_) => layer.host.display().to_string(),
        });
        Values::from([
            ("openai_base_url", urls.openai.clone()),
            ("anthropic_base_url", urls.anthropic.clone()),
            ("gemini_base_url", urls.gemini.clone()),
            ("key", assignment.trial.key.clone()),
            ("model", assignment.model.unwrap_or_default().to_owned()),
            ("instruction_file", format!("{}/{INSTRUCTION_FILE}", paths.agent_logs)),
            ("layer", layer.unwrap_or_default()),
            ("state", format!("{}/{}", paths.agent_logs, self.definition.name)),
            ("logs", paths.agent_logs.clone()),
            ("workdir", paths.workdir.clone()),
            ("version", self.version.clone().unwrap_or_default()),
            ("arch", layer::node_arch().to_owned()),
            ("machine", std::env::consts::ARCH.to_owned()),
        ])
    }

    pub(super) async fn run(&self, assignment: &Assignment<'_>, ready: Ready) -> AgentOutcome {
        match self.work(assignment).await {
            Ok(output) => self.judge(ready, &output, assignment),
            Err(failure) => failure.into(),
        }
    }

    async fn work(&self, assignment: &Assignment<'_>) -> Result<ExecOutput, TrialFailure> {
        let more = match self.definition.mcp {
            Some(Mcp::InWords) if !assignment.mcp_servers.is_empty() => in_words(assignment.mcp_servers),
            _ => String::new(),
        };
        super::instruction::put(assignment, &more).await?;
        let values = self.values(assignment);
        let mut arguments = self.chosen.arguments(&values);
        if let (Some(Mcp::InFile(handover)), false) =
            (&self.definition.mcp, assignment.mcp_servers.is_empty())
        {
            arguments.extend(handover.arguments.iter().map(|argument| argument.fill(&values)));
        }
        let exec = Exec {
            command: invocation::work(&self.definition, &values, &arguments),
            env: self.variables(&values),
            user: assignment.task.config.agent.user.clone(),
            timeout: assignment.timeout,
            // Background processes of the agent must not outlive its time limit.
            kills_orphans: true,
            ..Exec::default()
        };
        let output = assignment.environment.exec(exec).await.map_err(environment_failed)?;
        super::command::keep_output(&output, assignment).await?;
        Ok(output)
    }

    /// Fails if the agent does not support the task's servers or skills, because the task would then not be the
    /// author's.
    fn check_handover(&self, assignment: &Assignment<'_>) -> Result<(), TrialFailure> {
        let name = &self.definition.name;
        let lacking = match (
            &self.definition.mcp,
            assignment.mcp_servers,
            &self.definition.skills,
            assignment.skills_dir,
        ) {
            (None, [McpServer { name: server, .. }, ..], _, _) => format!("MCP server {server:?}"),
            (_, _, None, Some(_)) => "skills".to_owned(),
            _ => return Ok(()),
        };
        let message = format!("the task gives its agent {lacking}, and agent {name} takes none");
        Err(TrialFailure::new(Phase::AgentSetup, Cause::Environment, message))
    }

    fn judge(&self, ready: Ready, output: &ExecOutput, assignment: &Assignment<'_>) -> AgentOutcome {
        let mut outcome = super::command::judge(output, assignment);
        let failed = outcome.failure.is_some();
        // A timeout is certain, whereas the output of a killed agent may match any rule.
        if !output.timed_out
            && let Some((cause, words)) = self.meaning(output, failed)
        {
            outcome.failure = Some(TrialFailure::new(Phase::Agent, cause, words));
        }
        outcome.metadata.insert("agent_version".to_owned(), json!(ready.version));
        outcome
    }

    /// Returns the meaning of the output by the definition's rules, with the matching text.
    fn meaning(&self, output: &ExecOutput, failed: bool) -> Option<(Cause, String)> {
        let said = [tail(&output.stdout, OUTCOME_TAIL), tail(&output.stderr, OUTCOME_TAIL)].join("\n");
        // Without `whatever_exit_code`, a rule explains a failure but does not cause it.
        let rules = self.definition.outcome.iter().filter(|rule| failed || rule.whatever_exit_code);
        rules.into_iter().find_map(|rule| {
            let found = RegexBuilder::new(&rule.pattern).multi_line(true).build().ok()?.find(&said)?;
            let cause = match rule.cause {
                OutcomeCause::AgentError => Cause::NonZeroAgentExitCode,
                OutcomeCause::ContextWindowExceeded => Cause::ContextWindowExceeded,
                OutcomeCause::ModelApi => Cause::UnknownApi,
            };
            Some((cause, format!("the agent's last output: {}", tail(found.as_str().as_bytes(), COMPLAINT))))
        })
    }
}

fn environment_failed(error: EnvironmentError) -> TrialFailure {
    TrialFailure::from_error(Phase::Agent, Cause::Environment, &error)
}

fn last_line(stdout: &[u8]) -> String {
    let text = tail(stdout, COMPLAINT);
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default().to_owned()
}

/// Returns the last bytes as text.
fn tail(bytes: &[u8], length: usize) -> String {
    let from = bytes.len().saturating_sub(length);
    String::from_utf8_lossy(bytes.get(from..).unwrap_or_default()).into_owned()
}
