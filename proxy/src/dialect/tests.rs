//! Every dialect answers the same for any cut of upstream's bytes, and survives any bytes.

use std::sync::LazyLock;

use bytes::Bytes;
use proptest::prelude::*;
use rolltap_rollout::call::{CallRole, CallStatus, Choice};
use rolltap_rollout::token_list::TokenList;

use super::*;
use crate::common::model_aliases::ModelAliases;
use crate::dialect::route::Delivery;
use crate::recorder::CallStart;
use crate::wire::json_edit::Object;
use crate::wire::sse::Decoder;

static NOTHING: LazyLock<(Map<String, Value>, ModelAliases, Arc<responses::Memory>)> =
    LazyLock::new(Default::default);

/// Returns the context of a trial that enforces nothing, in front of a model without known properties.
pub(crate) fn ground() -> RequestContext<'static> {
    let (enforced, aliases, responses) = &*NOTHING;
    let names = Names { of_trial: aliases, of_proxy: aliases };
    RequestContext {
        enforced,
        names,
        defaults: SamplingDefaults::default(),
        responses,
        media: Fetching::Refused,
        tool_strict_level: ToolStrictLevel::Auto,
        has_parser: false,
    }
}

/// Returns a streaming request of each dialect.
fn requests() -> Vec<(CallEndpoint, &'static str)> {
    const GEMINI: &str = r#"{"contents":[{"role":"user","parts":[{"text":"hi"}]}],"generationConfig":{"thinkingConfig":{"includeThoughts":true}}}"#;
    let gemini = |delivery| CallEndpoint::GenerateContent { model: "m".to_owned(), delivery };
    vec![
        (CallEndpoint::Chat, r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}"#),
        (CallEndpoint::Completions, r#"{"model":"m","prompt":"hi","stream":true}"#),
        (CallEndpoint::Responses, r#"{"model":"m","input":"hi","stream":true}"#),
        (
            CallEndpoint::Messages,
            r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}],"stream":true}"#,
        ),
        (gemini(Delivery::Events), GEMINI),
        (gemini(Delivery::Array), GEMINI),
    ]
}

/// Streams recorded from a real vLLM.
const STREAMS: [&str; 3] = [
    include_str!("../../tests/fixtures/vllm/tools_auto_stream_tokids.sse"),
    include_str!("../../tests/fixtures/vllm/chat_stream_tokids_logprobs.sse"),
    include_str!("../../tests/fixtures/vllm/utf8_stream_tokids.sse"),
];

/// Returns the agent's bytes and the recorded tokens and choices for a stream that arrives in these pieces.
fn answered(
    (endpoint, request): &(CallEndpoint, &str),
    pieces: &[&[u8]],
) -> (Vec<u8>, TokenList, Vec<Choice>) {
    let UpstreamRequest { adapter: mut back, facts, .. } = prepare(endpoint, request, ground()).unwrap();
    let mut recorder = Recorder::begin(CallStart::of_test());
    recorder.requested(facts, CallRole::default());
    let mut decoder = Decoder::default();
    let mut out = Vec::new();
    'pieces: for piece in pieces {
        let Ok(arrived) = decoder.take(Bytes::copy_from_slice(piece)) else { break };
        let mut passing = ChunkRewriter::of(arrived.bytes.clone());
        for event in arrived.events {
            if back.event(&arrived.bytes, event, &mut recorder, &mut passing) == StreamProgress::Last {
                out.extend(passing.into_bytes());
                break 'pieces;
            }
        }
        out.extend(passing.into_bytes());
    }
    let call = recorder.finish(CallStatus::Complete, None).remove(0);
    (out, call.prompt_token_ids, call.choices)
}

/// Cuts a text at these places.
fn cut<'a>(text: &'a [u8], places: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut at: Vec<_> = places.iter().map(|place| place.index(text.len() + 1)).collect();
    at.extend([0, text.len()]);
    at.sort_unstable();
    at.windows(2).map(|ends| &text[ends[0]..ends[1]]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(rolltap_testing::sample(64, 640)))]

    #[test]
    fn the_cuts_of_upstreams_bytes_do_not_matter(
        stream in prop::sample::select(&STREAMS[..]),
        places in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        for request in requests() {
            let whole = answered(&request, &[stream.as_bytes()]);
            prop_assert!(!whole.0.is_empty() && !whole.2[0].token_ids.is_empty(), "{:?}", request.0);
            prop_assert_eq!(answered(&request, &cut(stream.as_bytes(), &places)), whole, "{:?}", request.0);
        }
    }

    #[test]
    fn no_bytes_of_upstream_panic(
        mut stream in prop::sample::select(&STREAMS[..]).prop_map(|stream| stream.as_bytes().to_vec()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
        garbage in prop::collection::vec(any::<u8>(), 0..60),
        places in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        for (place, byte) in changes {
            let at = place.index(stream.len());
            stream[at] = byte;
        }
        stream.extend(garbage);
        for request in requests() {
            answered(&request, &cut(&stream, &places));
        }
    }

    #[test]
    fn no_request_panics(text in ".*", json in "[\\[\\]{}\":,a-z0-9 ]{0,60}") {
        for (endpoint, _) in requests() {
            let _ = prepare(&endpoint, &text, ground());
            let _ = prepare(&endpoint, &json, ground());
        }
    }
}

/// Checks that a request is prepared the same way twice, and that all members but `ours` keep their bytes.
fn check_request(endpoint: &CallEndpoint, text: &[u8], ours: Option<&[&str]>) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    let Ok(ready) = prepare(endpoint, text, ground()) else { return };
    assert_eq!(prepare(endpoint, text, ground()).unwrap().body, ready.body);
    let Some(body) = ready.body else { return };
    let members = |text| {
        let object = Object::scan(text).unwrap();
        let members = object.members().map(|(key, value)| (key.to_owned(), value.to_owned()));
        members.filter(|(key, _)| ours.is_some_and(|ours| !ours.contains(&&**key))).collect::<Vec<_>>()
    };
    if ours.is_some() {
        assert_eq!(members(text), members(&body));
    }
}

#[test]
fn fuzz_chat_request() {
    rolltap_testing::fuzz!("chat_request", |text| {
        check_request(
            &CallEndpoint::Chat,
            text,
            Some(&["logprobs", "return_token_ids", "include_reasoning"]),
        );
    });
}

#[test]
fn fuzz_completions_request() {
    rolltap_testing::fuzz!("completions_request", |text| {
        check_request(&CallEndpoint::Completions, text, Some(&["logprobs", "return_token_ids"]));
    });
}

#[test]
fn fuzz_responses_request() {
    rolltap_testing::fuzz!("responses_request", |text| check_request(&CallEndpoint::Responses, text, None));
}

#[test]
fn fuzz_messages_request() {
    rolltap_testing::fuzz!("messages_request", |text| {
        check_request(&CallEndpoint::Messages, text, None);
        let _ = prepare_count(&CountEndpoint::Messages, text, ground().names, Fetching::Refused);
    });
}

#[test]
fn fuzz_gemini_request() {
    rolltap_testing::fuzz!("gemini_request", |text| {
        let endpoint = CallEndpoint::GenerateContent { model: "m".to_owned(), delivery: Delivery::Events };
        check_request(&endpoint, text, None);
        let count = CountEndpoint::GenerateContent { model: "m".to_owned() };
        let _ = prepare_count(&count, text, ground().names, Fetching::Refused);
    });
}

/// Returns the answer without the random id and the time that a response has if the upstream gave none.
fn without_own_identity(answer: &[u8]) -> String {
    let own = regex::bytes::Regex::new(r#"[0-9a-f]{32}|"created_at":[0-9]+"#).unwrap();
    String::from_utf8_lossy(&own.replace_all(answer, &b""[..])).into_owned()
}

/// Checks that the cuts of a stream do not matter to the agents of these requests.
fn check_stream(requests: &[(CallEndpoint, &'static str)], stream: &[u8]) {
    let Some((&which, stream)) = stream.split_first() else { return };
    let request = &requests[usize::from(which) % requests.len()];
    let answered = |pieces: &[&[u8]]| {
        let (out, prompt, choices) = answered(request, pieces);
        (without_own_identity(&out), prompt, choices)
    };
    let whole = answered(&[stream]);
    for pieces in rolltap_testing::fuzz::cuts(stream) {
        assert_eq!(answered(&pieces), whole, "{:?}", request.0);
    }
}

#[test]
fn fuzz_plain_stream() {
    const EVERYTHING: &str =
        r#"{"model":"m","messages":[],"stream":true,"logprobs":true,"return_token_ids":true}"#;
    const NO_REASONING: &str = r#"{"model":"m","messages":[],"stream":true,"include_reasoning":false}"#;
    let mut all = requests();
    all.truncate(2);
    all.push((CallEndpoint::Chat, NO_REASONING));
    rolltap_testing::fuzz!("plain_stream", |stream| {
        check_stream(&all, stream);
        // An agent that asks for everything gets vLLM's bytes.
        assert!(stream.starts_with(&answered(&(CallEndpoint::Chat, EVERYTHING), &[stream]).0));
    });
}

#[test]
fn fuzz_translated_stream() {
    let all = requests().split_off(2);
    rolltap_testing::fuzz!("translated_stream", |stream| check_stream(&all, stream));
}

#[test]
fn fuzz_whole_answer() {
    let all = requests();
    rolltap_testing::fuzz!("whole_answer", |text| {
        let Ok(text) = std::str::from_utf8(text) else { return };
        for (endpoint, request) in &all {
            let mut ready = prepare(endpoint, request, ground()).unwrap();
            let mut recorder = Recorder::begin(CallStart::of_test());
            recorder.requested(ready.facts, CallRole::default());
            if let Ok(Some(answer)) = ready.adapter.whole(text, &mut recorder) {
                // Skipped values are not checked, so only a valid answer stays valid.
                let is_valid = |text: &[u8]| serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok();
                assert!(is_valid(&answer) || !is_valid(text.as_bytes()), "{endpoint:?}");
            }
            recorder.finish(CallStatus::Complete, None);
        }
    });
}
