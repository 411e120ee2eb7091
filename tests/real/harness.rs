//! A proxy in this process, in front of the real vLLM or of another upstream.

use std::path::Path;

use reqwest::{Client, Response};
use rolltap_proxy::api::TrialOpened;
use rolltap_proxy::{History, RenderSettings, RunningProxy, Settings};
use rolltap_rollout::call::Call;
use rolltap_rollout::continuation::Continuation;
use rolltap_rollout::row::RolloutRow;
use rolltap_rollout::token::TokenId;
use rolltap_rollout::token_list::TokenList;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Returns the vLLM that `./scripts/test` started.
pub(crate) fn vllm() -> String {
    std::env::var("ROLLTAP_TEST_VLLM").expect("ROLLTAP_TEST_VLLM names no vLLM: run ./scripts/test")
}

/// Returns the vLLM with the model for long prompts.
pub(crate) fn long_vllm() -> String {
    std::env::var("ROLLTAP_TEST_VLLM_LONG").expect("ROLLTAP_TEST_VLLM_LONG names no vLLM: run ./scripts/test")
}

/// Returns the vLLM that parses neither tool calls nor reasoning.
pub(crate) fn bare_vllm() -> String {
    std::env::var("ROLLTAP_TEST_VLLM_BARE").expect("ROLLTAP_TEST_VLLM_BARE names no vLLM: run ./scripts/test")
}

/// Returns a variable that the testbed sets.
pub(crate) fn testbed(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set: run ./scripts/test"))
}

pub(crate) struct Stage {
    pub(crate) proxy: RunningProxy,
    pub(crate) http: Client,
    /// The vLLM behind the proxy.
    pub(crate) vllm: String,
    data: TempDir,
}

impl Stage {
    pub(crate) async fn set() -> Self {
        Self::before(vllm()).await
    }

    /// Starts a proxy in front of this upstream.
    pub(crate) async fn before(vllm: String) -> Self {
        Self::with(vllm, RenderSettings::default()).await
    }

    /// Starts a proxy in front of this upstream, with the directory of its model.
    pub(crate) async fn with_tokenizer(vllm: String, model: String) -> Self {
        Self::with(vllm, RenderSettings { tokenizer: Some(model.into()), ..RenderSettings::default() }).await
    }

    /// Starts a proxy in front of this upstream, whose agents call it at this URL.
    pub(crate) async fn published(vllm: String, public_url: &str) -> Self {
        let data = TempDir::new().unwrap();
        let mut settings = Settings::on_loopback(vec![vllm.parse().unwrap()], data.path().to_owned());
        settings.public_url = Some(public_url.parse().unwrap());
        Self::on(data, settings, vllm).await
    }

    async fn with(vllm: String, render: RenderSettings) -> Self {
        let data = TempDir::new().unwrap();
        let mut settings = Settings::on_loopback(vec![vllm.parse().unwrap()], data.path().to_owned());
        settings.render = render;
        Self::on(data, settings, vllm).await
    }

    async fn on(data: TempDir, settings: Settings, vllm: String) -> Self {
        let proxy = rolltap_proxy::start(settings).await.unwrap();
        // vLLM closes an idle connection after five seconds, perhaps just when a request is sent on it.
        let http = rolltap_testing::client_builder().pool_max_idle_per_host(0).build().unwrap();
        Self { proxy, http, vllm, data }
    }

    /// Returns the data directory of the proxy.
    pub(crate) fn data(&self) -> &Path {
        self.data.path()
    }

    /// Returns vLLM's own rendering of a chat request.
    pub(crate) async fn rendered(&self, request: &Value) -> TokenList {
        let mut asked = json!({});
        for key in ["model", "messages", "tools", "chat_template_kwargs"] {
            if let Some(value) = request.get(key) {
                asked[key] = value.clone();
            }
        }
        let mut answer: Value = self.post(&self.vllm, "/tokenize", &asked).await.json().await.unwrap();
        serde_json::from_value(answer["tokens"].take()).unwrap()
    }

    /// Returns the text of tokens, with U+FFFD in the place of an incomplete character.
    pub(crate) async fn text_of(&self, model: &str, tokens: &[TokenId]) -> String {
        let asked = json!({"model": model, "tokens": tokens});
        let mut answer: Value = self.post(&self.vllm, "/detokenize", &asked).await.json().await.unwrap();
        serde_json::from_value(answer["prompt"].take()).unwrap()
    }

    pub(crate) fn admin(&self, path: &str) -> String {
        format!("http://{}{path}", self.proxy.admin_addr())
    }

    pub(crate) async fn open(&self) -> TrialOpened {
        self.open_as(json!({"task_id": "real"})).await
    }

    /// Opens a trial with this history mode.
    pub(crate) async fn open_with(&self, history: History) -> TrialOpened {
        self.open_as(json!({"task_id": "real", "history": history})).await
    }

    pub(crate) async fn open_as(&self, trial: Value) -> TrialOpened {
        self.http.post(self.admin("/v1/trials")).json(&trial).send().await.unwrap().json().await.unwrap()
    }

    pub(crate) async fn calls(&self, trial: &TrialOpened) -> Vec<Call> {
        let url = self.admin(&format!("/v1/trials/{}/calls", trial.trial_id));
        let text = self.http.get(url).send().await.unwrap().text().await.unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Seals the trial and returns its rows.
    pub(crate) async fn rollout(&self, trial: &TrialOpened) -> Vec<RolloutRow> {
        let of_trial = |what: &str| self.admin(&format!("/v1/trials/{}/{what}", trial.trial_id));
        self.http.post(of_trial("seal")).send().await.unwrap();
        let text = self.http.get(of_trial("rollout")).send().await.unwrap().text().await.unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Calls an endpoint of vLLM or, with a trial's base URL, of the proxy.
    pub(crate) async fn post(&self, base_url: &str, path: &str, body: &Value) -> Response {
        self.http.post(format!("{base_url}{path}")).json(body).send().await.unwrap()
    }
}

/// Checks that each call's prompt begins with the previous prompt and answer, and was sent as ids.
pub(crate) fn assert_one_branch(calls: &[Call], expected: usize) {
    let mut so_far = TokenList::new();
    for (place, call) in calls.iter().enumerate() {
        assert!(call.prompt_token_ids.starts_with(&so_far), "call {place}: {:?}", call.continuation);
        let is_spliced = matches!(call.continuation, Some(Continuation::Spliced { .. }));
        assert_eq!(is_spliced, place > 0, "call {place}: {:?}", call.continuation);
        so_far = call.prompt_token_ids.clone();
        so_far.extend_from_slice(&call.choices[0].token_ids);
    }
    assert_eq!(calls.len(), expected);
}
