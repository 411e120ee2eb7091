//! The loop of a trial: shows the terminal to the model and types the answers, until an end condition holds.

mod asking;

use std::ops::ControlFlow;

use tokio_util::sync::CancellationToken;

use crate::answer::ModelAnswer;
use crate::chat::{ChatClient, ChatError, Message, Reply, Role};
use crate::conversation::Exchanges;
use crate::report::{AgentError, AgentReport, StopReason};
use crate::settings::AgentSettings;
use crate::terminal::Terminal;
use crate::trajectory::Recorder;
use crate::{prompt, type_commands};

/// A trial in progress.
pub(crate) struct Episode<'a> {
    chat: &'a ChatClient,
    settings: &'a AgentSettings,
    terminal: &'a Terminal,
    instruction: &'a str,
    /// The number of tokens in the model's context, if known.
    context_length: Option<u64>,
    conversation: Exchanges,
    /// The next message to the model.
    next: String,
    /// Whether the last readable answer declared the task complete.
    completion_pending: bool,
    turns: u32,
    summaries: u32,
    /// The number of consecutive prompts that did not fit into the model's context.
    unanswered: u32,
    transcript: Vec<Message>,
    recorder: Option<Recorder>,
}

impl<'a> Episode<'a> {
    pub(crate) fn new(chat: &'a ChatClient, terminal: &'a Terminal, instruction: &'a str) -> Self {
        let settings = chat.settings();
        Self {
            chat,
            settings,
            terminal,
            instruction,
            context_length: settings.summarize.and_then(|summarize| summarize.context_length),
            conversation: Exchanges::default(),
            next: String::new(),
            completion_pending: false,
            turns: 0,
            summaries: 0,
            unanswered: 0,
            transcript: Vec::new(),
            recorder: settings.trajectory.clone().map(|place| Recorder::new(place, settings)),
        }
    }

    /// Runs to the end, or until cancelled.
    pub(crate) async fn run(mut self, cancel: CancellationToken) -> Result<AgentReport, AgentError> {
        let ended = cancel.run_until_cancelled(Box::pin(self.take_turns())).await;
        // Outside the cancelled future: a cancelled run also leaves its trajectory.
        self.keep_trajectory().await;
        match ended {
            None => Ok(self.report(StopReason::Cancelled)),
            Some(Ok(stop)) => Ok(self.report(stop)),
            Some(Err(ChatError::ContextExceeded { message })) => {
                tracing::info!(message, "the conversation no longer fits into the model's context");
                Ok(self.report(StopReason::ContextExceeded))
            }
            Some(Err(source)) => {
                Err(AgentError::Model { source, report: Box::new(self.report(StopReason::ModelFailed)) })
            }
        }
    }

    fn report(self, stop: StopReason) -> AgentReport {
        let spent = self.chat.spent();
        AgentReport {
            turns: self.turns,
            completed: stop == StopReason::Completed,
            stop,
            summaries: self.summaries,
            prompt_tokens: spent.prompt_tokens,
            completion_tokens: spent.completion_tokens,
            transcript: self.transcript,
        }
    }

    async fn take_turns(&mut self) -> Result<StopReason, ChatError> {
        let ready = type_commands::wait_for_prompt(self.terminal);
        // The two waits are independent, and each may take seconds.
        let ((), context_length) = tokio::join!(ready, self.find_context_length());
        self.context_length = context_length;
        let observation = self.terminal.observe().await;
        self.say(prompt::first(self.settings.format, self.instruction, &observation));
        loop {
            // Checked before each request, because an answer for a closed terminal would waste a call.
            if self.terminal.is_closed() {
                return Ok(StopReason::TerminalClosed);
            }
            if self.turns >= self.settings.max_turns {
                return Ok(StopReason::MaxTurns);
            }
            // Before the request: a summary needs free context, which a rejected request no longer has.
            self.hand_over_ahead().await;
            let Some(reply) = self.ask().await? else { continue };
            let ended = self.take(&reply).await;
            self.keep_trajectory().await;
            if let ControlFlow::Break(stop) = ended {
                return Ok(stop);
            }
        }
    }

    /// Executes the model's answer and queues the result as the next message.
    async fn take(&mut self, reply: &Reply) -> ControlFlow<StopReason> {
        let answer = match self.read(reply) {
            Ok(answer) => answer,
            // A pending completion stays pending, because the repeated answer may confirm it.
            Err(correction) => {
                self.record(|recorder, turn| recorder.answered(turn, reply, None));
                self.respond(correction);
                return ControlFlow::Continue(());
            }
        };
        self.record(|recorder, turn| recorder.answered(turn, reply, Some(&answer)));
        let ModelAnswer { plan, commands, task_complete, mut warnings, .. } = answer;
        tracing::info!(turn = self.turns, commands = commands.len(), task_complete, plan, "answer");
        // The observation comes after the output has settled, so that it shows the result of the commands.
        warnings.extend(type_commands::carry_out(self.terminal, &commands).await);
        let observation = self.terminal.observe().await;
        // The commands of the confirming answer were typed too, so the last observation has their result.
        if task_complete && self.completion_pending {
            self.record(|recorder, _| recorder.observed(observation.text()));
            return ControlFlow::Break(StopReason::Completed);
        }
        self.completion_pending = task_complete;
        self.respond(if task_complete {
            prompt::confirm_completion(self.settings.format, &observation, &warnings)
        } else {
            prompt::after_commands(&observation, &warnings)
        });
        ControlFlow::Continue(())
    }

    /// Parses the model's answer. The error is the correction for the model.
    fn read(&self, reply: &Reply) -> Result<ModelAnswer, String> {
        let format = self.settings.format;
        let read = format.parse(&reply.content);
        if !reply.cut_off {
            return read.map_err(|error| {
                tracing::info!(turn = self.turns, problem = error.problem, "unreadable answer");
                prompt::unreadable(format, &error)
            });
        }
        // A truncated answer may look complete although commands are missing, so only a provably whole answer counts.
        format.salvage(&reply.content).ok_or_else(|| {
            let noticed = read.map_or_else(|error| error.warnings, |answer| answer.warnings);
            prompt::cut_off(&noticed)
        })
    }

    /// Queues the result of the model's answer.
    fn respond(&mut self, content: String) {
        self.record(|recorder, _| recorder.observed(&content));
        self.put(content);
    }

    /// Queues a message that is not the result of an answer.
    fn say(&mut self, content: String) {
        self.record(|recorder, _| recorder.asked(&content));
        self.put(content);
    }

    fn put(&mut self, content: String) {
        self.transcript.push(Message { role: Role::User, content: content.clone() });
        self.next = content;
    }

    /// Calls the recorder, if there is one, with the number of the turn from 1.
    fn record(&mut self, what: impl FnOnce(&mut Recorder, u32)) {
        let turn = self.turns;
        if let Some(recorder) = &mut self.recorder {
            what(recorder, turn);
        }
    }

    async fn keep_trajectory(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.write(self.chat.spent()).await;
        }
    }
}
