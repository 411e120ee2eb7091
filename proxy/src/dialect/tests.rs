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
