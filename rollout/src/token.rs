//! A sampled token: an id and the logarithm of its probability.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A token's number in the model's vocabulary, as vLLM reports it in `prompt_token_ids` and `token_ids`.
///
/// At most `i32::MAX`, because trainers and Parquet hold ids as signed 32-bit numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "u32", into = "u32")]
#[schemars(extend("maximum" = i32::MAX))]
pub struct TokenId(u32);

/// The error for a number that is too large for a token id.
#[derive(Debug, thiserror::Error)]
#[error("token id {0} is over 2147483647")]
pub struct TokenIdTooLarge(u32);

impl TokenId {
    /// Returns the id as a signed number, as trainers use it.
    pub fn as_i32(self) -> i32 {
        self.0 as i32
    }
}

impl TryFrom<u32> for TokenId {
    type Error = TokenIdTooLarge;
    fn try_from(id: u32) -> Result<Self, TokenIdTooLarge> {
        if id <= i32::MAX as u32 { Ok(Self(id)) } else { Err(TokenIdTooLarge(id)) }
    }
}

impl From<TokenId> for u32 {
    fn from(id: TokenId) -> u32 {
        id.0
    }
}

/// The natural logarithm of the probability with which a token was sampled: finite, at most 0.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "f32", into = "f32")]
#[schemars(extend("maximum" = 0))]
pub struct Logprob(f32);

/// The error for a number that is not a logprob.
#[derive(Debug, thiserror::Error)]
#[error("{0} is not the logarithm of a probability")]
pub struct NotALogprob(f32);

impl Logprob {
    /// Returns the value in nats.
    pub fn get(self) -> f32 {
        self.0
    }
}

impl TryFrom<f32> for Logprob {
    type Error = NotALogprob;
    fn try_from(value: f32) -> Result<Self, NotALogprob> {
        // vLLM replaces minus infinity with -9999, so a real logprob is always finite.
        if value.is_finite() && value <= 0.0 { Ok(Self(value)) } else { Err(NotALogprob(value)) }
    }
}

impl From<Logprob> for f32 {
    fn from(logprob: Logprob) -> f32 {
        logprob.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_logarithms_of_probabilities_are_logprobs() {
        for good in [0.0, -0.0, -1e-30, -9999.0, f32::MIN] {
            assert!(Logprob::try_from(good).is_ok(), "{good}");
        }
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-7] {
            assert!(Logprob::try_from(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn token_ids_fit_a_signed_number() {
        assert!(TokenId::try_from(i32::MAX as u32).is_ok());
        assert!(TokenId::try_from(i32::MAX as u32 + 1).is_err());
    }
}
