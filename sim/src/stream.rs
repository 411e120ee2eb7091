//! An answer as server-sent events: a body that samples while it is read. If the caller disconnects, the body is
//! dropped and the sampling ends.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body::Frame;
use tokio::time::Sleep;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::answer::Role;
use super::chat::{Chat, FINGERPRINT};
use super::generation::SampledToken;
use super::script::Fault;
use super::server::admission::HeldBlocks;
use super::server::{Cut, Running, Server};
use super::wire::{CallDelta, Delta, Event, EventChoice, Function, PromptDetails};

/// The body of a streamed answer.
pub(super) struct ChatStream {
    chat: Chat,
    server: Arc<Server>,
    running: Option<Running>,
    /// The wait for blocks of the KV cache.
    admission: Option<BoxFuture<'static, HeldBlocks>>,
    held: Option<HeldBlocks>,
    stage: Stage,
    /// The tokens sampled so far in all answers.
    tokens: u32,
    sleep: Option<Pin<Box<Sleep>>>,
    stall: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    /// The last event must be sent before the next one is made.
    flush: bool,
}

/// The next step of the stream.
enum Stage {
    /// The role event of an answer.
    Role(usize),
    /// The pause before a round of tokens.
    Pause,
    /// A token of an answer.
    Token(usize),
    /// The counts, if the request asks for them.
    Usage,
    /// `[DONE]`.
    Done,
    /// The stream has ended.
    End,
}

impl ChatStream {
    /// Creates a body that starts to sample when it is read.
    pub(super) fn new(chat: Chat, server: Arc<Server>, running: Running) -> Self {
        let mut stream = Self {
            admission: chat.admission(&server),
            chat,
            server,
            running: Some(running),
            held: None,
            stage: Stage::Role(0),
            tokens: 0,
            sleep: None,
            stall: None,
            flush: false,
        };
        if stream.admission.is_none() {
            stream.admitted(None);
        }
        stream
    }

    /// Starts the delay before the first token.
    fn admitted(&mut self, held: Option<HeldBlocks>) {
        self.chat.admitted(held.as_ref(), self.server.settings.prefill_delay);
        self.sleep = sleep(self.chat.pace.delay);
        (self.admission, self.held) = (None, held);
    }

    /// Returns the next event, or `None` if the current stage has none.
    fn advance(&mut self) -> Result<Option<Bytes>, Cut> {
        match self.stage {
            Stage::Role(index) => {
                let last = index + 1 >= self.chat.choices.len();
                self.stage = if last { Stage::Pause } else { Stage::Role(index + 1) };
                role_event(&self.chat, index).map(Some)
            }
            Stage::Pause => {
                self.sleep = sleep(self.chat.pace.token_delay);
                self.stage = Stage::Token(0);
                Ok(None)
            }
            Stage::Token(index) => self.token(index),
            Stage::Usage => {
                self.stage = Stage::Done;
                self.chat.shape.usage.then(|| usage_event(&self.chat)).transpose()
            }
            Stage::Done => {
                self.stage = Stage::End;
                self.held = None;
                if let Some(running) = self.running.take() {
                    running.finish();
                }
                Ok(Some(Bytes::from_static(b"data: [DONE]\n\n")))
            }
            Stage::End => Ok(None),
        }
    }

    fn token(&mut self, index: usize) -> Result<Option<Bytes>, Cut> {
        match self.chat.pace.fault.filter(|fault| fault.after() <= self.tokens) {
            Some(Fault::Break(_)) => {
                // A break in the script is not an abort by the caller.
                if let Some(running) = self.running.take() {
                    running.finish();
                }
                return Err(Cut);
            }
            Some(Fault::Stall(_)) => {
                self.stall = Some(Box::pin(self.server.stopping.clone().cancelled_owned()));
                return Ok(None);
            }
            None => {}
        }
        let Some(choice) = self.chat.choices.get_mut(index) else {
            let over = self.chat.choices.iter().all(|choice| choice.finished().is_some());
            self.stage = if over { Stage::Usage } else { Stage::Pause };
            return Ok(None);
        };
        let step = choice.step();
        self.stage = Stage::Token(index + 1);
        let Some(step) = step else { return Ok(None) };
        self.tokens += 1;
        self.server.count_tokens(1);
        if let Some(held) = &mut self.held {
            held.append(index, &[step.token]);
        }
        token_event(&self.chat, index, &step)
    }
}

impl http_body::Body for ChatStream {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        if std::mem::take(&mut self.flush) {
            // The connection sends its buffer only when the body is pending.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        loop {
            if let Some(admission) = &mut self.admission {
                let held = ready!(admission.as_mut().poll(context));
                self.admitted(Some(held));
            }
            if let Some(sleep) = &mut self.sleep {
                ready!(sleep.as_mut().poll(context));
                self.sleep = None;
            }
            if let Some(stall) = &mut self.stall {
                ready!(stall.as_mut().poll(context));
                return Poll::Ready(Some(Err(Cut)));
            }
            match self.advance() {
                Ok(Some(event)) => {
                    self.flush = true;
                    return Poll::Ready(Some(Ok(Frame::data(event))));
                }
                Ok(None) if matches!(self.stage, Stage::End) => return Poll::Ready(None),
                Ok(None) => {}
                Err(cut) => return Poll::Ready(Some(Err(cut))),
            }
        }
    }
}

fn sleep(time: Duration) -> Option<Pin<Box<Sleep>>> {
    (!time.is_zero()).then(|| Box::pin(tokio::time::sleep(time)))
}

fn role_event(chat: &Chat, index: usize) -> Result<Bytes, Cut> {
    let delta = Delta { role: Some("assistant"), content: Some(Some(Cow::Borrowed(""))), ..Delta::default() };
    let choice = EventChoice {
        index: index as u32,
        delta,
        logprobs: None,
        finish_reason: None,
        stop_reason: None,
        token_ids: None,
    };
    let event = Event {
        prompt_token_ids: Some(chat.shape.token_ids.then_some(&chat.prompt)),
        prompt_text: Some(chat.prompt_text.as_deref()),
        ..event(chat, std::slice::from_ref(&choice))
    };
    written(&event)
}

/// Returns the event of a token. An event without visible text is sent only if it has ids, logprobs or a finish reason.
fn token_event(chat: &Chat, index: usize, step: &SampledToken) -> Result<Option<Bytes>, Cut> {
    let Some(generation) = chat.choices.get(index) else { return Ok(None) };
    let delta = delta(chat, index as u32, generation.visible(step));
    let ids = [step.token];
    let (token_ids, logprobs) = (chat.token_ids(&ids), chat.logprobs(generation, std::slice::from_ref(step)));
    if delta.is_empty() && token_ids.is_none() && logprobs.is_none() && step.finish.is_none() {
        return Ok(None);
    }
    let finish = step.finish.as_ref();
    let choice = EventChoice {
        index: index as u32,
        delta,
        logprobs,
        finish_reason: finish.map(|finish| finish.reason.as_str()),
        stop_reason: finish.map(|finish| finish.stop_reason.as_ref()),
        token_ids: Some(token_ids),
    };
    let event = Event {
        // If a usage event follows, that event has the fingerprint.
        system_fingerprint: (finish.is_some() && !chat.shape.usage).then_some(FINGERPRINT),
        ..event(chat, std::slice::from_ref(&choice))
    };
    written(&event).map(Some)
}

fn delta<'a>(chat: &Chat, choice: u32, visible: impl Iterator<Item = (Role, &'a str)>) -> Delta<'a> {
    let mut delta = Delta::default();
    for (role, text) in visible {
        let (call, function) = match role {
            Role::Content => {
                *delta.content.get_or_insert_default().get_or_insert_default() += text;
                continue;
            }
            Role::Reasoning => {
                delta.reasoning = chat.shape.reasoning.then_some(text);
                continue;
            }
            Role::ThinkMark | Role::CallFrame(_) => continue,
            Role::CallName(call) => (call, Function { name: Some(text), arguments: None }),
            Role::CallArguments(call) => (call, Function { name: None, arguments: Some(text) }),
        };
        // vLLM's tool parser writes `content: null` explicitly.
        delta.content.get_or_insert(None);
        let starts = function.name.is_some();
        delta.tool_calls.push(CallDelta {
            id: starts.then(|| chat.call_id(choice, call)),
            kind: starts.then_some("function"),
            index: call,
            function,
        });
    }
    delta
}

fn usage_event(chat: &Chat) -> Result<Bytes, Cut> {
    let usage = Some(chat.usage(Some(PromptDetails::of_stream(chat.cached_tokens))));
    written(&Event { usage, system_fingerprint: Some(FINGERPRINT), ..event(chat, &[]) })
}

/// Returns the fields that all events have.
fn event<'a>(chat: &'a Chat, choices: &'a [EventChoice<'a>]) -> Event<'a> {
    Event {
        id: &chat.id,
        object: "chat.completion.chunk",
        created: chat.created,
        model: &chat.model,
        choices,
        usage: chat.shape.continuous_usage.then(|| chat.usage(None)),
        system_fingerprint: None,
        prompt_token_ids: None,
        prompt_text: None,
    }
}

fn written(event: &Event<'_>) -> Result<Bytes, Cut> {
    let mut line = Vec::with_capacity(384);
    line.extend_from_slice(b"data: ");
    serde_json::to_writer(&mut line, event).map_err(|_| Cut)?;
    line.extend_from_slice(b"\n\n");
    Ok(Bytes::from(line))
}
