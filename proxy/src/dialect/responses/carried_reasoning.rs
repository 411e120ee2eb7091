//! `encrypted_content`: reasoning that the agent carries from turn to turn and cannot read. Ours is only encoded: there
//! is nothing to hide from an agent whose model is one's own.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// Tells our text from that of another service.
const MARK: &str = "reasoning1:";

/// Reasoning in the form that the agent sends back.
pub(super) fn encode(reasoning: &str) -> String {
    let mut carried = MARK.to_owned();
    BASE64_STANDARD.encode_string(reasoning, &mut carried);
    carried
}

/// The reasoning again; none if this is not [`encode`]'s work.
pub(super) fn decode(carried: &str) -> Option<String> {
    let bytes = BASE64_STANDARD.decode(carried.strip_prefix(MARK)?).ok()?;
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn reasoning_comes_back_as_it_was(reasoning: String) {
            prop_assert_eq!(decode(&encode(&reasoning)), Some(reasoning));
        }

        #[test]
        fn foreign_text_is_told(text: String) {
            prop_assert_eq!(decode(&text), None);
        }
    }
}
