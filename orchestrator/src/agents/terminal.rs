//! rolltap's own agent in a terminal of the environment. It runs in this process and calls the model as any other agent
//! does: through the proxy, with the trial's key.

mod briefing;
mod options;
pub(crate) mod tmux;

use std::time::Duration;

use rolltap_agent::terminal::{Recording, Terminal, TmuxSession};
use rolltap_agent::{AgentError, AgentReport, AgentSettings, StopReason, TrajectorySettings};
use serde_json::{Map, json};
use tokio_util::sync::CancellationToken;

pub use self::options::{OPTIONS, TerminalOptions};
use super::{AgentOutcome, Assignment, Ready};
use crate::failure::{Cause, Phase, TrialFailure};

/// The time for an agent whose time is over to hand in its transcript.
const HAND_IN: Duration = Duration::from_secs(2);

/// Installs tmux if the terminal needs it.
pub(super) async fn set_up(
    options: &TerminalOptions,
    assignment: &Assignment<'_>,
) -> Result<Ready, TrialFailure> {
    if options.tmux == Some(true) {
        tmux::install(assignment.environment, assignment.timeout).await?;
    }
    Ok(Ready::default())
}

pub(super) async fn run(options: &TerminalOptions, assignment: &Assignment<'_>) -> AgentOutcome {
    let Some(model) = assignment.model else {
        return AgentOutcome::failed(Cause::ModelApi, "agent \"terminal\" was given no model");
    };
    let mut settings = AgentSettings::new(&assignment.trial.base_urls.openai, &assignment.trial.key, model);
    options.apply(&mut settings);
    settings.trajectory = Some(TrajectorySettings {
        path: assignment.logs.join("trajectory.json"),
        session_id: assignment.trial.trial_id.to_string(),
        raw_content: options.trajectory_config.is_some_and(|config| config.raw_content),
    });
    if options.tmux == Some(true) {
        Box::pin(run_in_tmux(options, settings, assignment)).await
    } else {
        Box::pin(run_in_streams(options, settings, assignment)).await
    }
}

async fn run_in_streams(
    options: &TerminalOptions,
    settings: AgentSettings,
    assignment: &Assignment<'_>,
) -> AgentOutcome {
    let size = options.size();
    let user = assignment.task.config.agent.user.as_deref();
    let streams = match assignment.environment.open_terminal(size, options.env.clone(), user).await {
        Ok(streams) => streams,
        Err(error) => return error.into(),
    };
    let terminal = match Recording::create(&assignment.logs.join("recording.cast"), size).await {
        Ok(recording) => Terminal::recorded(streams.reader, streams.writer, size, recording),
        Err(error) => return error.into(),
    };
    let outcome = work(settings, &terminal, assignment).await;
    AgentOutcome { terminal: Some(terminal), ..outcome }
}

/// Runs the agent in a tmux session. The session survives the agent, because the tests may look for its programs.
async fn run_in_tmux(
    options: &TerminalOptions,
    settings: AgentSettings,
    assignment: &Assignment<'_>,
) -> AgentOutcome {
    let (relay, requests) = tmux::relay();
    let session = TmuxSession {
        name: tmux::SESSION.to_owned(),
        size: options.size(),
        env: options.env.clone(),
        ..TmuxSession::default()
    };
    let working = async {
        match Terminal::tmux(relay, session).await {
            Ok(terminal) => work(settings, &terminal, assignment).await,
            Err(error) => TrialFailure::from_error(Phase::Agent, Cause::Environment, &error).into(),
        }
    };
    let user = assignment.task.config.agent.user.as_deref();
    // `serve` ends when the terminal is dropped, because the terminal holds its only sender.
    let (outcome, ()) = tokio::join!(working, tmux::serve(requests, assignment.environment, user));
    outcome
}

async fn work(settings: AgentSettings, terminal: &Terminal, assignment: &Assignment<'_>) -> AgentOutcome {
    let instruction = match briefing::of(assignment).await {
        Ok(instruction) => instruction,
        Err(error) => return error.into(),
    };
    // A child token, because the agent's own timeout must not cancel the assignment.
    let stop = assignment.cancel.child_token();
    let work = Box::pin(rolltap_agent::run(settings, &instruction, terminal, stop.clone()));
    match within(work, assignment.timeout, &stop).await {
        AgentEnd::ByItself(result) => hand_in(result, assignment).await,
        AgentEnd::OutOfTime(result) => {
            let timed_out = AgentOutcome::timed_out(assignment);
            match result {
                Some(result) => {
                    AgentOutcome { failure: timed_out.failure, ..hand_in(result, assignment).await }
                }
                None => timed_out,
            }
        }
    }
}

enum AgentEnd {
    ByItself(Result<AgentReport, AgentError>),
    OutOfTime(Option<Result<AgentReport, AgentError>>),
}

/// Lets the agent work until its time limit. Then asks it to stop, and waits briefly for its result.
async fn within(
    mut work: impl Future<Output = Result<AgentReport, AgentError>> + Unpin,
    timeout: Option<Duration>,
    stop: &CancellationToken,
) -> AgentEnd {
    let Some(timeout) = timeout else { return AgentEnd::ByItself(work.await) };
    if let Ok(result) = tokio::time::timeout(timeout, &mut work).await {
        return AgentEnd::ByItself(result);
    }
    stop.cancel();
    AgentEnd::OutOfTime(tokio::time::timeout(HAND_IN, work).await.ok())
}

/// Writes the transcript. A run that failed midway has a transcript too.
async fn hand_in(result: Result<AgentReport, AgentError>, assignment: &Assignment<'_>) -> AgentOutcome {
    let failed = |error: &AgentError| TrialFailure::from_error(Phase::Agent, Cause::ModelApi, error);
    let failure = result.as_ref().map_or_else(|error| Some(failed(error)), context_exceeded);
    let report = match result {
        Ok(report) => report,
        Err(AgentError::Model { report, .. }) => *report,
        // The agent has not started, so there is no transcript.
        Err(AgentError::Settings(_)) => return AgentOutcome { failure, ..AgentOutcome::default() },
    };
    if let Err(error) = write_transcript(&report, assignment).await {
        return error.into();
    }
    let metadata = Map::from_iter([
        ("turns".to_owned(), json!(report.turns)),
        ("completed".to_owned(), json!(report.completed)),
        ("stop".to_owned(), json!(report.stop)),
        ("summaries".to_owned(), json!(report.summaries)),
    ]);
    AgentOutcome { failure, metadata, terminal: None }
}

fn context_exceeded(report: &AgentReport) -> Option<TrialFailure> {
    let message = format!("the conversation outgrew the model's context after {} turns", report.turns);
    (report.stop == StopReason::ContextExceeded)
        .then(|| TrialFailure::new(Phase::Agent, Cause::ContextLengthExceeded, message))
}

async fn write_transcript(report: &AgentReport, assignment: &Assignment<'_>) -> std::io::Result<()> {
    let transcript = serde_json::to_vec_pretty(&report.transcript)?;
    tokio::fs::write(assignment.logs.join("transcript.json"), transcript).await
}
