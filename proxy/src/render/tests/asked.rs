//! Tests of the renderer that asks upstream, with the simulator and with a real vLLM.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use rolltap_rollout::ids::TrialId;
use rolltap_rollout::token::TokenId;
use serde_json::{Value as Json, json};
use tokio::net::TcpListener;
use tokio::runtime::Handle;

use super::fixture;
use super::golden::{corpus, inputs_of, load, rendered, variable};
use crate::common::metrics::FlawCounts;
use crate::render::renderer::RenderMessage;
use crate::render::upstream::UpstreamRenderer;
use crate::render::{AskedRenderer, Learnt, RenderError, RequestInputs};
use crate::store::{OpenedStore, Store, StoreSettings};
use crate::upstream::Pool;
use crate::upstream::PoolSettings;
use crate::upstream::policy::Policy;
use rolltap_sim as sim;

/// Returns a pool of one server, and the directory of its store.
fn pool(url: &str) -> (Arc<Pool>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let OpenedStore { store, .. } = Store::open(dir.path(), StoreSettings::default()).unwrap();
    let policy = Arc::new(Policy::restored(&[]));
    let addresses = vec![url.parse().unwrap()];
    (
        Pool::start(
            addresses,
            PoolSettings::default(),
            Duration::from_secs(30),
            policy,
            store,
            FlawCounts::default(),
        )
        .unwrap(),
        dir,
    )
}

#[tokio::test]
async fn texts_and_conversations_go_upstream() {
    let sim = sim::start(sim::Settings::default()).await.unwrap();
    let (pool, _dir) = pool(&format!("http://{}", sim.addr()));
    let (trial, model) = (TrialId::generate(), sim::Settings::default().model);
    let asked = UpstreamRenderer { pool: &pool, trial: &trial, model: &model };
    let ids = asked.encode("<|im_end|>\né").await.unwrap();
    assert_eq!(asked.decode(&ids).await.unwrap(), "<|im_end|>\né");

    let inputs = RequestInputs { reasoning_effort: Some(json!("none")), ..RequestInputs::default() };
    let conversation =
        asked.render(&[json!({"role": "user", "content": "hi"})], &inputs, true).await.unwrap();
    let text = asked.decode(&conversation).await.unwrap();
    assert!(text.contains("hi") && text.ends_with("<think></think>"), "{text}");
    let stranger = UpstreamRenderer { model: "stranger", ..asked };
    assert!(matches!(stranger.encode("a").await, Err(RenderError::Refused { status: 404, .. })));
}

/// Starts a server of the small model's tokenizer. Returns its URL and the counter of its requests.
async fn tokenizing() -> (String, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let model = Arc::new(fixture());
    let tokenize = {
        let (model, asked) = (Arc::clone(&model), Arc::clone(&asked));
        move |body: Bytes| {
            asked.fetch_add(1, Ordering::Relaxed);
            let request: Json = serde_json::from_slice(&body).unwrap();
            let tokens = model.encode(request["prompt"].as_str().unwrap()).unwrap();
            std::future::ready(json!({"tokens": tokens}).to_string())
        }
    };
    let detokenize = move |body: Bytes| {
        let request: Json = serde_json::from_slice(&body).unwrap();
        let tokens: Vec<TokenId> = serde_json::from_value(request["tokens"].clone()).unwrap();
        std::future::ready(json!({"prompt": model.decode(&tokens).unwrap()}).to_string())
    };
    let router = Router::new().route("/tokenize", post(tokenize)).route("/detokenize", post(detokenize));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, asked)
}

#[test]
fn an_answer_for_a_server_takes_other_words_in_one_place() {
    let call = |arguments: &str| json!({"id": "1", "function": {"name": "f", "arguments": arguments}});
    let answer = json!({"role": "assistant", "content": null, "tool_calls": [call("{}"), call("{\"a\":1}")]});
    let message = RenderMessage::AsSent(answer.clone());
    let RenderMessage::AsSent(other) = message.with_content("words") else { panic!() };
    assert_eq!((&other["content"], &other["tool_calls"]), (&json!("words"), &answer["tool_calls"]));
    let Some(RenderMessage::AsSent(other)) = message.with_argument("words") else { panic!() };
    assert_eq!(other["tool_calls"], json!([call("{}"), call("{\"argument\":\"words\"}")]));
    for plain in [json!({"role": "assistant"}), json!({"role": "assistant", "tool_calls": []})] {
        assert!(RenderMessage::AsSent(plain).with_argument("words").is_none());
    }
}

#[tokio::test]
async fn tokens_that_are_never_split_are_distinguished_from_others() {
    let (url, times) = tokenizing().await;
    let (pool, _dir) = pool(&url);
    let told = tokio::task::spawn_blocking(move || {
        let (trial, learnt) = (TrialId::generate(), Arc::<Learnt>::default());
        let asked = AskedRenderer::new(pool, trial, "m".to_owned(), learnt, Handle::current());
        let local = fixture();
        for text in ["<|im_end|>\n", "<think>", "</tool_call>x", "the tool", "\n\n", ",", "é", "<|im", ""] {
            let expected = local.token_at_start(text).map(|(id, _)| id);
            assert_eq!(asked.token_at_start(text).unwrap(), expected, "{text:?}");
            assert_eq!(asked.known_at_start(text), expected, "{text:?}");
        }
        let before = times.load(Ordering::Relaxed);
        assert!(asked.token_at_start("<|im_end|> and more").unwrap().is_some());
        times.load(Ordering::Relaxed) - before
    });
    assert_eq!(told.await.unwrap(), 0, "what is known is not asked again");
}

#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn a_real_server_answers_as_the_local_renderer_does() {
    let (url, directory) = (variable("ROLLTAP_TEST_VLLM_LONG"), variable("ROLLTAP_TESTBED_LONG_MODEL"));
    let list: Json = rolltap_testing::get(format!("{url}/v1/models")).await.unwrap().json().await.unwrap();
    let local = load(Path::new(&directory), Path::new(""));
    let (pool, _dir) = pool(&url);
    let (trial, model) = (TrialId::generate(), list["data"][0]["id"].as_str().unwrap());
    let asked = UpstreamRenderer { pool: &pool, trial: &trial, model };
    for case in corpus() {
        let (text, ids) = rendered(&local, &case, true).unwrap();
        let messages = case.request["messages"].as_array().unwrap();
        assert_eq!(asked.render(messages, &inputs_of(&case), true).await.unwrap(), ids, "{}", case.name);
        assert_eq!(asked.encode(&text).await.unwrap(), ids, "{}", case.name);
        assert_eq!(asked.decode(&ids).await.unwrap(), local.decode(&ids).unwrap(), "{}", case.name);
    }
}
