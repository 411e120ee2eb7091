//! Thought signatures: how a model's reasoning comes back in the next request.
//!
//! Gemini's clients hand an answer's `thoughtSignature` back unread, also those that show no thoughts or drop them. So it
//! holds the reasoning itself, and the next turn's prompt is rendered with what the model really thought.

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::{GeneralPurpose, STANDARD};
use base64::engine::{DecodePaddingMode, GeneralPurposeConfig};

/// Tells ours from those of other models.
const MARK: &str = "thoughts:";

/// Clients in Python read either alphabet and write the one for URLs.
const READING: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The signature of a part that this reasoning led to.
pub(super) fn seal(reasoning: &str) -> String {
    STANDARD.encode(format!("{MARK}{reasoning}"))
}

/// The reasoning behind a part; none if the signature is not ours.
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
