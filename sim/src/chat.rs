//! Creates the answers to a request, and writes them as one JSON document.

mod pace;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::future::OptionFuture;
use http::StatusCode;

use self::pace::Pace;
use super::answer::{Role, SimAnswer};
use super::generation::{Generation, SampledToken, alternatives};
use super::random::{Random, fingerprint};
use super::request::{ChatRequest, Shape};
use super::script::{Act, Fault, Reply};
use super::server::{Cut, Running, Server};
use super::tokens::{VOCABULARY_SIZE, control_text, decode, token_bytes};
use super::wire::{
    AnswerChoice, AnswerMessage, Completion, CompletionDetails, Function, Logprobs, PromptDetails,
    TokenLogprob, ToolCall, TopLogprob, UsageCounts,
};

/// The `system_fingerprint` of every answer.
pub(super) const FINGERPRINT: &str = concat!("rolltap-sim-", env!("CARGO_PKG_VERSION"));

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct Chat {
    pub(super) id: String,
    pub(super) created: u64,
    pub(super) model: String,
    pub(super) prompt: Vec<u32>,
    pub(super) prompt_text: Option<String>,
    pub(super) shape: Shape,
    pub(super) choices: Vec<Generation>,
    pub(super) pace: Pace,
    /// The number of the prompt's tokens that were cached.
    pub(super) cached_tokens: u32,
    seed: u64,
}

/// The refusal that a script sets in place of an answer.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) status: StatusCode,
    pub(super) message: String,
    pub(super) delay: Duration,
}

impl Chat {
    /// Decides the answers. `number` counts the server's requests. For a request without its own seed, all random
    /// choices depend only on the server's seed and on `number`.
    pub(super) fn new(request: ChatRequest, server: &Server, number: u64) -> Result<Self, Refused> {
        let settings = &server.settings;
        let own = Random::new(settings.seed, number).next();
        let seed = request.seed.map_or(own, |seed| Random::new(seed, fingerprint(&request.prompt)).next());
        let mut pace = Pace { delay: Duration::ZERO, token_delay: settings.token_delay, fault: None };
        let mut choices = Vec::with_capacity(request.n as usize);
        for index in 0..u64::from(request.n) {
            // Even streams choose the answers and odd streams their logprobs, so the two are independent.
            let mut random = Random::new(seed, 2 * index);
            let script = settings.script.as_ref();
            let reply = match script
                .and_then(|script| script.act(&request.first_user, request.assistant_messages, &mut random))
            {
                Some(Act::Refuse { status, message, delay }) => {
                    return Err(Refused { status: *status, message: message.clone(), delay: *delay });
                }
                Some(Act::Reply(reply)) => Some(reply),
                None => None,
            };
            // The delays and the fault of the first answer hold for the whole request.
            if let (0, Some(reply)) = (index, reply) {
                let token_delay = reply.token_delay.unwrap_or(settings.token_delay);
                pace = Pace { delay: reply.delay, token_delay, fault: reply.fault };
            }
            let answer = answer(&request, reply, &mut random);
            choices.push(Generation::new(answer, request.limits.clone(), Random::new(seed, 2 * index + 1)));
        }
        let request_id = request.request_id.unwrap_or_else(|| format!("{:016x}", own.rotate_left(32)));
        Ok(Self {
            id: format!("chatcmpl-{request_id}"),
            created: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs(),
            model: settings.model.clone(),
            prompt_text: request.shape.prompt_text.then(|| decode(&request.prompt)),
            prompt: request.prompt,
            shape: request.shape,
            choices,
            pace,
            cached_tokens: 0,
            seed: own,
        })
    }

    /// Returns the id of a tool call of an answer.
    pub(super) fn call_id(&self, choice: u32, call: u32) -> String {
        // Bit 63 separates these streams from the streams of the answers.
        let stream = (u64::from(choice) << 32) | u64::from(call) | (1 << 63);
        format!("chatcmpl-tool-{:016x}", Random::new(self.seed, stream).next())
    }

    /// Returns the counts so far, over all answers.
    pub(super) fn usage(&self, prompt_tokens_details: Option<PromptDetails>) -> UsageCounts {
        let counts = self.choices.iter().map(Generation::counts);
        let (completion_tokens, reasoning_tokens) =
            counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let prompt_tokens = self.prompt.len() as u32;
        UsageCounts {
            prompt_tokens,
            total_tokens: prompt_tokens + completion_tokens,
            completion_tokens,
            prompt_tokens_details,
            completion_tokens_details: CompletionDetails { reasoning_tokens },
        }
    }

    /// Returns the answers as one document, after the time that sampling takes.
    pub(super) async fn complete(mut self, server: Arc<Server>, running: Running) -> Result<Bytes, Cut> {
        let mut held = OptionFuture::from(self.admission(&server)).await;
        self.admitted(held.as_ref(), server.settings.prefill_delay);
        let keep = self.shape.logprobs.is_some();
        let mut steps: Vec<Vec<SampledToken>> = Vec::with_capacity(self.choices.len());
        for choice in &mut self.choices {
            let mut kept = Vec::new();
            while let Some(step) = choice.step() {
                if keep {
                    kept.push(step);
                }
            }
            steps.push(kept);
        }
        let sampled: u32 = self.choices.iter().map(|choice| choice.counts().0).sum();
        let longest = self.choices.iter().map(|choice| choice.counts().0).max().unwrap_or(0);
        let fault = self.pace.fault.filter(|fault| fault.after() <= sampled);
        let rounds = fault.map_or(longest, |fault| fault.after() / self.choices.len().max(1) as u32);
        self.pace.wait(rounds, &self.choices, held.as_mut()).await;
        match fault {
            Some(Fault::Stall(_)) => {
                server.stopping.cancelled().await;
                return Err(Cut);
            }
            Some(Fault::Break(_)) => {
                // A break in the script is not an abort by the caller.
                running.finish();
                return Err(Cut);
            }
            None => {}
        }
        server.count_tokens(u64::from(sampled));
        let body = serde_json::to_vec(&self.document(&steps)).map_err(|_| Cut)?;
        running.finish();
        Ok(Bytes::from(body))
    }

    fn document<'a>(&'a self, steps: &'a [Vec<SampledToken>]) -> Completion<'a> {
        let choices = (0..)
            .zip(&self.choices)
            .zip(steps)
            .map(|((index, generation), steps)| self.choice(index, generation, steps));
        Completion {
            id: &self.id,
            object: "chat.completion",
            created: self.created,
            model: &self.model,
            choices: choices.collect(),
            service_tier: None,
            system_fingerprint: FINGERPRINT,
            usage: self.usage(Some(PromptDetails::of_completion(self.cached_tokens))),
            prompt_logprobs: None,
            prompt_token_ids: self.shape.token_ids.then_some(&self.prompt),
            prompt_text: self.prompt_text.as_deref(),
            kv_transfer_params: None,
            ec_transfer_params: None,
            metrics: None,
        }
    }

    fn choice<'a>(
        &'a self,
        index: u32,
        generation: &'a Generation,
        steps: &'a [SampledToken],
    ) -> AnswerChoice<'a> {
        let finish = generation.finished();
        AnswerChoice {
            index,
            message: self.message(index, generation),
            logprobs: self.logprobs(generation, steps),
            finish_reason: finish.map_or("stop", |finish| &finish.reason),
            stop_reason: finish.and_then(|finish| finish.stop_reason.as_ref()),
            token_ids: self.token_ids(generation.token_ids()),
            routed_experts: None,
        }
    }

    fn message<'a>(&'a self, choice: u32, generation: &'a Generation) -> AnswerMessage<'a> {
        let (mut content, mut reasoning) = (String::new(), None::<String>);
        let mut tool_calls: Vec<ToolCall<'a>> = Vec::new();
        let mut parsed = false;
        for (role, text) in generation.message() {
            match role {
                Role::Content => content.push_str(text),
                Role::Reasoning => reasoning.get_or_insert_default().push_str(text),
                Role::ThinkMark | Role::CallFrame(_) => parsed = true,
                Role::CallName(call) => {
                    let function = Function { name: Some(text), arguments: Some("") };
                    tool_calls.push(ToolCall { id: self.call_id(choice, call), kind: "function", function });
                }
                Role::CallArguments(_) => {
                    if let Some(call) = tool_calls.last_mut() {
                        call.function.arguments = Some(text);
                    }
                }
            }
        }
        // The parsers write `null` if they removed the whole text. Without parsers, an empty answer is an empty text.
        let content = (!(content.is_empty() && parsed)).then_some(content);
        AnswerMessage {
            role: "assistant",
            content,
            refusal: None,
            annotations: None,
            audio: None,
            function_call: None,
            tool_calls,
            reasoning: reasoning.filter(|_| self.shape.reasoning),
        }
    }

    /// Returns an answer's ids if the request asks for them.
    pub(super) fn token_ids<'a>(&self, ids: &'a [u32]) -> Option<&'a [u32]> {
        (self.shape.token_ids && self.shape.reasoning).then_some(ids)
    }

    /// Returns the logprobs of some steps of an answer if the request asks for them.
    pub(super) fn logprobs<'a>(
        &self,
        generation: &'a Generation,
        steps: &'a [SampledToken],
    ) -> Option<Logprobs<'a>> {
        let top = self.shape.logprobs?;
        let content = steps.iter().map(|step| {
            let token = self.spelled(step.token, generation.own_text(step));
            TokenLogprob {
                logprob: f64::from(step.logprob),
                bytes: generation.own_text(step).as_bytes(),
                top_logprobs: self.top_logprobs(step, &token, top),
                token,
            }
        });
        Some(Logprobs { content: content.collect() })
    }

    fn top_logprobs<'a>(&self, step: &SampledToken, token: &Cow<'a, str>, top: usize) -> Vec<TopLogprob<'a>> {
        let entry = |token: Cow<'a, str>, logprob: f32| {
            let bytes = match &token {
                Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
                Cow::Owned(text) => Cow::Owned(text.clone().into_bytes()),
            };
            TopLogprob { token, logprob: f64::from(logprob), bytes }
        };
        let Some(others) = top.checked_sub(1) else { return Vec::new() };
        let others = alternatives(step, others, VOCABULARY_SIZE).map(|(id, logprob)| {
            let text = control_text(id).or(std::str::from_utf8(token_bytes(id)).ok()).unwrap_or_default();
            entry(self.spelled(id, text), logprob)
        });
        std::iter::once(entry(token.clone(), step.logprob)).chain(others).collect()
    }

    fn spelled<'a>(&self, id: u32, text: &'a str) -> Cow<'a, str> {
        if self.shape.tokens_as_ids { Cow::Owned(format!("token_id:{id}")) } else { Cow::Borrowed(text) }
    }
}

fn answer(request: &ChatRequest, reply: Option<&Reply>, random: &mut Random) -> SimAnswer {
    let limits = &request.limits;
    match reply {
        Some(reply) => {
            let mut answer = SimAnswer::scripted(reply, request.tools, request.thinking);
            if limits.ignore_eos {
                answer.ramble(limits.max_tokens, false, random);
            }
            answer
        }
        None => {
            let mut answer = SimAnswer::empty();
            answer.ramble(limits.max_tokens, !limits.ignore_eos, random);
            answer
        }
    }
}
