//! The keys that a trial enforces in each of its requests: which keys are accepted.

use serde_json::{Map, Value};

use super::chat::request::NOT_SAMPLING;
use super::sampling::{ENGINE_CONTROL, SAMPLING_KEYS};
use crate::common::suggest::nearest;

/// Keys of vLLM's chat request, and of OpenAI's, that affect no sampling of tokens.
const OTHER_KEYS: [&str; 34] = [
    "add_generation_prompt",
    "add_special_tokens",
    "cache_salt",
    "chat_template",
    "continue_final_message",
    "documents",
    "echo",
    "length_penalty",
    "logprob_token_ids",
    "media_io_kwargs",
    "metadata",
    "mm_payload",
    "mm_processor_kwargs",
    "prediction",
    "prompt_logprobs",
    "repetition_detection",
    "return_mm_kwargs",
    "return_prompt_text",
    "return_token_offsets",
    "return_tokens_as_token_ids",
    "routed_experts_prompt_start",
    "service_tier",
    "session_id",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "store",
    "stream_interval",
    "top_logprobs",
    "truncation_side",
    "use_beam_search",
    "user",
    "verbosity",
    "watermarking",
    "web_search_options",
];

/// A key that a trial cannot enforce.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSampling {
    /// The key belongs to the agent's own request, or the proxy sets it for its record.
    #[error("sampling.{0} is not how tokens are sampled: it cannot be enforced")]
    NotSampling(&'static str),
    /// The key is a typing error: vLLM would ignore it without an error.
    #[error("sampling.{given}: no key of vLLM's chat request has this name; did you mean {known:?}?")]
    Misspelt {
        /// The key as given.
        given: String,
        /// The nearest known key.
        known: &'static str,
    },
}

/// Checks the keys that a trial enforces. A key that resembles no known key is accepted, because vLLM may be newer.
///
/// # Errors
/// Returns the first key that cannot be enforced, or that resembles a known key.
pub fn check_sampling(sampling: &Map<String, Value>) -> Result<(), InvalidSampling> {
    if let Some(key) = NOT_SAMPLING.into_iter().find(|&key| sampling.contains_key(key)) {
        return Err(InvalidSampling::NotSampling(key));
    }
    let misspelt = |given: &String| {
        let known = nearest(given, known()).filter(|known| *known != given.as_str())?;
        Some(InvalidSampling::Misspelt { given: given.clone(), known })
    };
    sampling.keys().find_map(misspelt).map_or(Ok(()), Err)
}

fn known() -> impl Iterator<Item = &'static str> {
    let engine = ENGINE_CONTROL.iter().map(|(key, _)| *key);
    SAMPLING_KEYS.iter().chain(&OTHER_KEYS).chain(&NOT_SAMPLING).copied().chain(engine)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checked(key: &str) -> Result<(), String> {
        let sampling = Map::from_iter([(key.to_owned(), json!(1))]);
        check_sampling(&sampling).map_err(|error| error.to_string())
    }

    #[test]
    fn a_misspelt_key_is_refused_and_a_new_one_is_not() {
        let error = checked("temprature").unwrap_err();
        assert!(
            error.starts_with("sampling.temprature: ") && error.ends_with("did you mean \"temperature\"?"),
            "{error}"
        );
        assert!(checked("Temperature").unwrap_err().contains("did you mean \"temperature\""));
        assert!(checked("messages").unwrap_err().contains("cannot be enforced"));
        assert_eq!(checked("a_key_of_the_year_2030"), Ok(()));
    }

    #[test]
    fn every_known_key_is_accepted() {
        for key in known().filter(|key| !NOT_SAMPLING.contains(key)) {
            assert_eq!(checked(key), Ok(()), "{key}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_key_is_accepted_or_refused(key in "\\PC{0,30}") {
            let _ = checked(&key);
        }
    }
}
