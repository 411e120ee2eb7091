//! The logprobs of a prompt in the answer of vLLM's `/v1/completions`.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A logprob may exceed 0 by this much, because the sum over all tokens is rounded.
const ROUNDING: f64 = 1e-3;

/// Why an answer does not have the logprobs of the prompt.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The answer is not a completion.
    #[error("the answer is not the JSON of a completion with prompt_logprobs as vLLM writes it")]
    Format(#[source] serde_json::Error),
    /// The answer has no choice, or the choice has no `prompt_logprobs`.
    #[error(
        "the answer has no choices[0].prompt_logprobs: is the server vLLM, and does it compute the logprobs of prompts?"
    )]
    Absent,
    /// The answer is about another number of tokens.
    #[error(
        "the answer has prompt_logprobs for {found} tokens, expected one entry for each of the {expected} sent"
    )]
    Length {
        /// The number of sent tokens.
        expected: usize,
        /// The number of entries.
        found: usize,
    },
    /// The answer has no logprob for the token at this position.
    #[error("prompt_logprobs[{index}] has no entry for token id {expected}, but {found}")]
    OtherToken {
        /// The position.
        index: usize,
        /// The sent id.
        expected: i32,
        /// The ids in the entry.
        found: String,
    },
    /// The server computed no number, as where its weights give NaN.
    #[error(
        "prompt_logprobs[{index}] has null as the logprob of token id {id}: the server computed no number"
    )]
    NoNumber {
        /// The position.
        index: usize,
        /// The id.
        id: i32,
    },
    /// The number is over 0.
    #[error(
        "prompt_logprobs[{index}] has {value} for token id {id}, which is no logprob: the server's --logprobs-mode must \
         not be raw_logits or processed_logits"
    )]
    NotALogprob {
        /// The position.
        index: usize,
        /// The id.
        id: i32,
        /// The number.
        value: f64,
    },
}

#[derive(Deserialize)]
struct Completion {
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    prompt_logprobs: Option<Vec<Option<Entry>>>,
}

/// The logprobs at one position, by token id. vLLM may add the likeliest tokens to the one of the prompt.
type Entry = BTreeMap<String, Number>;

#[derive(Deserialize)]
struct Number {
    logprob: Option<f64>,
}

/// Returns the logprob in nats of each token after the first, from the answer to a request with the prompt `token_ids`
/// and `prompt_logprobs`.
///
/// # Errors
/// Fails unless the answer has a logprob for each of exactly these tokens.
pub fn prompt_logprobs(body: &[u8], token_ids: &[i32]) -> Result<Vec<f64>, AnswerError> {
    let completion: Completion = serde_json::from_slice(body).map_err(AnswerError::Format)?;
    let choice = completion.choices.into_iter().next();
    let entries = choice.and_then(|choice| choice.prompt_logprobs).ok_or(AnswerError::Absent)?;
    let (expected, found) = (token_ids.len(), entries.len());
    if expected != found {
        return Err(AnswerError::Length { expected, found });
    }
    let tokens = token_ids.iter().zip(entries).enumerate().skip(1);
    tokens.map(|(index, (&id, entry))| logprob(index, id, &entry.unwrap_or_default())).collect()
}

fn logprob(index: usize, id: i32, entry: &Entry) -> Result<f64, AnswerError> {
    let Some(number) = entry.get(&id.to_string()) else {
        let found = match entry.keys().map(String::as_str).collect::<Vec<_>>().as_slice() {
            [] => "none at all".to_owned(),
            ids => ids.join(", "),
        };
        return Err(AnswerError::OtherToken { index, expected: id, found });
    };
    match number.logprob {
        None => Err(AnswerError::NoNumber { index, id }),
        Some(value) if value > ROUNDING => Err(AnswerError::NotALogprob { index, id, value }),
        Some(value) => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn answer(entries: &Value) -> Vec<u8> {
        json!({"choices": [{"text": "x", "prompt_logprobs": entries}], "usage": {}}).to_string().into_bytes()
    }

    #[test]
    fn the_answer_of_vllm_is_read() {
        let entries = json!([null, {"6": {"logprob": -9.9, "rank": 2361, "decoded_token": "'"}},
            {"9": {"logprob": -0.1, "rank": 1}, "7": {"logprob": -8.2, "rank": 802}}]);
        assert_eq!(prompt_logprobs(&answer(&entries), &[5, 6, 7]).unwrap(), [-9.9, -8.2]);
        assert!(prompt_logprobs(&answer(&json!([null])), &[5]).unwrap().is_empty());
    }

    #[test]
    fn each_wrong_answer_is_an_error_that_names_the_position() {
        let wrong = |body: &[u8]| prompt_logprobs(body, &[5, 6]).unwrap_err().to_string();
        for absent in
            [r#"{"choices": []}"#, r#"{"choices": [{}]}"#, r#"{"choices": [{"prompt_logprobs": null}]}"#]
        {
            assert!(
                wrong(absent.as_bytes()).starts_with("the answer has no choices[0].prompt_logprobs"),
                "{absent}"
            );
        }
        assert!(wrong(b"<html>").starts_with("the answer is not the JSON of a completion"));
        let short = wrong(&answer(&json!([null])));
        assert!(short.contains("for 1 tokens, expected one entry for each of the 2 sent"), "{short}");
        let other = wrong(&answer(&json!([null, {"7": {"logprob": -1.0}}])));
        assert_eq!(other, "prompt_logprobs[1] has no entry for token id 6, but 7");
        let none = wrong(&answer(&json!([null, null])));
        assert_eq!(none, "prompt_logprobs[1] has no entry for token id 6, but none at all");
        assert!(wrong(&answer(&json!([null, {"6": {"logprob": null}}]))).contains("no number"));
        assert!(wrong(&answer(&json!([null, {"6": {"logprob": 12.5}}]))).contains("--logprobs-mode"));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(body: Vec<u8>, ids: Vec<i32>) {
            let _read = prompt_logprobs(&body, &ids);
        }

        #[test]
        fn no_json_panics(entry in "[{}\\[\\]\",:a-z0-9.e-]{0,40}", ids: Vec<i32>) {
            let body = format!(r#"{{"choices": [{{"prompt_logprobs": [null, {entry}]}}]}}"#);
            let _read = prompt_logprobs(body.as_bytes(), &ids);
        }

        #[test]
        fn the_number_of_each_token_is_returned_in_its_place(tokens: Vec<(i32, u32)>) {
            let value = |number: u32| -f64::from(number) / 1024.0;
            let entries: Vec<_> =
                tokens.iter().map(|(id, number)| json!({id.to_string(): {"logprob": value(*number)}})).collect();
            let ids: Vec<_> = tokens.iter().map(|(id, _)| *id).collect();
            let read = prompt_logprobs(&answer(&json!(entries)), &ids).unwrap();
            let expected: Vec<_> = tokens.iter().skip(1).map(|(_, number)| value(*number)).collect();
            prop_assert_eq!(read, expected);
        }
    }

    #[test]
    fn fuzz_prompt_logprobs() {
        rolltap_testing::fuzz!("prompt_logprobs", |body| {
            if let Ok(logprobs) = prompt_logprobs(body, &[5, 6, 7]) {
                assert!(logprobs.len() <= 3 && logprobs.iter().all(|logprob| !logprob.is_nan()));
            }
        });
    }
}
