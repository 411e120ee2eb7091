//! A proxy, its simulated upstream, and clients of both planes.

use reqwest::{Client, Response, StatusCode};
use rolltap_proxy::api::{GroupStatus, RolloutLine, TrialOpened, TrialStatus};
use rolltap_proxy::{RunningProxy, Settings};
use rolltap_rollout::call::Call;
use rolltap_rollout::row::RolloutRow;
use rolltap_sim as sim;
use rolltap_testing::limit;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The fixture of one test. All of it ends with the test.
pub(crate) struct Stage {
    pub(crate) upstream: sim::RunningSim,
    pub(crate) proxy: RunningProxy,
    pub(crate) data: TempDir,
    pub(crate) http: Client,
}

/// Returns the settings of a proxy on free ports.
pub(crate) fn settings(upstream: &str, data: &TempDir) -> Settings {
    Settings::on_loopback(vec![upstream.parse().unwrap()], data.path().to_owned())
}

/// Starts a simulator that answers by the script, or with random words if there is none.
pub(crate) async fn simulator(script: Option<&str>) -> sim::RunningSim {
    let script = script.map(|text| sim::Script::from_toml(text, "test").unwrap());
    sim::start(sim::Settings { script, ..sim::Settings::default() }).await.unwrap()
}

impl Stage {
    /// Starts a stage whose upstream answers with random words.
    pub(crate) async fn random() -> Self {
        Self::set(None).await
    }

    /// Starts a stage whose upstream always gives this answer (the fields of a script's answer).
    pub(crate) async fn saying(answer: &str) -> Self {
        Self::set(Some(&format!(
            "[[conversation]]\n[[conversation.turn]]\n[[conversation.turn.answer]]\n{answer}\n"
        )))
        .await
    }

    async fn set(script: Option<&str>) -> Self {
        let upstream = simulator(script).await;
        let url = format!("http://{}", upstream.addr());
        Self::before(upstream, &url).await
    }

    /// Starts a stage with another upstream than the simulator.
    pub(crate) async fn before(upstream: sim::RunningSim, url: &str) -> Self {
        let data = TempDir::new().unwrap();
        let proxy = rolltap_proxy::start(settings(url, &data)).await.unwrap();
        Self { upstream, proxy, data, http: rolltap_testing::http_client() }
    }

    pub(crate) fn admin(&self, path: &str) -> String {
        format!("http://{}{path}", self.proxy.admin_addr())
    }

    pub(crate) fn agent(&self, path: &str) -> String {
        format!("http://{}{path}", self.proxy.agent_addrs()[0])
    }

    /// Returns a trial of the previous process with the base URL of this one, which listens elsewhere.
    pub(crate) fn here(&self, trial: &TrialOpened) -> TrialOpened {
        let mut trial = trial.clone();
        trial.base_urls.openai = self.agent(&format!("/t/{}/v1", trial.key));
        trial
    }

    pub(crate) fn direct(&self) -> String {
        format!("http://{}/v1/chat/completions", self.upstream.addr())
    }

    /// Opens a trial. The fields of `extra` replace those of the request.
    pub(crate) async fn open(&self, extra: Value) -> TrialOpened {
        let mut body = json!({"task_id": "org/task"});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let response = self.http.post(self.admin("/v1/trials")).json(&body).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::CREATED);
        response.json().await.unwrap()
    }

    /// Calls chat completions as the trial's agent.
    pub(crate) async fn chat(&self, trial: &TrialOpened, body: &Value) -> Response {
        self.http
            .post(format!("{}/chat/completions", trial.base_urls.openai))
            .json(body)
            .send()
            .await
            .unwrap()
    }

    /// Posts any text to a path of the agent plane as the trial's agent.
    pub(crate) async fn post(&self, trial: &TrialOpened, path: &str, body: impl Into<String>) -> Response {
        let url = self.agent(&format!("/t/{}{path}", trial.key));
        self.http.post(url).header("content-type", "application/json").body(body.into()).send().await.unwrap()
    }

    pub(crate) async fn seal(&self, trial: &TrialOpened) -> TrialStatus {
        let url = self.admin(&format!("/v1/trials/{}/seal", trial.trial_id));
        self.http.post(url).send().await.unwrap().json().await.unwrap()
    }

    pub(crate) async fn status(&self, trial: &TrialOpened) -> TrialStatus {
        let url = self.admin(&format!("/v1/trials/{}", trial.trial_id));
        self.http.get(url).send().await.unwrap().json().await.unwrap()
    }

    pub(crate) async fn calls(&self, trial: &TrialOpened) -> Vec<Call> {
        self.lines(&format!("/v1/trials/{}/calls", trial.trial_id)).await
    }

    pub(crate) async fn rollout(&self, trial: &TrialOpened) -> Vec<RolloutRow> {
        self.lines(&format!("/v1/trials/{}/rollout", trial.trial_id)).await
    }

    /// Puts a reward. Returns the status and the body of the answer.
    pub(crate) async fn reward(&self, trial: &TrialOpened, reward: Value) -> (u16, Value) {
        let url = self.admin(&format!("/v1/trials/{}/reward", trial.trial_id));
        answer(self.http.put(url).json(&reward)).await
    }

    /// Opens a trial that may be rejected. Returns the status and the body of the answer.
    pub(crate) async fn try_open(&self, body: Value) -> (u16, Value) {
        answer(self.http.post(self.admin("/v1/trials")).json(&body)).await
    }

    /// Returns complete trials. `query` follows the path.
    pub(crate) async fn feed(&self, query: &str) -> Vec<RolloutLine> {
        self.lines(&format!("/v1/rollouts{query}")).await
    }

    pub(crate) async fn group(&self, name: &str) -> GroupStatus {
        let response = self.http.get(self.admin(&format!("/v1/groups/{name}"))).send().await.unwrap();
        response.json().await.unwrap()
    }

    /// Stops the proxy and starts another one on the same captures.
    pub(crate) async fn restarted(self) -> Self {
        let Self { upstream, proxy, data, http } = self;
        proxy.shutdown(limit(5)).await.unwrap();
        let url = format!("http://{}", upstream.addr());
        let proxy = rolltap_proxy::start(settings(&url, &data)).await.unwrap();
        Self { upstream, proxy, data, http }
    }

    async fn lines<T: DeserializeOwned>(&self, path: &str) -> Vec<T> {
        let text = self.http.get(self.admin(path)).send().await.unwrap().text().await.unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Returns the status and the JSON body of the answer.
pub(crate) async fn answer(request: reqwest::RequestBuilder) -> (u16, Value) {
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

/// Returns a chat request. The fields of `extra` replace its own.
pub(crate) fn request(extra: Value) -> Value {
    let mut body =
        json!({"model": "sim", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 16});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

/// Returns a streaming request of each dialect, with its path.
pub(crate) fn of_each_dialect() -> Vec<(&'static str, Value)> {
    let messages = json!([{"role": "user", "content": "Hello"}]);
    vec![
        ("/v1/chat/completions", json!({"model": "sim", "stream": true, "messages": messages})),
        ("/v1/completions", json!({"model": "sim", "stream": true, "prompt": "Hello"})),
        ("/v1/responses", json!({"model": "sim", "stream": true, "input": "Hello"})),
        ("/v1/messages", json!({"model": "sim", "stream": true, "max_tokens": 16, "messages": messages})),
        (
            "/v1beta/models/sim:streamGenerateContent?alt=sse",
            json!({"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}),
        ),
    ]
}
