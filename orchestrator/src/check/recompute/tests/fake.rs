//! A server with the endpoints of vLLM that a recomputation needs, and its answers.

use std::sync::{Arc, Mutex};

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::AUTHORIZATION;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use rolltap_proxy::Address;
use serde_json::{Value, json};

/// Answers a request with the number of earlier requests.
pub(super) type Answer = fn(&Value, usize) -> (StatusCode, Value);

/// A server with the model `m`.
pub(super) struct Fake {
    answer: Answer,
    weights: Option<Vec<&'static str>>,
    /// The bodies of all requests for completions.
    pub(super) asked: Mutex<Vec<Value>>,
    /// The required header.
    authorization: Option<String>,
    weights_asked: Mutex<usize>,
}

impl Fake {
    pub(super) fn answering(answer: Answer) -> Self {
        Self {
            answer,
            weights: None,
            asked: Mutex::default(),
            authorization: None,
            weights_asked: Mutex::default(),
        }
    }

    /// Names the weights, one name per question, and the last name for all further questions.
    pub(super) fn with_weights(self, names: &[&'static str]) -> Self {
        Self { weights: Some(names.to_vec()), ..self }
    }

    pub(super) fn with_api_key(self, key: &str) -> Self {
        Self { authorization: Some(format!("Bearer {key}")), ..self }
    }

    pub(super) async fn start(self) -> (Arc<Self>, Address) {
        let fake = Arc::new(self);
        let models = json!({"data": [{"id": "m", "max_model_len": 8}, {"id": "other"}]});
        let routes = Router::new()
            .route("/v1/models", get(move || async move { Json(models) }))
            .route("/weight_info", get(weight_info))
            .route("/v1/completions", post(completions))
            .layer(middleware::from_fn_with_state(Arc::clone(&fake), authorized))
            .with_state(Arc::clone(&fake));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}/v1", listener.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(async move { axum::serve(listener, routes).await });
        (fake, address)
    }
}

async fn authorized(State(fake): State<Arc<Fake>>, request: Request, next: Next) -> Response {
    let sent = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    if fake.authorization.is_some() && fake.authorization.as_deref() != sent {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    next.run(request).await
}

async fn weight_info(State(fake): State<Arc<Fake>>) -> Result<Json<Value>, StatusCode> {
    let names = fake.weights.as_ref().ok_or(StatusCode::NOT_FOUND)?;
    let mut asked = fake.weights_asked.lock().unwrap();
    *asked += 1;
    let name = names.get(*asked - 1).or(names.last()).unwrap();
    Ok(Json(json!({"weight_version": name})))
}

async fn completions(State(fake): State<Arc<Fake>>, Json(asked): Json<Value>) -> (StatusCode, Json<Value>) {
    let mut earlier = fake.asked.lock().unwrap();
    let (status, answer) = (fake.answer)(&asked, earlier.len());
    earlier.push(asked);
    (status, Json(answer))
}

/// Answers as vLLM, with the captured logprobs of [`crate::check::sound_rows`].
pub(super) fn equal(asked: &Value, _: usize) -> (StatusCode, Value) {
    let entry =
        |id: &Value| json!({id.to_string(): {"logprob": if id == 4 { -0.5 } else { -0.25 }, "rank": 1}});
    let mut entries: Vec<_> = asked["prompt"].as_array().unwrap().iter().map(entry).collect();
    entries[0] = Value::Null;
    (StatusCode::OK, json!({"choices": [{"text": "", "prompt_logprobs": entries}]}))
}

pub(super) fn unequal(asked: &Value, earlier: usize) -> (StatusCode, Value) {
    let (status, mut answer) = equal(asked, earlier);
    answer["choices"][0]["prompt_logprobs"][3]["4"]["logprob"] = json!(-1.5);
    (status, answer)
}

pub(super) fn busy_at_first(asked: &Value, earlier: usize) -> (StatusCode, Value) {
    if earlier < 2 { (StatusCode::SERVICE_UNAVAILABLE, json!({})) } else { equal(asked, earlier) }
}

pub(super) fn always_busy(_: &Value, _: usize) -> (StatusCode, Value) {
    (StatusCode::INTERNAL_SERVER_ERROR, json!({"error": {"message": "the engine\nis dead"}}))
}

pub(super) fn refusing(_: &Value, _: usize) -> (StatusCode, Value) {
    (StatusCode::BAD_REQUEST, json!({"error": {"message": "Token id 5 is out of vocabulary"}}))
}

pub(super) fn without_prompt_logprobs(_: &Value, _: usize) -> (StatusCode, Value) {
    (StatusCode::OK, json!({"choices": [{"text": "", "prompt_logprobs": null}]}))
}
