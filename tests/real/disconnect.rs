//! An agent that disconnects frees vLLM at once, in any phase of its call, and the record states it.
//!
//! vLLM's own metrics prove it. So these tests have the long model's server to themselves (`.config/nextest.toml` runs
//! them alone).

use std::slice;
use std::time::Instant;

use rolltap_proxy::api::{TrialOpened, TrialStatus};
use rolltap_rollout::call::{Call, CallStatus};
use rolltap_testing::{eventually, limit};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::harness::{Stage, long_vllm};

/// The longest time for which vLLM may continue a call without a client. A quiet machine takes a tenth of a second, and
/// a call that is not aborted takes at least half a minute.
const AT_ONCE_SECONDS: u64 = 3;
/// The context of the long model's server in tokens, prompt and answer together.
const CONTEXT: usize = 49_152;
/// vLLM takes seconds to read a prompt of this many words.
const LONG_PROMPT: usize = 40_000;

struct Scene {
    stage: Stage,
    trial: TrialOpened,
}

impl Scene {
    async fn set() -> Self {
        let stage = Stage::before(long_vllm()).await;
        let trial = stage.open().await;
        let scene = Self { stage, trial };
        assert_eq!(scene.calls_in_vllm().await, 0.0, "the server is ours alone");
        scene
    }

    /// Returns a request for an endless answer to a prompt of `words` words. No prefix of the prompt is cached, because
    /// it begins with the trial's key.
    fn request(&self, words: usize, stream: bool) -> Value {
        // The answer fills the context. After a short prompt that takes minutes of sampling.
        let max_tokens = CONTEXT - words - 1152;
        let prompt = format!("{} {}", self.trial.key, "alpha beta gamma delta ".repeat(words / 4));
        json!({"model": "long", "messages": [{"role": "user", "content": prompt}], "max_tokens": max_tokens,
            "ignore_eos": true, "stream": stream})
    }

    /// Begins a call that reads its answer to the end. Aborting the task closes its connection.
    fn call(&self, body: &Value) -> JoinHandle<()> {
        let url = format!("{}/chat/completions", self.trial.base_urls.openai);
        let sent = self.stage.http.post(url).json(body).send();
        tokio::spawn(async move {
            let mut answer = sent.await.unwrap();
            while let Ok(Some(_)) = answer.chunk().await {}
        })
    }

    async fn metric(&self, name: &str) -> f64 {
        let url = format!("{}/metrics", self.stage.vllm);
        let metrics = self.stage.http.get(url).send().await.unwrap().text().await.unwrap();
        let line = metrics.lines().find(|line| line.starts_with(&format!("vllm:{name}{{")));
        line.unwrap().rsplit_once(' ').unwrap().1.parse().unwrap()
    }

    /// Returns the number of tokens that vLLM has sampled so far. vLLM counts the last tokens of an aborted call with
    /// its next step, so one more token is sampled first, and counted.
    async fn sampled(&self) -> f64 {
        let before = self.metric("generation_tokens_total").await;
        let one = json!({"model": "long", "prompt": "One more.", "max_tokens": 1});
        let answer = self.stage.post(&format!("{}/v1", self.stage.vllm), "/completions", &one).await;
        assert!(answer.status().is_success());
        eventually("the token is counted", async || self.metric("generation_tokens_total").await > before)
            .await;
        self.metric("generation_tokens_total").await
    }

    async fn calls_in_vllm(&self) -> f64 {
        self.metric("num_requests_running").await + self.metric("num_requests_waiting").await
    }

    /// Waits until vLLM processes these calls, and panics if one of them has ended. vLLM's metrics alone do not
    /// suffice, because they can still count a call that is over.
    async fn until_running(&self, calls: &[JoinHandle<()>]) {
        eventually("the calls are in flight", async || {
            assert!(!calls.iter().any(JoinHandle::is_finished), "a call ended at once");
            self.status().await.calls.in_flight == calls.len() as u64
        })
        .await;
        eventually("vLLM works", async || {
            assert!(!calls.iter().any(JoinHandle::is_finished), "a call ended before vLLM was seen at work");
            self.metric("num_requests_running").await == calls.len() as f64
        })
        .await;
    }

    /// Waits until vLLM is idle, and panics if that takes too long.
    async fn vllm_is_idle_at_once(&self, left: &str, since: Instant) {
        eventually("vLLM is idle", async || self.calls_in_vllm().await == 0.0).await;
        let took = since.elapsed();
        println!("{left}: vLLM idle after {} ms", took.as_millis());
        assert!(took < limit(AT_ONCE_SECONDS), "{left}: vLLM went on for {took:?}");
    }

    async fn cancelled_call(&self) -> Call {
        eventually("the call is recorded", async || self.stage.calls(&self.trial).await.len() == 1).await;
        let call = self.stage.calls(&self.trial).await.remove(0);
        assert_eq!((call.status, call.is_trainable()), (CallStatus::Cancelled, false));
        call
    }

    async fn status(&self) -> TrialStatus {
        let url = self.stage.admin(&format!("/v1/trials/{}", self.trial.trial_id));
        self.stage.http.get(url).send().await.unwrap().json().await.unwrap()
    }

    async fn seal(&self) -> TrialStatus {
        let url = self.stage.admin(&format!("/v1/trials/{}/seal", self.trial.trial_id));
        self.stage.http.post(url).send().await.unwrap().json().await.unwrap()
    }
}

#[tokio::test]
#[ignore = "needs vLLM with the long model: run ./scripts/test"]
async fn leaving_while_vllm_reads_the_prompt_frees_it() {
    for stream in [false, true] {
        let mut tries = 0;
        while !left_in_prefill(stream).await {
            tries += 1;
            assert!(tries < 10, "stream: {stream}: vLLM has read the prompt whenever the agent leaves");
        }
    }
}

/// Disconnects a call whose prompt vLLM reads. Returns false if vLLM had already read the prompt, which can happen if
/// the agent gets too little processor time.
async fn left_in_prefill(stream: bool) -> bool {
    let scene = Scene::set().await;
    let sampled = scene.sampled().await;
    let call = scene.call(&scene.request(LONG_PROMPT, stream));
    scene.until_running(slice::from_ref(&call)).await;
    call.abort();
    scene.vllm_is_idle_at_once(&format!("in prefill, stream: {stream}"), Instant::now()).await;
    let call = scene.cancelled_call().await;
    let is_in_prefill = scene.sampled().await == sampled + 1.0;
    let has_tokens = call.choices.iter().any(|choice| !choice.token_ids.is_empty());
    assert!(!(is_in_prefill && has_tokens), "the record has tokens that vLLM did not sample");
    is_in_prefill
}

#[tokio::test]
#[ignore = "needs vLLM with the long model: run ./scripts/test"]
async fn leaving_in_the_middle_of_a_stream_frees_vllm_and_keeps_what_came() {
    let scene = Scene::set().await;
    let mut answer =
        scene.stage.post(&scene.trial.base_urls.openai, "/chat/completions", &scene.request(20, true)).await;
    let mut seen = 0;
    while seen < 20 {
        let chunk = answer.chunk().await.unwrap().unwrap();
        seen += String::from_utf8_lossy(&chunk).matches("data: ").count();
    }
    drop(answer);
    scene.vllm_is_idle_at_once("in a stream", Instant::now()).await;
    let call = scene.cancelled_call().await;
    let [choice] = &call.choices[..] else { panic!("one choice: {:?}", call.choices) };
    assert!(call.prompt_token_ids.len() > 20 && choice.token_ids.len() >= 10, "{}", choice.token_ids.len());
    assert_eq!(choice.token_ids.len(), choice.logprobs.len());
    assert_eq!((&choice.finish_reason, &call.flaws[..]), (&None, &[][..]));
}

#[tokio::test]
#[ignore = "needs vLLM with the long model: run ./scripts/test"]
async fn leaving_while_a_whole_answer_is_generated_frees_vllm() {
    let scene = Scene::set().await;
    let before = scene.metric("generation_tokens_total").await;
    let call = scene.call(&scene.request(20, false));
    eventually("tokens are sampled", async || scene.metric("generation_tokens_total").await > before + 50.0)
        .await;
    call.abort();
    scene.vllm_is_idle_at_once("in a whole answer", Instant::now()).await;
    scene.cancelled_call().await;
}

#[tokio::test]
#[ignore = "needs vLLM with the long model: run ./scripts/test"]
async fn sealing_a_trial_frees_vllm_of_its_stragglers() {
    let scene = Scene::set().await;
    let stragglers = [scene.call(&scene.request(20, true)), scene.call(&scene.request(20, false))];
    scene.until_running(&stragglers).await;
    let before = Instant::now();
    let sealed = scene.seal().await;
    scene.vllm_is_idle_at_once("sealed", before).await;
    assert_eq!((sealed.calls.total, sealed.calls.in_flight), (2, 0));
    let calls = scene.stage.calls(&scene.trial).await;
    assert!(calls.iter().all(|call| call.status == CallStatus::Cancelled));
    for straggler in stragglers {
        straggler.await.unwrap();
    }
}
