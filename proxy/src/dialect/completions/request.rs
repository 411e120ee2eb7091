//! Prepares a completion request for upstream.

use rolltap_rollout::call::Dialect;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::answer::CompletionAnswerOptions;
use crate::dialect::RequestContext;
use crate::dialect::bad_request::BadRequest;
use crate::dialect::sampling::{self, Effective};
use crate::recorder::CallFacts;
use crate::wire::json_edit::{Object, Splices};

/// A request in the form for upstream, with the facts that the record needs.
#[derive(Debug)]
pub(crate) struct Ready {
    /// The new body, or `None` if the request is forwarded unchanged.
    pub(crate) body: Option<String>,
    pub(crate) facts: CallFacts,
    pub(crate) asked: CompletionAnswerOptions,
}

/// Maximum number of prompts in one request. Each prompt has its own record from the start, so a batch takes memory.
const LARGEST_BATCH: usize = 16 << 10;

/// Prepares a request for upstream: adds the trial's enforced keys, and asks for ids and logprobs. Every other byte is
/// unchanged.
///
/// # Errors
/// Returns an error for a body that is invalid, controls the engine, or has too many prompts or samples.
pub(crate) fn prepare(text: &str, ground: RequestContext<'_>) -> Result<Ready, BadRequest> {
    let object = sampling::object(text)?;
    let model: String = object.get_as("model").unwrap_or_default();
    let served = ground.names.served(&model);
    let effective =
        Effective { object: &object, enforced: ground.enforced, tool_strict_level: ground.tool_strict_level };
    let samples = effective.samples()?;
    let token_ids = object.asks_for("return_token_ids");
    let echo = effective.asks_for("echo");
    // If ids are requested, vLLM omits the prompt's text from an echo, and the proxy cannot restore it. Such a call is
    // forwarded unchanged, and its record is marked as lacking ids.
    let is_left_alone = echo && !token_ids;
    let asked = CompletionAnswerOptions {
        logprobs: is_left_alone || object.has("logprobs"),
        prompt_logprobs: effective.has("prompt_logprobs"),
        token_ids: is_left_alone || token_ids,
        renamed: served.as_ref().map(|_| model.as_str().into()),
        echo,
        samples,
    };
    let prompts = prompts(&object);
    if prompts > LARGEST_BATCH {
        let message =
            format!("{prompts} prompts in one request; at most {LARGEST_BATCH} are taken: send several");
        return Err(BadRequest::at("prompt", message));
    }
    let facts = CallFacts {
        dialect: Dialect::Completions,
        model: model.clone(),
        sampling: effective.sampling(ground.defaults),
        has_media: false,
        choices: samples,
        prompts,
        asks_for_tokens: !is_left_alone,
    };
    let mut splices = Splices::of(text);
    if let Some(served) = &served {
        object.set("model", &Value::from(&**served).to_string(), &mut splices);
    }
    for (key, value) in ground.enforced {
        object.set(key, &value.to_string(), &mut splices);
    }
    if !asked.logprobs {
        // `0` requests the logprob of the sampled token alone.
        object.set("logprobs", "0", &mut splices);
    }
    if !asked.token_ids {
        object.set("return_token_ids", "true", &mut splices);
    }
    Ok(Ready { body: splices.edited(), facts, asked })
}

/// Returns the number of prompts. vLLM accepts a text, the ids of one text, or a list of either. Only such a list is a
/// batch.
fn prompts(object: &Object<'_>) -> usize {
    let text = object.get("prompt").unwrap_or_default();
    let first = text.strip_prefix('[').map(str::trim_start).unwrap_or_default();
    if !first.starts_with(['"', '[']) {
        return 1;
    }
    object.get_as::<Vec<IgnoredAny>>("prompt").map_or(1, |prompts| prompts.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn prepared(body: &str) -> Ready {
        prepare(body, crate::dialect::tests::ground()).unwrap()
    }

    #[test]
    fn only_what_we_need_is_added() {
        let sent = prepared(r#"{"prompt":"a", "temperature":1.50}"#);
        let text = sent.body.unwrap();
        assert_eq!(text, r#"{"logprobs":0,"return_token_ids":true,"prompt":"a", "temperature":1.50}"#);
        let own = r#"{"prompt":"a","logprobs":0,"return_token_ids":true}"#;
        let sent = prepared(own);
        assert!(sent.body.is_none() && sent.asked.logprobs && sent.asked.token_ids);
    }

    #[test]
    fn an_echo_without_ids_is_left_alone() {
        let body = r#"{"prompt":"a","echo":true}"#;
        assert_eq!(prepared(body).body, None);
        let with_ids = prepared(r#"{"prompt":"a","echo":true,"return_token_ids":true}"#);
        assert!(with_ids.body.unwrap().starts_with(r#"{"logprobs":0,"#));
    }

    #[test]
    fn enforced_keys_decide_how_the_answer_is_read() {
        let prepared = |body: &str, enforced: Value| {
            let Value::Object(enforced) = enforced else { panic!("not an object") };
            prepare(body, RequestContext { enforced: &enforced, ..crate::dialect::tests::ground() }).unwrap()
        };
        let both = json!({"echo": true, "prompt_logprobs": 1});
        let asked = prepared(r#"{"prompt":"a","return_token_ids":true}"#, both).asked;
        assert!(asked.echo && asked.prompt_logprobs);
        let none = json!({"echo": false, "prompt_logprobs": null});
        let sent = prepared(r#"{"prompt":"a","echo":true,"prompt_logprobs":1}"#, none);
        assert!(!sent.asked.echo && !sent.asked.prompt_logprobs);
        assert!(sent.facts.asks_for_tokens, "an answer without the prompt is recorded as usual");
        let sent = prepared(r#"{"prompt":"a"}"#, json!({"echo": true}));
        assert_eq!(sent.body.unwrap(), r#"{"echo":true,"prompt":"a"}"#);
        assert!(!sent.facts.asks_for_tokens);
    }

    #[test]
    fn what_is_of_a_wrong_type_is_vllms_to_refuse() {
        let sent = prepared(r#"{"prompt":"a","logprobs":"all","return_token_ids":7}"#);
        assert_eq!(sent.body, None);
    }

    #[test]
    fn a_batch_is_told_from_the_ids_of_one_prompt() {
        for (prompt, prompts) in [
            (r#""a""#, 1),
            ("[1,2,3]", 1),
            ("[]", 1),
            (r#"["a"]"#, 1),
            (r#"["a","b"]"#, 2),
            ("[[1],[2,3],[4]]", 3),
        ] {
            let body = format!(r#"{{"prompt":{prompt},"n":2}}"#);
            let facts = prepared(&body).facts;
            assert_eq!((facts.prompts, facts.choices), (prompts, 2), "{prompt}");
        }
    }
}
