//! What a trial has said so far, and which answer of it a request goes on from.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rolltap_rollout::branch_cause::BranchCause;
use rolltap_rollout::call::{Call, CallStatus};
use rolltap_rollout::continuation::AnswerRef;
use serde_json::Value;

use super::conversation::{Conversation, Link, Messages};
use super::message::{Fingerprint, Message};
use super::node::{Node, Standing};
use super::request::{Inputs, Request};

/// An answer is recognised in another conversation only if it is no everyday phrase.
const TELLING_LENGTH: usize = 64;

/// A trial's conversations and their answers.
#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    messages: Messages,
    /// Answers by what was said up to them and in them.
    nodes: HashMap<Fingerprint, Vec<Arc<Node>>>,
    /// What was said up to each message of each request.
    beginnings: HashSet<Fingerprint>,
    /// The first message of each conversation that is no instruction.
    tasks: HashSet<Fingerprint>,
    /// Nothing is remembered any more.
    is_closed: bool,
}

/// What a request goes on from.
#[derive(Debug)]
pub(super) enum Found {
    /// No answer so far.
    New(BranchCause),
    /// This one, all inputs being equal.
    Continues { node: Arc<Node>, new: Vec<Arc<Message>> },
    /// An answer, but its tokens cannot be kept.
    Otherwise { parent: AnswerRef, cause: BranchCause },
}

/// Who made a prompt.
#[derive(Clone, Debug)]
pub(super) enum Maker {
    /// The server, of the messages.
    Server,
    /// The server, of more than can be rendered here (media), or of less (a prompt cut off): that says nothing of the
    /// template.
    ServerOtherwise,
    /// It was put together here, and this is how the template renders its messages, if that can be told.
    Here(Option<Standing>),
}

/// What of a request is remembered once it has been answered.
#[derive(Clone, Debug)]
pub(crate) struct Seed {
    /// The messages that its prompt was rendered from.
    pub(super) conversation: Arc<Link>,
    pub(super) inputs: Arc<Inputs>,
    pub(super) maker: Maker,
}

impl Memory {
    /// Finds what a request goes on from, and remembers its messages. None where they are no messages, or nothing is
    /// remembered any more.
    pub(super) fn find(&self, request: &Request<'_>) -> Option<(Found, Arc<Link>)> {
        let mut state = self.lock();
        if state.is_closed {
            return None;
        }
        let messages = state.messages.take(&request.messages)?;
        let found = state.find(&messages, &request.inputs);
        let conversation = state.remember(&messages)?;
        Some((found, conversation))
    }

    /// The conversation that goes on from an answer, every message in the spelling that was kept. None where nothing is
    /// remembered any more.
    pub(super) fn continued(&self, node: &Node, new: &[Arc<Message>]) -> Conversation {
        let mut state = self.lock();
        if state.is_closed {
            return None;
        }
        state.messages.extended(Some(Arc::clone(&node.said)), new)
    }

    /// Takes a call's answers. Gives the nodes whose prompts are not known to be the template's.
    pub(super) fn answered(
        &self,
        seed: &Seed,
        call: &Arc<Call>,
        answers: Vec<(u32, Option<Value>)>,
    ) -> Vec<Arc<Node>> {
        if call.status != CallStatus::Complete || call.prompt_token_ids.is_empty() {
            return Vec::new();
        }
        let mut state = self.lock();
        if state.is_closed {
            return Vec::new();
        }
        let readable =
            |(choice, message): (u32, Option<Value>)| Some((choice, Message::of_answer(message?)?));
        let mut messages: HashMap<u32, Message> = answers.into_iter().filter_map(readable).collect();
        let mut unproven = Vec::new();
        for (place, choice) in call.choices.iter().enumerate() {
            let Some(message) = messages.remove(&choice.index) else { continue };
            let before = Some(Arc::clone(&seed.conversation));
            let said = state.messages.then(&before, &Arc::new(message));
            let inputs = Arc::clone(&seed.inputs);
            let node = Arc::new(Node::new(Arc::clone(call), place, said, inputs, &seed.maker));
            if node.is_of_server {
                unproven.push(Arc::clone(&node));
            }
            state.nodes.entry(node.said.meaning).or_default().push(node);
        }
        unproven
    }

    /// Forgets everything: no call will come any more.
    pub(crate) fn close(&self) {
        *self.lock() = State { is_closed: true, ..State::default() };
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn find(&self, messages: &[Arc<Message>], inputs: &Inputs) -> Found {
        let mut otherwise = None;
        for (length, meaning) in beginnings(messages).into_iter().enumerate().rev() {
            let (old, new) = messages.split_at(length + 1);
            let fitting =
                self.nodes.get(&meaning).into_iter().flatten().filter(|node| admits(&node.said, old));
            let (same, other): (Vec<_>, Vec<_>) = fitting.partition(|node| node.inputs.key == inputs.key);
            if let Some((first, rest)) = same.split_first() {
                if rest.iter().all(|node| node.has_tokens_of(first)) {
                    return Found::Continues { node: Arc::clone(first), new: new.to_vec() };
                }
                let latest = rest.last().unwrap_or(first);
                return Found::Otherwise { parent: latest.name(), cause: BranchCause::Ambiguous };
            }
            if let (None, Some(node)) = (&otherwise, other.last()) {
                otherwise = Some(node.name());
            }
        }
        match otherwise {
            Some(parent) => Found::Otherwise { parent, cause: BranchCause::InputsChanged },
            None => Found::New(self.cause_of_new(messages)),
        }
    }

    /// Why a conversation goes on from no answer.
    fn cause_of_new(&self, messages: &[Arc<Message>]) -> BranchCause {
        if self.messages.is_empty() {
            return BranchCause::FirstCall;
        }
        let beginnings = beginnings(messages);
        // One that would fit but for the reasoning that is sent back: somebody has changed that.
        let is_answered = beginnings.iter().any(|beginning| self.nodes.contains_key(beginning));
        if !is_answered && beginnings.last().is_some_and(|all| self.beginnings.contains(all)) {
            return BranchCause::Resampled;
        }
        if self.holds_an_answer(messages) {
            return BranchCause::Compaction;
        }
        match task(messages) {
            Some(task) if !self.tasks.contains(&task) => BranchCause::SubAgent,
            _ => BranchCause::HistoryEdited,
        }
    }

    /// Whether a message that is no answer repeats what an earlier answer said: a summary taken over.
    fn holds_an_answer(&self, messages: &[Arc<Message>]) -> bool {
        let answers = self.nodes.values().flatten().filter_map(|node| node.said.message.text());
        let telling: Vec<&str> = answers.map(str::trim).filter(|text| text.len() >= TELLING_LENGTH).collect();
        let others = messages.iter().filter(|message| message.role() != "assistant");
        others.into_iter().any(|message| telling.iter().any(|text| message.says(text)))
    }

    fn remember(&mut self, messages: &[Arc<Message>]) -> Conversation {
        let conversation = self.messages.extended(None, messages);
        self.beginnings.extend(beginnings(messages));
        self.tasks.extend(task(messages));
        conversation
    }
}

/// What was said up to each message.
fn beginnings(messages: &[Arc<Message>]) -> Vec<Fingerprint> {
    let mut said = Fingerprint::NONE;
    let next = |message: &Arc<Message>| {
        said = said.then(message.meaning);
        said
    };
    messages.iter().map(next).collect()
}

/// The first message that is no instruction.
fn task(messages: &[Arc<Message>]) -> Option<Fingerprint> {
    let is_instruction = |message: &&Arc<Message>| matches!(message.role(), "system" | "developer");
    messages.iter().find(|message| !is_instruction(message)).map(|message| message.meaning)
}

/// Whether messages that are equal otherwise also send back no other reasoning than there was.
fn admits(said: &Link, sent_back: &[Arc<Message>]) -> bool {
    let stored = said.messages();
    stored.len() == sent_back.len()
        && stored.iter().zip(sent_back).all(|(stored, sent)| stored.admits_reasoning_of(sent))
}
