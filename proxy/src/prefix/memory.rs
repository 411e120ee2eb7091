//! What a trial has said so far, and which answer of it a request goes on from.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rolltap_rollout::branch_cause::BranchCause;
use rolltap_rollout::call::{Call, CallStatus};
use rolltap_rollout::continuation::AnswerRef;
use serde_json::Value;

use super::conversation::{Conversations, Known, KnownConversation, Link, TreePosition};
use super::fingerprint::Fingerprint;
use super::message::{StoredMessage, Words};
use super::node::{Node, RenderedPrompt};
use super::request::{InputTexts, PromptInputs, PromptRequest};
use crate::store::{CallEntry, PromptMaker, StoredConversation};
use crate::wire::json_edit::Object;

/// An answer is recognised in another conversation only if it is no everyday phrase.
const TELLING_LENGTH: usize = 64;

/// A message is looked for one in it if it has no more bytes than this: what takes a summary over is not much longer.
const LONGEST_LOOKED_THROUGH: usize = 64 << 10;

/// How many of the latest answers are looked for: a summary is taken over soon after it was written.
const LATEST_ANSWERS: usize = 8;

/// A trial's conversations and their answers.
#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<MemoryState>);

#[derive(Debug, Default)]
struct MemoryState {
    said: Conversations,
    /// Answers, by where their conversations stand.
    nodes: HashMap<TreePosition, Vec<Arc<Node>>>,
    /// PromptInputs of requests, by their texts.
    inputs: HashMap<Fingerprint, Arc<PromptInputs>>,
    /// The latest answers that say enough to be recognised.
    telling: VecDeque<Words>,
    /// The first message of each conversation that is no instruction.
    tasks: HashSet<Fingerprint>,
    /// Nothing is remembered any more.
    is_closed: bool,
}

/// A request that has been looked at.
#[derive(Debug)]
pub(super) struct Looked {
    pub(super) found: Predecessor,
    /// Its messages as they were sent.
    pub(super) conversation: Arc<Link>,
    pub(super) inputs: Arc<PromptInputs>,
}

/// What a request goes on from.
#[derive(Debug)]
pub(super) enum Predecessor {
    /// No answer so far.
    New(BranchCause),
    /// This one, all inputs being equal. `new` stands behind it, and may hold an answer that was changed.
    Continues { node: Arc<Node>, new: Vec<Arc<StoredMessage>>, is_edited: bool },
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
    Here(Option<RenderedPrompt>),
    /// The same, by the process before this one.
    HereBefore,
}

/// What a call's choices said, by their index. One that could not be read is not among them.
pub(super) type Answers = BTreeMap<u32, Arc<StoredMessage>>;

/// The answers in the form in which clients send them back.
pub(super) fn read_answers(answers: Vec<(u32, Option<Value>)>) -> Answers {
    let readable = |(choice, message): (u32, Option<Value>)| {
        Some((choice, Arc::new(StoredMessage::of_answer(&message?)?)))
    };
    answers.into_iter().filter_map(readable).collect()
}

/// What of a request is remembered once it has been answered.
#[derive(Clone, Debug)]
pub(crate) struct PendingAnswer {
    /// The messages that its prompt was rendered from.
    pub(super) conversation: Arc<Link>,
    pub(super) inputs: Arc<PromptInputs>,
    pub(super) maker: Maker,
}

impl PendingAnswer {
    /// What is kept of it and of the answers that came.
    pub(super) fn told(&self, answers: &Answers) -> StoredConversation {
        let text = |message: &Arc<StoredMessage>| Arc::clone(message.text());
        StoredConversation {
            maker: match self.maker {
                Maker::Server => PromptMaker::Server,
                Maker::ServerOtherwise => PromptMaker::ServerOtherwise,
                Maker::Here(_) | Maker::HereBefore => PromptMaker::Proxy,
            },
            messages: self.conversation.messages().iter().map(text).collect(),
            inputs: Arc::clone(&self.inputs.text),
            answers: answers.iter().map(|(index, message)| (*index, text(message))).collect(),
        }
    }
}

impl Memory {
    /// Finds what a request goes on from, and remembers its messages. None where they are no messages, or nothing is
    /// remembered any more.
    pub(super) fn find(&self, request: &PromptRequest<'_>) -> Option<Looked> {
        let mut state = self.lock();
        if state.is_closed {
            return None;
        }
        let messages = state.said.take(&request.messages)?;
        let inputs = state.inputs_of(&request.inputs);
        let known = state.said.known(&messages);
        let found = state.find(&messages, &known, &inputs);
        let conversation = state.remember(&messages)?;
        Some(Looked { found, conversation, inputs })
    }

    /// The conversation that goes on from an answer, every message in the spelling that was kept. None where nothing is
    /// remembered any more.
    pub(super) fn continued(&self, node: &Node, new: &[Arc<StoredMessage>]) -> KnownConversation {
        let mut state = self.lock();
        if state.is_closed {
            return None;
        }
        state.said.extended(Some(Arc::clone(&node.said)), new)
    }

    /// Takes a call's answers. Gives the nodes whose prompts are not known to be the template's.
    pub(super) fn answered(
        &self,
        seed: &PendingAnswer,
        call: &Arc<Call>,
        answers: &Answers,
    ) -> Vec<Arc<Node>> {
        let mut state = self.lock();
        if state.is_closed { Vec::new() } else { state.answered(seed, call, answers) }
    }

    /// Takes the calls of a trial that a process before this one had, in the order in which they ended.
    pub(crate) fn restore(&self, calls: &[CallEntry]) {
        let mut state = self.lock();
        if state.is_closed {
            return;
        }
        for CallEntry { call, told } in calls {
            // What cannot be read is not gone on from.
            let _ = told.as_ref().and_then(|told| state.restore(call, told));
        }
    }

    /// What it takes of memory, in bytes, about. Messages of requests that were refused count too.
    pub(crate) fn bytes(&self) -> u64 {
        self.lock().said.bytes()
    }

    /// Forgets everything: what the next call goes on from is restored before it comes.
    pub(crate) fn forget(&self) {
        let mut state = self.lock();
        if !state.is_closed {
            *state = MemoryState::default();
        }
    }

    /// Forgets everything: no call will come any more.
    pub(crate) fn close(&self) {
        *self.lock() = MemoryState { is_closed: true, ..MemoryState::default() };
    }

    fn lock(&self) -> MutexGuard<'_, MemoryState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryState {
    fn answered(&mut self, seed: &PendingAnswer, call: &Arc<Call>, answers: &Answers) -> Vec<Arc<Node>> {
        if call.status != CallStatus::Complete || call.prompt_token_ids.is_empty() {
            return Vec::new();
        }
        let mut unproven = Vec::new();
        for (place, choice) in call.choices.iter().enumerate() {
            let Some(message) = answers.get(&choice.index) else { continue };
            let before = Some(Arc::clone(&seed.conversation));
            let said = self.said.then(&before, message);
            let inputs = Arc::clone(&seed.inputs);
            let node = Arc::new(Node::new(Arc::clone(call), place, said, inputs, &seed.maker));
            if node.is_of_server {
                unproven.push(Arc::clone(&node));
            }
            self.add(node);
        }
        unproven
    }

    fn restore(&mut self, call: &Arc<Call>, told: &StoredConversation) -> Option<()> {
        let texts: Vec<&str> = told.messages.iter().map(|text| &**text).collect();
        let messages = self.said.take(&texts)?;
        let object = Object::scan(&told.inputs).ok()?;
        let inputs = self.inputs_of(&InputTexts::of(&object));
        let maker = match told.maker {
            PromptMaker::Server => Maker::Server,
            PromptMaker::ServerOtherwise => Maker::ServerOtherwise,
            PromptMaker::Proxy => Maker::HereBefore,
        };
        let seed = PendingAnswer { conversation: self.remember(&messages)?, inputs, maker };
        let answers = told.answers.iter().map(|(index, text)| (*index, Arc::new(StoredMessage::kept(text))));
        self.answered(&seed, call, &answers.collect());
        Some(())
    }

    /// What is the same in many requests is read once.
    fn inputs_of(&mut self, texts: &InputTexts<'_>) -> Arc<PromptInputs> {
        let known = self.inputs.entry(texts.fingerprint());
        Arc::clone(known.or_insert_with(|| Arc::new(texts.read())))
    }

    fn find(&self, messages: &[Arc<StoredMessage>], known: &Known, inputs: &PromptInputs) -> Predecessor {
        let mut otherwise = None;
        for (at, links) in known.steps.iter().enumerate().rev() {
            let mut nodes: Vec<_> = links.iter().flat_map(|link| self.nodes_at(link)).collect();
            nodes.sort_unstable_by(|a, b| a.call().call_id.cmp(&b.call().call_id));
            let (same, other): (Vec<_>, Vec<_>) =
                nodes.into_iter().partition(|node| node.inputs.key == inputs.key);
            if let Some((first, rest)) = same.split_first() {
                if rest.iter().all(|node| node.has_tokens_of(first)) {
                    let new = messages.get(at + 1..).unwrap_or_default().to_vec();
                    let is_edited = self.holds_a_changed_answer(messages, known, at + 1);
                    return Predecessor::Continues { node: Arc::clone(first), new, is_edited };
                }
                let latest = rest.last().unwrap_or(first);
                return Predecessor::Otherwise { parent: latest.name(), cause: BranchCause::Ambiguous };
            }
            if let (None, Some(node)) = (&otherwise, other.last()) {
                otherwise = Some(node.name());
            }
        }
        match otherwise {
            Some(parent) => Predecessor::Otherwise { parent, cause: BranchCause::InputsChanged },
            None => Predecessor::New(self.cause_of_new(messages, known)),
        }
    }

    /// Whether one of the messages from `start` on is an assistant's in a place where another answer was given.
    fn holds_a_changed_answer(&self, messages: &[Arc<StoredMessage>], known: &Known, start: usize) -> bool {
        let is_answered = |links: &Vec<Arc<Link>>| {
            let mut answers = self.nodes.values().flatten();
            answers.any(|node| links.iter().any(|link| node.said.follows(link)))
        };
        let behind = messages.iter().enumerate().skip(start);
        behind
            .filter(|(_, message)| message.role() == "assistant")
            .any(|(at, _)| at.checked_sub(1).and_then(|at| known.steps.get(at)).is_some_and(is_answered))
    }

    /// Of answers that are the same tokens behind the same prompt one is enough: a request that is sampled a hundred times
    /// costs no more to go on from than one that is sampled once.
    fn add(&mut self, node: Arc<Node>) {
        self.has_said(&node.said.message);
        let nodes = self.nodes.entry(node.said.place).or_default();
        let is_same = |other: &Arc<Node>| other.inputs.key == node.inputs.key && other.has_tokens_of(&node);
        if !nodes.iter().any(is_same) {
            nodes.push(node);
        }
    }

    fn nodes_at(&self, link: &Link) -> &[Arc<Node>] {
        self.nodes.get(&link.place).map(Vec::as_slice).unwrap_or_default()
    }

    /// Why a conversation goes on from no answer.
    fn cause_of_new(&self, messages: &[Arc<StoredMessage>], known: &Known) -> BranchCause {
        if self.said.is_empty() {
            return BranchCause::FirstCall;
        }
        // One that would fit but for the reasoning that is sent back: somebody has changed that.
        let is_answered = known.changed.iter().any(|link| !self.nodes_at(link).is_empty());
        if !is_answered && known.steps.len() == messages.len() {
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

    fn has_said(&mut self, answer: &StoredMessage) {
        if let Some(words) = answer.words(TELLING_LENGTH) {
            if self.telling.len() == LATEST_ANSWERS {
                self.telling.pop_front();
            }
            self.telling.push_back(words);
        }
    }

    /// Whether a message that is no answer repeats what a late answer said: a summary taken over.
    fn holds_an_answer(&self, messages: &[Arc<StoredMessage>]) -> bool {
        let says = |message: &&Arc<StoredMessage>| self.telling.iter().any(|words| message.says(words));
        let short = messages.iter().filter(|message| message.text().len() <= LONGEST_LOOKED_THROUGH);
        short.filter(says).any(|message| message.role() != "assistant")
    }

    fn remember(&mut self, messages: &[Arc<StoredMessage>]) -> KnownConversation {
        self.tasks.extend(task(messages));
        self.said.extended(None, messages)
    }
}

/// What the first message that is no instruction means.
fn task(messages: &[Arc<StoredMessage>]) -> Option<Fingerprint> {
    let is_instruction = |message: &&Arc<StoredMessage>| matches!(message.role(), "system" | "developer");
    messages.iter().find(|message| !is_instruction(message))?.meaning()
}
