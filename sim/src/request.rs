//! Reads a chat request and checks it in vLLM's order: types, model, `max_tokens`, prompt, sampling.

use http::HeaderMap;

use super::Settings;
use super::errors::{RequestError, python_float};
use super::fields::Fields;
use super::template::render;
use super::tokens::VOCABULARY_SIZE;

/// The maximum number of alternatives per token: vLLM's `--max-logprobs`.
const MAX_LOGPROBS: i64 = 20;

/// The maximum number of answers per request.
const MAX_ANSWERS: u32 = 128;

/// A request that passed all checks.
#[derive(Debug)]
pub(super) struct ChatRequest {
    /// The prompt's tokens.
    pub(super) prompt: Vec<u32>,
    /// The text of the first user message.
    pub(super) first_user: String,
    /// The number of assistant messages in the request.
    pub(super) assistant_messages: usize,
    /// Whether an answer may start with reasoning.
    pub(super) thinking: bool,
    /// Whether tool calls are parsed out of the answer.
    pub(super) tools: bool,
    /// The number of answers.
    pub(super) n: u32,
    /// The request's own seed.
    pub(super) seed: Option<u64>,
    /// The id that the caller set in a header or the body.
    pub(super) request_id: Option<String>,
    /// The form of the answer.
    pub(super) shape: Shape,
    /// The limits of the answer.
    pub(super) limits: Limits,
}

/// The contents of an answer.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// Server-sent events instead of one document.
    pub(super) stream: bool,
    /// A last event with the counts.
    pub(super) usage: bool,
    /// The counts in every event.
    pub(super) continuous_usage: bool,
    /// Token ids of prompt and answer.
    pub(super) token_ids: bool,
    /// Logprobs, with this many alternatives per token.
    pub(super) logprobs: Option<usize>,
    /// `token_id:N` in place of a token's text.
    pub(super) tokens_as_ids: bool,
    /// The rendered prompt.
    pub(super) prompt_text: bool,
    /// Reasoning. Without it, vLLM also omits all ids and logprobs of the answer.
    pub(super) reasoning: bool,
}

/// The limits of an answer.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    /// The maximum number of tokens.
    pub(super) max_tokens: u32,
    /// Texts that end the answer.
    pub(super) stop: Vec<String>,
    /// Whether a stop text stays in the answer.
    pub(super) include_stop: bool,
    /// Tokens that end the answer, in addition to the end of the turn.
    pub(super) stop_token_ids: Vec<u32>,
    /// Whether the answer continues after the end of the turn.
    pub(super) ignore_eos: bool,
}

impl ChatRequest {
    /// Reads a body. `settings` contain the served model and its maximum length.
    pub(super) fn read(
        body: &Fields<'_>,
        headers: &HeaderMap,
        settings: &Settings,
    ) -> Result<Self, RequestError> {
        // The first failed check determines the error, so the order of the checks is vLLM's.
        let shape = shape(body)?;
        let n = body.integer("n")?.unwrap_or(1);
        let seed = body.integer("seed")?;
        if body.raw("messages").is_none() {
            return Err(body.missing("messages"));
        }
        body.list("messages")?;
        served(body, settings)?;
        let asked = max_tokens(body, settings.max_model_len)?;
        let rendered = render(body)?;
        let prompt = prompt(body, &rendered, settings.max_model_len)?;
        let limits = limits(body, asked, settings.max_model_len.saturating_sub(prompt.len() as u32))?;
        sampling(body)?;
        if body.boolean("echo")? == Some(true) {
            return Err(RequestError::bad_request("the simulator does not know `echo`; leave it out"));
        }
        Ok(Self {
            prompt,
            n: answers(n)?,
            seed: seed.map(i64::cast_unsigned),
            request_id: request_id(body, headers)?,
            tools: body.list("tools")?.is_some_and(|tools| !tools.is_empty())
                && body.raw("tool_choice").is_none_or(|choice| choice != "none"),
            first_user: rendered.first_user,
            assistant_messages: rendered.assistant_messages,
            thinking: rendered.thinking,
            shape,
            limits,
        })
    }
}

/// Checks that the request names no model, or the served model.
pub(super) fn served(body: &Fields<'_>, settings: &Settings) -> Result<(), RequestError> {
    match body.string("model")? {
        Some(asked) if asked != settings.model => Err(RequestError::unknown_model(asked, &settings.model)),
        _ => Ok(()),
    }
}

/// Checks that the caller's ids are in the vocabulary.
pub(super) fn in_vocabulary(ids: Vec<u32>) -> Result<Vec<u32>, RequestError> {
    match ids.iter().find(|id| **id >= VOCABULARY_SIZE) {
        Some(id) => Err(RequestError::bad_request(format!("Token id {id} is out of vocabulary"))),
        None => Ok(ids),
    }
}

fn shape(body: &Fields<'_>) -> Result<Shape, RequestError> {
    let flag = |name| Ok(body.boolean(name)?.unwrap_or(false));
    let stream = flag("stream")?;
    let options = body.object("stream_options")?;
    let option = |name| match &options {
        Some(options) => Ok(options.boolean(name)?.unwrap_or(false)),
        None => Ok(false),
    };
    let usage = option("include_usage")?;
    let reasoning = body.boolean("include_reasoning")?.unwrap_or(true);
    let logprobs = flag("logprobs")?;
    let top = body.integer("top_logprobs")?.unwrap_or(0);
    if options.is_some() && !stream {
        return Err(RequestError::bad_request("Stream options can only be defined when `stream=True`."));
    }
    if top != 0 && !logprobs {
        let message = "when using `top_logprobs`, `logprobs` must be set to true.";
        return Err(RequestError::parameter(message, "top_logprobs", top));
    }
    Ok(Shape {
        stream,
        usage,
        continuous_usage: usage && option("continuous_usage_stats")?,
        token_ids: flag("return_token_ids")?,
        logprobs: (logprobs && reasoning).then_some(usize::try_from(top).unwrap_or(0)),
        tokens_as_ids: flag("return_tokens_as_token_ids")?,
        prompt_text: flag("return_prompt_text")?,
        reasoning,
    })
}

fn max_tokens(body: &Fields<'_>, max_model_len: u32) -> Result<Option<u32>, RequestError> {
    let name =
        if body.raw("max_completion_tokens").is_some() { "max_completion_tokens" } else { "max_tokens" };
    let Some(asked) = body.integer(name)? else { return Ok(None) };
    if asked > i64::from(max_model_len) {
        let message = format!(
            "{name}={asked} cannot be greater than max_model_len={max_model_len}. Please request fewer output tokens."
        );
        return Err(RequestError::parameter(message, name, asked));
    }
    match u32::try_from(asked) {
        Ok(asked) if asked > 0 => Ok(Some(asked)),
        _ => Err(RequestError::parameter(
            format!("max_tokens must be at least 1, got {asked}."),
            "max_tokens",
            asked,
        )),
    }
}

/// Returns the rendered prompt, or the ids that the caller sends in its place. An overflow has its own wording on
/// either path.
fn prompt(
    body: &Fields<'_>,
    rendered: &super::template::Rendered,
    max_model_len: u32,
) -> Result<Vec<u32>, RequestError> {
    let transfer = body.object("kv_transfer_params")?;
    if let Some(ids) = transfer.map(|transfer| transfer.ids("prompt_token_ids")).transpose()?.flatten() {
        if ids.is_empty() {
            return Err(RequestError::bad_request("The decoder prompt cannot be empty"));
        }
        if ids.len() > max_model_len as usize {
            return Err(RequestError::bad_request(format!(
                "Input length ({}) exceeds model's maximum context length ({max_model_len}).",
                ids.len()
            )));
        }
        return in_vocabulary(ids);
    }
    let ids = rendered.tokens();
    if ids.len() > max_model_len as usize {
        // vLLM stops to tokenise as soon as it knows that the prompt is too long.
        let least = max_model_len.saturating_add(1);
        let message = format!(
            "This model's maximum context length is {max_model_len} tokens. However, your prompt contains at least {least} input \
             tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt."
        );
        return Err(RequestError::parameter(message, "input_tokens", least));
    }
    Ok(ids)
}

fn limits(body: &Fields<'_>, asked: Option<u32>, room: u32) -> Result<Limits, RequestError> {
    // The prompt alone fills the context.
    if room == 0 {
        return Err(RequestError::parameter("max_tokens must be at least 1, got 0.", "max_tokens", 0));
    }
    let stop = body.strings("stop")?;
    if stop.iter().any(String::is_empty) {
        return Err(RequestError::bad_request("stop cannot contain an empty string."));
    }
    Ok(Limits {
        max_tokens: asked.unwrap_or(room).min(room),
        stop,
        include_stop: body.boolean("include_stop_str_in_output")?.unwrap_or(false),
        stop_token_ids: body.ids("stop_token_ids")?.unwrap_or_default(),
        ignore_eos: body.boolean("ignore_eos")?.unwrap_or(false),
    })
}

/// Checks the sampling parameters. They have no effect, because the simulator samples in its own way.
fn sampling(body: &Fields<'_>) -> Result<(), RequestError> {
    if let Some(temperature) = body.number("temperature")?.filter(|temperature| *temperature < 0.0) {
        let value = python_float(temperature);
        return Err(RequestError::parameter(
            format!("temperature must be non-negative, got {value}."),
            "temperature",
            value,
        ));
    }
    if let Some(top_p) = body.number("top_p")?.filter(|top_p| !(*top_p > 0.0 && *top_p <= 1.0)) {
        let value = python_float(top_p);
        return Err(RequestError::parameter(
            format!("top_p must be in (0, 1], got {value}."),
            "top_p",
            value,
        ));
    }
    let top = body.integer("top_logprobs")?.unwrap_or(0);
    // A negative number asks for all tokens.
    let top = if top < 0 { i64::from(VOCABULARY_SIZE) } else { top };
    if top > MAX_LOGPROBS {
        let message =
            format!("Requested sample logprobs of {top}, which is greater than max allowed: {MAX_LOGPROBS}");
        return Err(RequestError::parameter(message, "logprobs", top));
    }
    Ok(())
}

fn answers(n: i64) -> Result<u32, RequestError> {
    match u32::try_from(n) {
        Ok(n) if (1..=MAX_ANSWERS).contains(&n) => Ok(n),
        Ok(n) if n > 0 => {
            Err(RequestError::parameter(format!("n must be at most {MAX_ANSWERS}, got {n}."), "n", n))
        }
        _ => Err(RequestError::parameter(format!("n must be at least 1, got {n}."), "n", n)),
    }
}

fn request_id(body: &Fields<'_>, headers: &HeaderMap) -> Result<Option<String>, RequestError> {
    let header = headers.get("x-request-id").and_then(|value| value.to_str().ok());
    Ok(header.or(body.string("request_id")?).map(str::to_owned))
}
