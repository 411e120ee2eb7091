//! The conversations of a trial, and the search for the answer that a request continues.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rolltap_rollout::branch_cause::BranchCause;
use rolltap_rollout::call::{Call, CallStatus};
use rolltap_rollout::continuation::AnswerRef;

use super::conversation::{Conversations, Known, KnownConversation, Link, TreePosition};
use super::fingerprint::Fingerprint;
use super::message::{StoredMessage, Words};
use super::node::{Node, RenderedPrompt};
use super::request::{InputTexts, PromptInputs, PromptRequest};
use crate::common::redaction::Redaction;
use crate::store::{CallEntry, PromptMaker, StoredConversation};
use crate::upstream::Session;
use crate::wire::json_edit::Object;

/// The minimum length in bytes of an answer that is recognised in another conversation. Shorter answers may be common
/// phrases.
const TELLING_LENGTH: usize = 64;

/// The maximum length in bytes of a message that is searched for answers. A message that takes over a summary is not
/// much longer than the summary.
const LONGEST_LOOKED_THROUGH: usize = 64 << 10;

/// The number of latest answers to search for: an agent takes over a summary soon after the model wrote it.
const LATEST_ANSWERS: usize = 8;

/// A trial's conversations and their answers.
#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<MemoryState>);

#[derive(Debug, Default)]
struct MemoryState {
    said: Conversations,
    /// Answers by the position of their conversation.
    nodes: HashMap<TreePosition, Vec<Arc<Node>>>,
    /// Parsed inputs of requests, by the fingerprint of their texts.
    inputs: HashMap<Fingerprint, Arc<PromptInputs>>,
    /// The latest answers that are long enough to be recognised.
    telling: VecDeque<TellingAnswer>,
    /// The meaning of each conversation's first message that is not an instruction.
    tasks: HashSet<Fingerprint>,
    /// Set when the trial takes no further calls: nothing is stored any more.
    is_closed: bool,
}

/// A recent answer. Few requests need its words, so they are parsed on demand.
#[derive(Debug)]
struct TellingAnswer {
    message: Arc<StoredMessage>,
    /// Inner `None` if the answer is too short to be recognised.
    words: OnceCell<Option<Words>>,
}

impl TellingAnswer {
    fn words(&self) -> Option<&Words> {
        self.words.get_or_init(|| self.message.words(TELLING_LENGTH)).as_ref()
    }
}

/// The result of the lookup of a request.
#[derive(Debug)]
pub(super) struct Looked {
    pub(super) found: Predecessor,
    /// The request's messages as they were sent.
    pub(super) conversation: Arc<Link>,
    pub(super) inputs: Arc<PromptInputs>,
    /// The session of all requests that begin with the same task. It stays the same if the agent or the template changes
    /// later messages.
    pub(super) session: Session,
}

/// The answer that a request continues.
#[derive(Debug)]
pub(super) enum Predecessor {
    /// The request continues no answer.
    New(BranchCause),
    /// The request continues this answer with equal inputs. `new` holds the messages after the answer. `is_edited` if
    /// `new` contains an answer that the agent changed.
    Continues { node: Arc<Node>, new: Vec<Arc<StoredMessage>>, is_edited: bool },
    /// The request continues an answer whose tokens cannot be preserved.
    Otherwise { parent: AnswerRef, cause: BranchCause },
}

/// The origin of a prompt.
#[derive(Clone, Debug)]
pub(super) enum Maker {
    /// The server rendered the messages.
    Server,
    /// The server rendered more than the proxy can render (media), or less (a truncated prompt). Such a prompt proves
    /// nothing about the template.
    ServerOtherwise,
    /// This process spliced the prompt. Holds the template's rendering of its messages, if known.
    Here(Option<RenderedPrompt>),
    /// The proxy spliced the prompt before the trial was loaded from the store.
    HereBefore,
}

/// The answers of a call by the index of their choice. Unreadable answers are omitted.
pub(super) type Answers = BTreeMap<u32, Arc<StoredMessage>>;

/// Converts answers to the form in which clients send them back.
pub(super) fn read_answers(answers: Vec<(u32, Option<String>)>) -> Answers {
    let readable = |(choice, message): (u32, Option<String>)| {
        Some((choice, Arc::new(StoredMessage::of_answer(message?))))
    };
    answers.into_iter().filter_map(readable).collect()
}

/// The data of a request that is stored when its answer arrives.
#[derive(Clone, Debug)]
pub(crate) struct PendingAnswer {
    /// The messages that the prompt was rendered from.
    pub(super) conversation: Arc<Link>,
    pub(super) inputs: Arc<PromptInputs>,
    pub(super) maker: Maker,
}

impl PendingAnswer {
    /// Returns the stored form of the request and its answers.
    pub(super) fn told(&self, answers: &Answers, redaction: &Redaction) -> StoredConversation {
        let text = |message: &Arc<StoredMessage>| Arc::clone(message.text());
        StoredConversation {
            maker: match self.maker {
                Maker::Server => PromptMaker::Server,
                Maker::ServerOtherwise => PromptMaker::ServerOtherwise,
                Maker::Here(_) | Maker::HereBefore => PromptMaker::Proxy,
            },
            messages: self.conversation.messages().iter().map(text).collect(),
            inputs: self.inputs.stored(redaction),
            answers: answers.iter().map(|(index, message)| (*index, text(message))).collect(),
        }
    }
}

impl Memory {
    /// Finds the answer that a request continues, and stores the request's messages. Returns `None` if the texts are
    /// not messages or the memory is closed.
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
        let session =
            first_task(&messages).map_or(Session::OfTrial, |task| Session::beginning_with(task.text()));
        Some(Looked { found, conversation, inputs, session })
    }

    /// Returns the conversation that continues an answer, with the answer and all earlier messages in their stored
    /// spelling. `None` if the memory is closed.
    pub(super) fn continued(&self, node: &Node, new: &[Arc<StoredMessage>]) -> KnownConversation {
        let mut state = self.lock();
        if state.is_closed {
            return None;
        }
        state.said.extended(Some(Arc::clone(&node.said)), new)
    }

    /// Stores a call's answers. Returns the nodes whose prompts the server rendered and that are not proven yet.
    pub(super) fn answered(
        &self,
        seed: &PendingAnswer,
        call: &Arc<Call>,
        answers: &Answers,
    ) -> Vec<Arc<Node>> {
        let mut state = self.lock();
        if state.is_closed { Vec::new() } else { state.answered(seed, call, answers) }
    }

    /// Restores the recorded calls of a trial, in the order in which they ended.
    pub(crate) fn restore(&self, calls: &[CallEntry]) {
        let mut state = self.lock();
        if state.is_closed {
            return;
        }
        for CallEntry { call, told } in calls {
            // Skip a record that cannot be read: no call continues it.
            let _ = told.as_ref().and_then(|told| state.restore(call, told));
        }
    }

    /// Returns the estimated memory in bytes. It includes the messages of refused requests.
    pub(crate) fn bytes(&self) -> u64 {
        self.lock().said.bytes()
    }

    /// Clears the memory of an evicted trial. The recorded calls are restored before the next call.
    pub(crate) fn forget(&self) {
        let mut state = self.lock();
        if !state.is_closed {
            *state = MemoryState::default();
        }
    }

    /// Clears the memory for good: the trial takes no further calls.
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

    /// Returns the parsed inputs. Equal texts are parsed once, because they are the same in many requests.
    fn inputs_of(&mut self, texts: &InputTexts<'_>) -> Arc<PromptInputs> {
        let known = self.inputs.entry(texts.fingerprint());
        Arc::clone(known.or_insert_with(|| Arc::new(texts.read())))
    }

    fn find(&self, messages: &[Arc<StoredMessage>], known: &Known, inputs: &PromptInputs) -> Predecessor {
        let mut otherwise = None;
        // The deepest answer comes first: it preserves the most tokens.
        for (at, links) in known.steps.iter().enumerate().rev() {
            let mut nodes: Vec<_> = links.iter().flat_map(|link| self.nodes_at(link)).collect();
            // Ids of calls are in order of time, so the last node is the latest.
            nodes.sort_unstable_by(|a, b| a.call().call_id.cmp(&b.call().call_id));
            let (same, other): (Vec<_>, Vec<_>) =
                nodes.into_iter().partition(|node| node.inputs.key == inputs.key);
            if let Some((first, rest)) = same.split_first() {
                if rest.iter().all(|node| node.has_tokens_of(first)) {
                    let new = messages.get(at + 1..).unwrap_or_default().to_vec();
                    let is_edited = self.holds_a_changed_answer(messages, known, at + 1);
                    return Predecessor::Continues { node: Arc::clone(first), new, is_edited };
                }
                // The text cannot show which of several samplings the agent continues.
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

    /// Returns whether a message from `start` on is an assistant's, at a position where another answer was recorded.
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

    /// Stores an answer unless a node with equal inputs, prompt and sampled tokens exists. To continue a request that
    /// is sampled a hundred times costs no more than to continue a request that is sampled once.
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

    /// Returns the cause of a conversation that continues no answer.
    fn cause_of_new(&self, messages: &[Arc<StoredMessage>], known: &Known) -> BranchCause {
        if self.said.is_empty() {
            return BranchCause::FirstCall;
        }
        // The recorded answer matches in all but the reasoning that was sent back, so the agent edited the history.
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

    fn has_said(&mut self, answer: &Arc<StoredMessage>) {
        if answer.may_have_words(TELLING_LENGTH) {
            if self.telling.len() == LATEST_ANSWERS {
                self.telling.pop_front();
            }
            self.telling.push_back(TellingAnswer { message: Arc::clone(answer), words: OnceCell::new() });
        }
    }

    /// Returns whether a message that is not an answer repeats a recent answer. Then the agent took over a summary.
    fn holds_an_answer(&self, messages: &[Arc<StoredMessage>]) -> bool {
        let telling = || self.telling.iter().filter_map(TellingAnswer::words);
        let says = |message: &&Arc<StoredMessage>| telling().any(|words| message.says(words));
        let short = messages.iter().filter(|message| message.text().len() <= LONGEST_LOOKED_THROUGH);
        short.filter(says).any(|message| message.role() != "assistant")
    }

    fn remember(&mut self, messages: &[Arc<StoredMessage>]) -> KnownConversation {
        self.tasks.extend(task(messages));
        self.said.extended(None, messages)
    }
}

/// Returns the meaning of the first message that is not an instruction.
fn task(messages: &[Arc<StoredMessage>]) -> Option<Fingerprint> {
    first_task(messages)?.meaning()
}

/// Returns the first message that is not an instruction.
fn first_task(messages: &[Arc<StoredMessage>]) -> Option<&Arc<StoredMessage>> {
    messages.iter().find(|message| !matches!(message.role(), "system" | "developer"))
}
