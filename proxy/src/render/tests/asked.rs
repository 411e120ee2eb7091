//! The renderer that asks upstream, in front of the simulator and of a real vLLM.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rolltap_rollout::ids::TrialId;
use serde_json::{Value as Json, json};

use super::golden::{corpus, inputs_of, load, rendered, variable};
use crate::policy::Policy;
use crate::render::upstream::UpstreamRenderer;
use crate::render::{RenderError, RequestInputs};
use crate::settings::PoolSettings;
use crate::sim;
use crate::store::Store;
use crate::upstream::Pool;

/// A pool of one server, and the folder that its store lies in.
fn pool(url: &str) -> (Arc<Pool>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(dir.path()).unwrap();
    let policy = Arc::new(Policy::restored(&[]));
    let addresses = vec![url.parse().unwrap()];
    (Pool::start(addresses, PoolSettings::default(), Duration::from_secs(30), policy, store), dir)
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
    assert!(matches!(stranger.encode("a").await, Err(RenderError::Upstream { .. })));
}

#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn a_real_server_answers_as_the_local_renderer_does() {
    let (url, directory) = (variable("ROLLTAP_TEST_VLLM_LONG"), variable("ROLLTAP_TESTBED_LONG_MODEL"));
    let list: Json = reqwest::get(format!("{url}/v1/models")).await.unwrap().json().await.unwrap();
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
