//! The loop of a trial: show the terminal to the model, type what it answers, until one of them ends it.

use std::ops::ControlFlow;

use tokio_util::sync::CancellationToken;

use crate::answer::{Answer, AnswerError, AnswerFormat};
use crate::chat::{ChatClient, ChatError, Message, Reply, Role};
use crate::terminal::Terminal;
use crate::{AgentError, AgentReport, StopReason, hands, prompt};

/// A trial in progress.
pub(crate) struct Episode<'a> {
    chat: &'a ChatClient,
    terminal: &'a Terminal,
    cancel: CancellationToken,
    format: AnswerFormat,
    max_turns: u32,
    /// The last answer that could be read said that the task is complete.
    completion_pending: bool,
    turns: u32,
    prompt_tokens: u64,
    completion_tokens: u64,
    transcript: Vec<Message>,
}

impl<'a> Episode<'a> {
    pub(crate) fn new(
        chat: &'a ChatClient,
        terminal: &'a Terminal,
        cancel: CancellationToken,
        format: AnswerFormat,
        max_turns: u32,
    ) -> Self {
        Self {
            chat,
            terminal,
            cancel,
            format,
            max_turns,
            completion_pending: false,
            turns: 0,
            prompt_tokens: 0,
            completion_tokens: 0,
            transcript: Vec::new(),
        }
    }

    /// Runs to the end.
    pub(crate) async fn run(mut self, instruction: &str) -> Result<AgentReport, AgentError> {
        match self.take_turns(instruction).await {
            Ok(stop) => Ok(self.report(stop)),
            Err(ChatError::ContextExceeded { message }) => {
                tracing::info!(message, "the conversation no longer fits into the model's context");
                Ok(self.report(StopReason::ContextExceeded))
            }
            Err(source) => {
                Err(AgentError::Model { source, report: Box::new(self.report(StopReason::ModelFailed)) })
            }
        }
    }

    fn report(self, stop: StopReason) -> AgentReport {
        AgentReport {
            turns: self.turns,
            completed: stop == StopReason::Completed,
            stop,
            prompt_tokens: self.prompt_tokens,
            completion_tokens: self.completion_tokens,
            transcript: self.transcript,
        }
    }

    async fn take_turns(&mut self, instruction: &str) -> Result<StopReason, ChatError> {
        let first_prompt = hands::wait_for_prompt(self.terminal);
        if self.cancel.run_until_cancelled(first_prompt).await.is_none() {
            return Ok(StopReason::Cancelled);
        }
        self.say(prompt::first(self.format, instruction, &self.terminal.observe()));
        loop {
            if self.terminal.is_closed() {
                return Ok(StopReason::TerminalClosed);
            }
            if self.turns >= self.max_turns {
                return Ok(StopReason::MaxTurns);
            }
            let asking = self.chat.complete(&self.transcript);
            let Some(reply) = self.cancel.run_until_cancelled(asking).await else {
                return Ok(StopReason::Cancelled);
            };
            let reply = reply?;
            let cut_off = reply.cut_off;
            let content = self.record(reply);
            let answer = self.format.parse(&content);
            let ended = match self.format.salvage(&content) {
                Some(whole) if cut_off => self.act(Ok(whole)).await,
                _ if cut_off => {
                    let noticed = answer.map_or_else(|error| error.warnings, |answer| answer.warnings);
                    self.say(prompt::cut_off(&noticed));
                    continue;
                }
                _ => self.act(answer).await,
            };
            if let ControlFlow::Break(stop) = ended {
                return Ok(stop);
            }
        }
    }

    /// Does what the model's answer says and tells it what came of it.
    async fn act(&mut self, answer: Result<Answer, AnswerError>) -> ControlFlow<StopReason> {
        let Answer { commands, task_complete, mut warnings, .. } = match answer {
            Ok(answer) => answer,
            // Whether completion is pending stays as it is: the answer that could not be read may confirm it.
            Err(error) => {
                tracing::debug!(turn = self.turns, problem = error.problem, "unreadable answer");
                self.say(prompt::unreadable(self.format, &error));
                return ControlFlow::Continue(());
            }
        };
        tracing::debug!(turn = self.turns, commands = commands.len(), task_complete, "answer");
        let typing = hands::carry_out(self.terminal, &commands);
        match self.cancel.run_until_cancelled(typing).await {
            Some(noticed) => warnings.extend(noticed),
            None => return ControlFlow::Break(StopReason::Cancelled),
        }
        if task_complete && self.completion_pending {
            return ControlFlow::Break(StopReason::Completed);
        }
        self.completion_pending = task_complete;
        let observation = self.terminal.observe();
        self.say(if task_complete {
            prompt::confirm_completion(self.format, &observation, &warnings)
        } else {
            prompt::after_commands(&observation, &warnings)
        });
        ControlFlow::Continue(())
    }

    fn say(&mut self, content: String) {
        self.transcript.push(Message { role: Role::User, content });
    }

    /// Keeps the model's words exactly as they came: the tokens of the next prompt begin with those of this answer only
    /// if its text does.
    fn record(&mut self, reply: Reply) -> String {
        self.turns += 1;
        self.prompt_tokens += reply.prompt_tokens;
        self.completion_tokens += reply.completion_tokens;
        self.transcript.push(Message { role: Role::Assistant, content: reply.content.clone() });
        reply.content
    }
}
