//! One episode: a fresh environment and terminal, steps in it, and the verdict at its end.

use std::collections::BTreeMap;
use std::time::Duration;

use rolltap_agent::answer::{AnswerFormat, ModelAnswer};
use rolltap_agent::terminal::{Terminal, TmuxSession};
use rolltap_agent::{prompt, type_commands};
use tempfile::TempDir;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::environment_guard::EnvironmentGuard;
use super::error::GymError;
use super::hosts::Hosts;
use super::judge::Judge;
use super::reply::{ResetInfo, ResetReply, StepInfo, StepReply, Verdict};
use super::request::Action;
use super::spec::{Facts, TerminalKind};
use crate::agents::terminal::tmux;
use crate::environment::{EnvironmentError, Exec};
use crate::failure::{AGENT_SETUP_SEC, chain};
use crate::job_dir::{JobDir, TrialDir};
use crate::trial::wait_until_healthy;

/// The time limit for checking that an environment exists after its terminal closed.
const PROBE_TIMEOUT: Duration = Duration::from_secs(30);

/// A running episode.
pub(super) struct Episode {
    terminal: Terminal,
    room: EnvironmentGuard,
    label: String,
    dir: TrialDir,
    /// The temporary directory that contains [`Self::dir`].
    logs: TempDir,
    /// When the task's time is over.
    deadline: Option<Instant>,
    steps: u32,
    /// Whether the latest parsed step declared the task complete.
    completion_pending: bool,
}

/// An episode that has ended.
pub(super) struct EpisodeEnded {
    /// Cancelled when the episode's environment is removed.
    removed: CancellationToken,
    /// The files of the tests, for people to inspect.
    _logs: TempDir,
}

/// The result of an action at the terminal.
#[derive(Default)]
struct ActionOutcome {
    observation: String,
    warnings: Vec<String>,
    parse_error: Option<String>,
    is_complete: bool,
}

impl Episode {
    /// Starts a new episode. If that fails or is cancelled, nothing is left behind.
    pub(super) async fn begin(facts: &Facts, hosts: &Hosts) -> Result<(Self, ResetReply), GymError> {
        let failed = |error: EnvironmentError| GymError::environment_failed(&error);
        let task = &facts.task;
        let room = hosts.open(facts.kind, task, &facts.id).await?;
        if let Some(check) = &task.config.environment.healthcheck {
            let healthy = Box::pin(wait_until_healthy(&room, check, None)).await;
            healthy.map_err(|error| GymError::EnvironmentFailed(chain(&error)))?;
        }
        room.set_network(&task.network.agent).await.map_err(failed)?;
        let terminal = Box::pin(open_terminal(&room, facts, hosts)).await?;
        type_commands::wait_for_prompt(&terminal).await;
        let logs = tempfile::Builder::new().prefix("rolltap-env-").tempdir();
        let logs = logs.map_err(|error| GymError::Internal(format!("no place for logs: {error}")))?;
        let dir = JobDir::at(logs.path()).create_trial("episode");
        let dir = dir.map_err(|error| GymError::Internal(format!("no place for logs: {error}")))?;
        let limit = hosts.timeouts.agent(task.config.agent.timeout_sec);
        let instruction = room.instruction(&task.instruction);
        let screen = terminal.observe().await;
        let reply = ResetReply {
            observation: prompt::after_commands(&screen, &[]),
            info: ResetInfo {
                prompt: prompt::first(facts.format, &instruction, &screen),
                instruction,
                task_id: task.name.clone(),
                step: 0,
            },
        };
        let episode = Self {
            terminal,
            room,
            label: facts.id.clone(),
            dir,
            logs,
            deadline: limit.and_then(|limit| Instant::now().checked_add(limit)),
            steps: 0,
            completion_pending: false,
        };
        Ok((episode, reply))
    }

    /// Types an action's commands, and verifies the work if the episode ends. If this future is dropped, the keystrokes
    /// so far remain and the episode continues.
    ///
    /// # Errors
    /// Fails if the environment is gone.
    pub(super) async fn step(
        &mut self,
        action: Action,
        facts: &Facts,
        hosts: &Hosts,
    ) -> Result<StepReply, GymError> {
        self.steps += 1;
        let turn = match read(action, facts.format) {
            Ok(answer) => self.take_turn(answer, facts).await,
            // A pending completion stays pending, as in the terminal agent.
            Err(refused) => refused,
        };
        // Read after typing, because the commands may have ended the shell.
        let terminal_closed = self.terminal.is_closed();
        if terminal_closed {
            self.must_be_there().await?;
        }
        let terminated = turn.is_complete || terminal_closed;
        let spent = facts.max_steps.is_some_and(|most| self.steps >= most) || self.is_out_of_time();
        let done = terminated || spent;
        let judged = if done { Some(self.judge(facts, hosts).await) } else { None };
        let (reward, verdict) = judged.unzip();
        Ok(StepReply {
            observation: turn.observation,
            reward: reward.unwrap_or_default(),
            done,
            info: StepInfo {
                step: self.steps,
                warnings: turn.warnings,
                parse_error: turn.parse_error,
                terminated,
                truncated: spent && !terminated,
                terminal_closed,
                verdict,
            },
        })
    }

    /// Ends the episode, and returns when its environment is removed.
    pub(super) async fn leave(self) {
        drop(self.terminal);
        self.room.leave().await;
    }

    /// Ends the episode and begins to remove its environment. The files of the tests exist as long as the returned
    /// value.
    pub(super) fn end(self) -> EpisodeEnded {
        EpisodeEnded { removed: self.room.removed(), _logs: self.logs }
    }

    async fn take_turn(&mut self, answer: ModelAnswer, facts: &Facts) -> ActionOutcome {
        let ModelAnswer { commands, task_complete, mut warnings, .. } = answer;
        let typing = type_commands::carry_out(&self.terminal, &commands);
        match self.deadline {
            None => warnings.extend(typing.await),
            Some(_) if self.is_out_of_time() => {}
            // At the deadline the keystrokes so far count.
            Some(deadline) => warnings.extend(timeout_at(deadline, typing).await.unwrap_or_default()),
        }
        let is_complete = task_complete && (self.completion_pending || !facts.confirm_completion);
        self.completion_pending = task_complete;
        let screen = self.terminal.observe().await;
        let observation = if task_complete && !is_complete {
            prompt::confirm_completion(facts.format, &screen, &warnings)
        } else {
            prompt::after_commands(&screen, &warnings)
        };
        ActionOutcome { observation, warnings, parse_error: None, is_complete }
    }

    fn is_out_of_time(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Checks whether the environment still exists, because only its shell may have ended.
    async fn must_be_there(&self) -> Result<(), GymError> {
        let probe = Exec { command: "true".to_owned(), timeout: Some(PROBE_TIMEOUT), ..Exec::default() };
        match self.room.exec(probe).await {
            Ok(output) if output.exit_code == Some(0) => Ok(()),
            // The container may still be shutting down.
            Ok(_) => Err(GymError::Vanished("nothing runs there any more".to_owned())),
            Err(error) => Err(GymError::Vanished(chain(&error))),
        }
    }

    async fn judge(&self, facts: &Facts, hosts: &Hosts) -> (f64, Verdict) {
        let Facts { kind, task, .. } = facts;
        let judge = Judge { hosts, kind: *kind, task, label: &self.label, dir: &self.dir };
        Verdict::of(Box::pin(judge.judge(&self.room)).await)
    }
}

impl EpisodeEnded {
    /// Returns when the episode's environment is removed.
    pub(super) async fn leave(self) {
        self.removed.cancelled().await;
    }
}

async fn open_terminal(room: &EnvironmentGuard, facts: &Facts, hosts: &Hosts) -> Result<Terminal, GymError> {
    let user = facts.task.config.agent.user.clone();
    match facts.terminal {
        TerminalKind::Screen => {
            let opened = room.open_terminal(facts.size, BTreeMap::new(), user.as_deref()).await;
            let streams = opened.map_err(|error| GymError::environment_failed(&error))?;
            Ok(Terminal::new(streams.reader, streams.writer, facts.size))
        }
        TerminalKind::Tmux => {
            let limit = hosts.timeouts.agent_setup(AGENT_SETUP_SEC);
            let installed = tmux::install(room, limit).await;
            installed.map_err(|failure| GymError::EnvironmentFailed(failure.message))?;
            let (relay, requests) = tmux::relay();
            // The server of requests ends with the terminal, which holds the only sender.
            room.besides(move |inside| async move { tmux::serve(requests, &inside, user.as_deref()).await });
            let session =
                TmuxSession { name: tmux::SESSION.to_owned(), size: facts.size, ..TmuxSession::default() };
            let started = Terminal::tmux(relay, session).await;
            started.map_err(|error| GymError::EnvironmentFailed(chain(&error)))
        }
    }
}

/// Parses an action. An answer that cannot be parsed is not carried out and becomes an observation.
fn read(action: Action, format: AnswerFormat) -> Result<ModelAnswer, ActionOutcome> {
    match action {
        Action::Commands { commands, task_complete } => Ok(ModelAnswer {
            analysis: String::new(),
            plan: String::new(),
            commands,
            task_complete,
            warnings: Vec::new(),
        }),
        Action::Answer(text) => format.parse(&text).map_err(|error| ActionOutcome {
            observation: prompt::unreadable(format, &error),
            warnings: error.warnings,
            parse_error: Some(error.problem),
            ..ActionOutcome::default()
        }),
    }
}
