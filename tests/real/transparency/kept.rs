//! The record of a call compared with vLLM's full report.

use rolltap_rollout::call::{Call, CallStatus};
use rolltap_rollout::token::TokenId;
use serde_json::Value;

/// Checks that the record holds every token of vLLM's answer, and the end of each choice.
pub(super) fn as_reported(name: &str, call: &Call, reported: &Value) {
    let ids = |json: &Value| serde_json::from_value::<Vec<TokenId>>(json.clone()).unwrap();
    assert_eq!((call.status, &call.flaws[..]), (CallStatus::Complete, &[][..]), "{name}");
    assert_eq!(call.prompt_token_ids, ids(&reported["prompt_token_ids"]), "{name}");
    let choices = reported["choices"].as_array().unwrap();
    assert_eq!(call.choices.len(), choices.len(), "{name}");
    for (kept, choice) in call.choices.iter().zip(choices) {
        assert_eq!(kept.token_ids, ids(&choice["token_ids"]), "{name}");
        assert_eq!(kept.finish_reason.as_deref(), choice["finish_reason"].as_str(), "{name}");
        assert_eq!(kept.stop_reason.clone().unwrap_or_default(), choice["stop_reason"], "{name}");
        let reported = choice["logprobs"]["content"].as_array().unwrap().iter();
        let kept: Vec<_> = kept.logprobs.iter().map(|logprob| logprob.unwrap().get()).collect();
        let reported: Vec<_> = reported.map(|entry| entry["logprob"].as_f64().unwrap() as f32).collect();
        assert_eq!(kept.len(), reported.len(), "{name}");
        // The size of the cached prefix changes the last bits of a sum of floats.
        let apart = kept.iter().zip(&reported).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(apart < 1e-4, "{name}: logprobs differ by {apart}");
    }
}
