//! Prepares a chat request for upstream.

use rolltap_rollout::call::Dialect;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::answer::{ChatAnswerOptions, Hidden};
use super::media;
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
    pub(crate) asked: ChatAnswerOptions,
}

/// Keys that a trial cannot enforce as sampling: they belong to the agent's request, or the proxy sets them.
pub(crate) const NOT_SAMPLING: [&str; 7] =
    ["messages", "model", "stream", "stream_options", "tools", "logprobs", "return_token_ids"];

/// Prepares a request for upstream: adds the trial's enforced keys, and asks for ids and logprobs. Every other byte is
/// unchanged.
///
/// # Errors
/// Returns an error for a body that is invalid, controls the engine, has too many samples, or refers to media that may
/// not be fetched.
pub(crate) fn prepare(text: &str, ground: RequestContext<'_>) -> Result<Ready, BadRequest> {
    let object = sampling::object(text)?;
    let model: String = object.get_as("model").unwrap_or_default();
    let served = ground.names.served(&model);
    let enforced = sampling::by_every_name(ground.enforced, &object);
    let effective =
        Effective { object: &object, enforced: &enforced, tool_strict_level: ground.tool_strict_level };
    let renamed = served.as_ref().map(|_| model.as_str().into());
    let asked = asked(&effective, ground.has_parser, renamed);
    let has_media = media::in_messages(object.get("messages").unwrap_or_default(), ground.media)?;
    let facts = CallFacts {
        dialect: Dialect::ChatCompletions,
        model: model.clone(),
        sampling: effective.sampling(ground.defaults),
        has_media,
        choices: effective.samples()?,
        prompts: 1,
        asks_for_tokens: true,
    };
    let mut splices = Splices::of(text);
    if let Some(served) = &served {
        object.set("model", &Value::from(&**served).to_string(), &mut splices);
    }
    let ours = [
        ("logprobs", !asked.logprobs && !lacks_logprobs(&object)),
        ("return_token_ids", !asked.token_ids),
        ("include_reasoning", asked.hidden.is_some()),
    ];
    let ours: Vec<_> = ours.into_iter().filter(|(_, is_ours)| *is_ours).map(|(key, _)| key).collect();
    // A key must be written only once, so the proxy's keys replace enforced ones.
    for (key, value) in enforced.iter().filter(|(key, _)| !ours.contains(&key.as_str())) {
        object.set(key, &value.to_string(), &mut splices);
    }
    for key in ours {
        object.set(key, "true", &mut splices);
    }
    Ok(Ready { body: splices.edited(), facts, asked })
}

/// Whether a request asks for alternative tokens without `logprobs`, which vLLM rejects. The request remains as it is,
/// so that the agent gets vLLM's error.
fn lacks_logprobs(object: &Object<'_>) -> bool {
    let has_top = object.get_as("top_logprobs").is_some_and(|most: f64| most > 0.0 || most == -1.0);
    let has_ids = object.get_as("logprob_token_ids").is_some_and(|ids: Vec<IgnoredAny>| !ids.is_empty());
    has_top || has_ids
}

fn asked(request: &Effective<'_>, has_parser: bool, renamed: Option<Box<str>>) -> ChatAnswerOptions {
    let logprobs = request.object.asks_for("logprobs");
    let token_ids = request.object.asks_for("return_token_ids");
    // With a grammar, vLLM permits reasoning before the answer only if reasoning is included. An agent that requests
    // ids or logprobs may see the effect of vLLM's parsers on them, so its request is not changed either.
    let may_be_shown = logprobs || token_ids || request.is_guided();
    let is_hidden = !may_be_shown && request.turns_off("include_reasoning");
    ChatAnswerOptions {
        logprobs,
        token_ids,
        hidden: is_hidden.then_some(Hidden { is_null: has_parser }),
        renamed,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::dialect::sampling::ToolStrictLevel;
    use crate::dialect::tests::ground;
    use crate::upstream::SamplingDefaults;

    fn prepared(body: &str, enforced: Value) -> Ready {
        let Value::Object(enforced) = enforced else { panic!("not an object") };
        prepare(body, RequestContext { enforced: &enforced, ..ground() }).unwrap()
    }

    #[test]
    fn only_what_we_need_is_added() {
        let body = r#"{"model":"m", "temperature":1.50,"messages":[]}"#;
        let sent = prepared(body, json!({}));
        let text = sent.body.unwrap();
        assert_eq!(
            text,
            r#"{"logprobs":true,"return_token_ids":true,"model":"m", "temperature":1.50,"messages":[]}"#
        );
        assert_eq!(sent.facts.sampling.temperature, Some(1.5));
        assert_eq!(sent.asked, ChatAnswerOptions::default());
    }

    #[test]
    fn what_the_agent_asked_for_itself_is_untouched() {
        let body = r#"{"logprobs":true,"top_logprobs":2,"return_token_ids":true,"messages":[]}"#;
        let sent = prepared(body, json!({}));
        assert_eq!(sent.body, None);
        assert_eq!(
            sent.asked,
            ChatAnswerOptions { logprobs: true, token_ids: true, ..ChatAnswerOptions::default() }
        );
    }

    #[test]
    fn enforced_sampling_is_laid_over_the_request() {
        let sent = prepared(
            r#"{"temperature":0,"logprobs":false}"#,
            json!({"temperature": 0.7, "structured_outputs": {"regex": "a+"}}),
        );
        let sent_body: Value = serde_json::from_str(&sent.body.unwrap()).unwrap();
        assert_eq!(
            sent_body,
            json!({"temperature": 0.7, "structured_outputs": {"regex": "a+"}, "logprobs": true, "return_token_ids": true})
        );
        assert_eq!(sent.facts.sampling.temperature, Some(0.7));
        assert!(sent.facts.sampling.constrained);
    }

    #[test]
    fn reasoning_is_asked_for_where_leaving_it_out_would_cost_the_tokens() {
        let sent = prepared(r#"{"include_reasoning":false}"#, json!({}));
        assert_eq!(
            sent.body.unwrap(),
            r#"{"logprobs":true,"return_token_ids":true,"include_reasoning":true}"#
        );
        assert!(sent.asked.hidden.is_some());
        for as_it_is in [
            r#"{"include_reasoning":false,"logprobs":true}"#,
            r#"{"include_reasoning":false,"response_format":{"type":"json_object"}}"#,
        ] {
            let sent = prepared(as_it_is, json!({}));
            assert!(
                sent.asked.hidden.is_none()
                    && sent.body.is_none_or(|body| !body.ends_with("\"include_reasoning\":true}"))
            );
        }
    }

    fn tool(strict: Option<bool>) -> Value {
        json!({"type": "function", "function": {"name": "f", "parameters": {}, "strict": strict}})
    }

    #[test]
    fn tools_of_a_strict_server_constrain_every_request_that_has_some() {
        let ground = RequestContext { tool_strict_level: ToolStrictLevel::Function, ..ground() };
        for (body, constrained) in [
            (json!({"tools": [tool(None)]}), true),
            (json!({"tools": [tool(None)], "tool_choice": "none"}), false),
            (json!({}), false),
        ] {
            let sent = prepare(&body.to_string(), ground).unwrap();
            assert_eq!(sent.facts.sampling.constrained, constrained, "{body}");
        }
    }

    #[test]
    fn what_pydantic_reads_as_false_does_not_hide_tokens() {
        for off in ["false", "0", "0.0", "\"false\"", "\"No\"", "\"off\"", "\"0\""] {
            let body = format!(r#"{{"logprobs":{off},"return_token_ids":{off}}}"#);
            let sent = prepared(&body, json!({})).body.unwrap();
            assert_eq!(sent, r#"{"logprobs":true,"return_token_ids":true}"#, "{off}");
        }
    }

    #[test]
    fn alternatives_without_logprobs_stay_vllms_to_refuse() {
        for (member, is_refused) in [
            (r#""top_logprobs":2"#, true),
            (r#""top_logprobs":-1"#, true),
            (r#""top_logprobs":0"#, false),
            (r#""logprob_token_ids":[1]"#, true),
            (r#""logprob_token_ids":[]"#, false),
        ] {
            let sent = prepared(&format!("{{{member}}}"), json!({})).body.unwrap();
            let has_logprobs = sent.contains(r#""logprobs":true"#);
            assert_eq!(has_logprobs, !is_refused, "{member}");
        }
    }

    #[test]
    fn an_enforced_key_that_is_ours_too_is_written_once() {
        for body in [r#"{"include_reasoning":true}"#, r#"{"include_reasoning":false}"#, "{}"] {
            let sent = prepared(body, json!({"include_reasoning": false})).body.unwrap();
            let text = sent;
            assert_eq!(text.matches("include_reasoning").count(), 1, "{text}");
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["include_reasoning"], true);
        }
    }

    #[test]
    fn a_number_of_samples_may_be_written_as_pydantic_reads_it() {
        for (n, samples) in [("2", 2), ("2.0", 2), ("\"3\"", 3), ("null", 1), ("2.5", 1), ("-1", 1)] {
            assert_eq!(prepared(&format!(r#"{{"n":{n}}}"#), json!({})).facts.choices, samples, "{n}");
        }
    }

    #[test]
    fn keys_of_the_engine_pass_at_values_without_effect() {
        for body in [
            r#"{"priority":0}"#,
            r#"{"logits_processors":[]}"#,
            r#"{"request_id":""}"#,
            r#"{"vllm_xargs":{}}"#,
            r#"{"kv_transfer_params":null}"#,
        ] {
            prepared(body, json!({}));
        }
        for body in [r#"{"priority":1}"#, r#"{"data_parallel_rank":0}"#, r#"{"vllm_xargs":{"a":1}}"#] {
            assert!(prepare(body, ground()).is_err(), "{body}");
        }
    }

    #[test]
    fn constraints_are_told_from_free_sampling() {
        for (body, constrained) in [
            (json!({"tool_choice": "auto"}), false),
            (json!({"tool_choice": "required"}), true),
            (json!({"tool_choice": {"type": "function"}}), true),
            (json!({"response_format": {"type": "text"}}), false),
            (json!({"response_format": {"type": "json_object"}}), true),
            (json!({"logit_bias": null, "temperature": 0.1}), false),
            (json!({"logit_bias": {"5": 1}}), true),
            (json!({"guided_regex": "a+"}), true),
            (json!({"tools": []}), false),
            (json!({"tools": [tool(None)]}), false),
            (json!({"tools": [tool(Some(false))], "tool_choice": "auto"}), false),
            (json!({"tools": [tool(None), tool(Some(true))]}), true),
            (json!({"tools": [tool(Some(true))], "tool_choice": "auto"}), true),
            (json!({"tools": [tool(Some(true))], "tool_choice": "none"}), false),
            (json!({"tools": [tool(None)], "parallel_tool_calls": false}), true),
            (json!({"parallel_tool_calls": false}), false),
        ] {
            assert_eq!(
                prepared(&body.to_string(), json!({})).facts.sampling.constrained,
                constrained,
                "{body}"
            );
        }
    }

    #[test]
    fn where_the_request_is_silent_the_models_defaults_count() {
        let defaults = SamplingDefaults { temperature: Some(0.6), top_p: Some(0.9), top_k: None };
        let sampling =
            prepare("{\"top_p\":1}", RequestContext { defaults, ..ground() }).unwrap().facts.sampling;
        assert_eq!((sampling.temperature, sampling.top_p, sampling.top_k), (Some(0.6), Some(1.0), None));
    }

    #[test]
    fn what_cannot_be_sent_is_explained() {
        let fails = |body: &str| prepare(body, ground()).unwrap_err().to_string();
        assert!(fails("[1]").contains("not a JSON object"));
        assert!(fails("{\"model\": ").contains("line 1 column"));
        assert!(fails(r#"{"kv_transfer_params":{"prompt_token_ids":[1]}}"#).contains("kv_transfer_params"));
    }
}
