//! What the server offers beside calls: its version, the endpoints for trainers, session ids and parsers.

use bytes::Bytes;
use http::Response;
use serde::Deserialize;

use super::ledger::Ledger;

#[derive(Deserialize)]
struct Version {
    version: String,
}

/// Returns whether the server reports a version of vLLM.
pub(super) fn vllm_version(answer: Option<Response<Bytes>>, ledger: &mut Ledger) -> bool {
    let version = answer.and_then(|answer| serde_json::from_slice::<Version>(answer.body()).ok());
    let Some(Version { version }) = version else {
        ledger.degraded(
            "version",
            "GET /version names no version of vLLM",
            "name vLLM itself as the upstream, or let the router pass /version on",
        );
        return false;
    };
    match numbers(&version) {
        Some(found) if found < (0, 10, 2) => ledger.broken(
            "version",
            format!("vLLM {version}"),
            "update vLLM to 0.10.2 or later: earlier versions send no token ids",
        ),
        Some(found) if found < (0, 31, 0) => ledger.degraded(
            "version",
            format!("vLLM {version}"),
            "update vLLM to 0.31 or later: earlier versions take no prompts as token ids, so a later turn may start a branch",
        ),
        _ => ledger.ok("version", format!("vLLM {version}")),
    }
    true
}

/// Returns the first three numbers of a version. Missing ones are zero.
fn numbers(version: &str) -> Option<(u32, u32, u32)> {
    let mut parts = version.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().ok());
    let first = parts.next()??;
    let mut next = || parts.next().flatten().unwrap_or_default();
    Some((first, next(), next()))
}

/// Lists the endpoints of vLLM that trainers use.
pub(super) fn endpoints(description: &[u8], ledger: &mut Ledger) {
    let known = ["/sleep", "/wake_up", "/pause", "/resume", "/weight_info", "/reset_prefix_cache"];
    let has = |path: &&str| memchr::memmem::find(description, format!("\"{path}\"").as_bytes()).is_some();
    let found: Vec<&str> = known.into_iter().filter(has).collect();
    let found = match found.as_slice() {
        [] => "none of sleep, pause and weight_info; VLLM_SERVER_DEV_MODE=1 adds them, for trainers that update weights in \
               place"
            .to_owned(),
        found => found.join(", "),
    };
    ledger.ok("weights", found);
}

/// Notes whether the server takes session ids, by which a router finds the replica of an earlier call. A server that takes
/// them in the header also has them in the body.
pub(super) fn session_id(description: Option<&[u8]>, ledger: &mut Ledger) {
    let takes = description.map(|text| memchr::memmem::find(text, b"\"session_id\"").is_some());
    ledger.ok(
        "session id",
        match takes {
            Some(true) => {
                "the server reads X-Session-ID, so a router can keep each conversation at one engine"
            }
            Some(false) => "the server reads no X-Session-ID, which vLLM 0.32 added",
            None => "unknown, because GET /openapi.json is not answered",
        },
    );
}

/// Notes whether the server has a parser of reasoning or of tool calls.
pub(super) fn parsers(has_parser: Option<bool>, ledger: &mut Ledger) {
    match has_parser {
        Some(true) => ledger.ok("parsers", "the server parses reasoning or tool calls"),
        Some(false) => ledger.degraded(
            "parsers",
            "the server has no parser, so reasoning and tool calls are text to agents",
            "start vLLM with the --reasoning-parser and the --tool-call-parser of the model, unless agents parse the text",
        ),
        None => ledger.ok(
            "parsers",
            "the server does not answer whether it has any (vLLM 0.32 with --enable-scale-out does); see reasoning and \
             tools below",
        ),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn versions_compare_by_their_numbers() {
        assert_eq!(numbers("0.10.2"), Some((0, 10, 2)));
        assert_eq!(numbers("0.32.0rc1.dev3+g12"), Some((0, 32, 0)));
        assert_eq!(numbers("0.31"), Some((0, 31, 0)));
        assert_eq!(numbers("main"), None);
    }

    #[test]
    fn a_session_id_and_parsers_are_named() {
        let mut ledger = Ledger::default();
        session_id(Some(br#"{"properties":{"session_id":{}}}"#), &mut ledger);
        session_id(Some(b"{}"), &mut ledger);
        session_id(None, &mut ledger);
        [Some(true), Some(false), None].into_iter().for_each(|has| parsers(has, &mut ledger));
        let found = serde_json::to_value(ledger.into_findings()).unwrap();
        for (at, verdict, part) in [
            (0, "ok", "the server reads X-Session-ID"),
            (1, "ok", "reads no X-Session-ID"),
            (2, "ok", "unknown"),
            (3, "ok", "parses"),
            (4, "degraded", "has no parser"),
            (5, "ok", "see reasoning and tools"),
        ] {
            assert_eq!(found[at]["verdict"], verdict, "{found}");
            assert!(found[at]["found"].as_str().unwrap().contains(part), "{found}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_versions_never_panic(text: String) {
            numbers(&text);
        }
    }
}
