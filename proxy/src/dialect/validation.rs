//! Corrects vLLM's messages about invalid requests, so that they do not count the members that rolltap added.
//!
//! vLLM 0.32 describes an invalid object by the number of its members: `'input': '<dict of 3 items>'`.

use crate::wire::json_edit::Object;

/// The parts of one error in a message: `{'type': 'missing', 'loc': 'body.messages', 'msg': …, 'input': '<dict of 3
/// items>'}`.
const ENTRY: &str = "{'type': '";
const LOCATION: &str = "', 'loc': '";
const COUNT: &str = "'input': '<dict of ";

/// Rewrites an error answer for the request that the agent sent; `sent` is the request that went upstream. Returns
/// `None` if there is no difference.
pub(super) fn as_of_agent(answer: &str, agent: &str, sent: &str) -> Option<String> {
    let (agent, sent) = (members(agent)?, members(sent)?);
    if agent == sent {
        return None;
    }
    let counted = format!("{COUNT}{sent} items>'");
    let mut corrected = String::with_capacity(answer.len());
    let mut rest = answer;
    while let Some((before, behind)) = rest.split_once(&counted) {
        corrected.push_str(before);
        // Nested objects are unchanged on their way upstream, so their count is already right.
        let count = if is_of_body(&corrected) { agent } else { sent };
        corrected.push_str(&format!("{COUNT}{count} items>'"));
        rest = behind;
    }
    corrected.push_str(rest);
    (corrected != answer).then_some(corrected)
}

/// Returns the number of distinct members of a request, as Python's `json` counts them.
fn members(request: &str) -> Option<usize> {
    let object = Object::scan(request).ok()?;
    let mut names: Vec<_> = object.members().map(|(name, _)| name).collect();
    names.sort_unstable();
    names.dedup();
    Some(names.len())
}

/// Whether the last error in the text has the request's body as its input. Either the body is invalid as a whole
/// (`body`), or one of its members is missing (`body.messages`).
fn is_of_body(text: &str) -> bool {
    let Some((_, entry)) = text.rsplit_once(ENTRY) else { return false };
    let Some((kind, behind)) = entry.split_once(LOCATION) else { return false };
    let Some((location, _)) = behind.split_once('\'') else { return false };
    match location.strip_prefix("body.") {
        Some(member) => kind == "missing" && !member.contains('.'),
        None => location == "body",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const AGENT: &str = r#"{"model":"m","top_logprobs":2}"#;
    const SENT: &str = r#"{"logprobs":true,"return_token_ids":true,"model":"m","top_logprobs":2}"#;

    fn entry(kind: &str, location: &str, count: usize) -> String {
        format!("  {{'type': '{kind}', 'loc': '{location}', 'msg': 'm', 'input': '<dict of {count} items>'}}")
    }

    #[test]
    fn members_that_we_added_are_not_counted() {
        for (kind, location) in [("missing", "body.messages"), ("value_error", "body")] {
            assert_eq!(
                as_of_agent(&entry(kind, location, 4), AGENT, SENT),
                Some(entry(kind, location, 2)),
                "{location}"
            );
        }
        let two = |count| {
            format!(
                "2 validation errors:\n{}\n{}",
                entry("missing", "body.a", count),
                entry("missing", "body.b", count)
            )
        };
        assert_eq!(as_of_agent(&two(4), AGENT, SENT), Some(two(2)));
    }

    #[test]
    fn objects_inside_of_the_body_keep_their_count() {
        for (kind, location) in
            [("missing", "body.tools.0"), ("missing", "body.messages.0.role"), ("string_type", "body.model")]
        {
            assert_eq!(as_of_agent(&entry(kind, location, 4), AGENT, SENT), None, "{location}");
        }
        // The count differs from that of the request that went upstream.
        assert_eq!(as_of_agent(&entry("missing", "body.messages", 5), AGENT, SENT), None);
        assert_eq!(as_of_agent(&entry("missing", "body.messages", 4), SENT, SENT), None);
    }

    #[test]
    fn a_member_that_comes_twice_counts_once() {
        let agent = r#"{"model":"m","model":"n"}"#;
        let expected = Some(entry("missing", "body.messages", 1));
        assert_eq!(as_of_agent(&entry("missing", "body.messages", 4), agent, SENT), expected);
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in r"(\{'type': '|missing|', 'loc': '|body|\.|'input': '<dict of 4 items>'|.)*") {
            as_of_agent(&text, AGENT, SENT);
            as_of_agent(AGENT, &text, SENT);
        }
    }

    #[test]
    fn fuzz_validation_error() {
        rolltap_testing::fuzz!("validation_error", |text| {
            let Ok(text) = std::str::from_utf8(text) else { return };
            as_of_agent(text, AGENT, SENT);
            as_of_agent(AGENT, text, SENT);
        });
    }
}
