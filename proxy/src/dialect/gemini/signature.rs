//! Thought signatures, which carry the model's reasoning into the next request.
//!
//! Gemini's clients return the `thoughtSignature` of an answer unchanged, even if they hide or discard thoughts. The
//! signature contains the reasoning itself, and the next prompt is rendered with the model's actual
//! reasoning.

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::{GeneralPurpose, STANDARD};
use base64::engine::{DecodePaddingMode, GeneralPurposeConfig};

/// Distinguishes the proxy's signatures from those of other models.
const MARK: &str = "thoughts:";

/// Python clients decode both base64 alphabets and encode the URL-safe one. Padding is optional.
const READING: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Returns the signature for the part that follows this reasoning.
pub(super) fn seal(reasoning: &str) -> String {
    STANDARD.encode(format!("{MARK}{reasoning}"))
}

/// Returns the reasoning in a signature, or `None` if the signature is not from this proxy.
pub(super) fn open(signature: &str) -> Option<String> {
    let url_safe = signature.replace('+', "-").replace('/', "_");
    let text = String::from_utf8(READING.decode(url_safe).ok()?).ok()?;
    text.strip_prefix(MARK).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn others_signatures_say_nothing() {
        for foreign in ["", "skip_thought_signature_validator", "AbCd+/==", "bm90IG91cnM="] {
            assert_eq!(open(foreign), None, "{foreign}");
        }
    }

    proptest! {
        #[test]
        fn reasoning_comes_back_in_either_alphabet(reasoning in ".*") {
            let sealed = seal(&reasoning);
            prop_assert_eq!(open(&sealed), Some(reasoning.clone()));
            let rewritten = sealed.replace('+', "-").replace('/', "_");
            prop_assert_eq!(open(rewritten.trim_end_matches('=')), Some(reasoning));
        }

        #[test]
        fn arbitrary_text_never_panics(text in ".*") {
            open(&text);
        }
    }
}
