//! `encrypted_content`: reasoning that the agent returns without reading it. The proxy only encodes the text. It need
//! not hide the reasoning of a local model from the agent.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// Distinguishes the proxy's text from that of another service.
const MARK: &str = "reasoning1:";

/// Encodes reasoning for the agent to return.
pub(super) fn encode(reasoning: &str) -> String {
    let mut carried = MARK.to_owned();
    BASE64_STANDARD.encode_string(reasoning, &mut carried);
    carried
}

/// Decodes the reasoning. Returns `None` if [`encode`] did not produce the text.
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
