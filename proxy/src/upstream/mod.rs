//! The vLLM servers behind the proxy.

mod address;
mod model_card;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

pub use address::{Address, InvalidAddress};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
pub(crate) use model_card::{ModelCard, SamplingDefaults};
use rolltap_rollout::ids::TrialId;
use tokio::sync::OnceCell;

/// A server that does not take the connection within this time is down.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// vLLM closes a connection that was idle for 5 s (`VLLM_HTTP_TIMEOUT_KEEP_ALIVE`). Ours go before that, so that no call
/// is sent on one that is just being closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// Side questions to a server (which model, which defaults) may take this long.
const SIDE_CALL_TIMEOUT: Duration = Duration::from_secs(2);
const LARGEST_SIDE_ANSWER: usize = 4 << 20;

/// Request headers that go upstream. All others stay here: the agent's own credentials, and headers by which vLLM lets
/// itself be steered (`X-data-parallel-rank`, `X-Vllm-Priority`). Without `accept-encoding`, answers come readable.
const FORWARDED: [HeaderName; 4] =
    [header::CONTENT_TYPE, header::ACCEPT, header::USER_AGENT, HeaderName::from_static("traceparent")];

/// Every upstream server, and the connections to them.
#[derive(Debug)]
pub(crate) struct Pool {
    client: Client<HttpConnector, Full<Bytes>>,
    replicas: Vec<Replica>,
}

#[derive(Debug)]
struct Replica {
    address: Address,
    card: OnceCell<ModelCard>,
}

/// Why upstream gave no answer at all.
#[derive(Debug, thiserror::Error)]
#[error("cannot reach the upstream at {address}: {reason}")]
pub(crate) struct Unreachable {
    address: String,
    reason: String,
}

impl Pool {
    pub(crate) fn new(addresses: Vec<Address>) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let replicas =
            addresses.into_iter().map(|address| Replica { address, card: OnceCell::new() }).collect();
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build(connector);
        Self { client, replicas }
    }

    /// Sends a request to the trial's replica: always the same one, for the sake of its prefix cache.
    pub(crate) async fn send(
        &self,
        trial: &TrialId,
        method: Method,
        path: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, Unreachable> {
        self.replica_of(trial)?.send(&self.client, method, path, headers, body).await
    }

    /// What is known of the model that the trial's replica serves; asks where nobody did yet.
    pub(crate) async fn model_card(&self, trial: &TrialId) -> ModelCard {
        let Ok(replica) = self.replica_of(trial) else { return ModelCard::default() };
        let learnt = replica.card.get_or_try_init(|| replica.learn(&self.client)).await;
        // A server that is still starting is asked again for the next trial.
        learnt.cloned().unwrap_or_default()
    }

    fn replica_of(&self, trial: &TrialId) -> Result<&Replica, Unreachable> {
        let mut hasher = DefaultHasher::new();
        trial.hash(&mut hasher);
        let index = hasher.finish().checked_rem(self.replicas.len() as u64).unwrap_or(0) as usize;
        self.replicas.get(index).ok_or_else(|| Unreachable {
            address: "(none)".to_owned(),
            reason: "the proxy was started without an upstream".to_owned(),
        })
    }
}

impl Replica {
    async fn send(
        &self,
        client: &Client<HttpConnector, Full<Bytes>>,
        method: Method,
        path: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, Unreachable> {
        let unreachable = |reason| Unreachable { address: self.address.to_string(), reason };
        let mut request = Request::builder().method(method).uri(self.address.join(path));
        if let Some(forwarded) = request.headers_mut() {
            for name in &FORWARDED {
                forwarded.extend(headers.get(name).map(|value| (name.clone(), value.clone())));
            }
            forwarded.extend(self.address.authorization().map(|value| (header::AUTHORIZATION, value)));
        }
        let request = request.body(Full::new(body)).map_err(|error| unreachable(error.to_string()))?;
        client.request(request).await.map_err(|error| unreachable(root_cause(&error)))
    }

    async fn learn(&self, client: &Client<HttpConnector, Full<Bytes>>) -> Result<ModelCard, ()> {
        let asked = async {
            let answer =
                self.send(client, Method::GET, "/v1/models", &HeaderMap::new(), Bytes::new()).await.ok()?;
            let body = Limited::new(answer.into_body(), LARGEST_SIDE_ANSWER).collect().await.ok()?.to_bytes();
            ModelCard::from_models_answer(&body)
        };
        let card = tokio::time::timeout(SIDE_CALL_TIMEOUT, asked).await.ok().flatten();
        if card.is_none() {
            tracing::debug!(upstream = %self.address, "the upstream does not tell which model it serves (yet)");
        }
        card.ok_or(())
    }
}

/// What the system said, without the layers around it.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Headers of one connection alone (RFC 9110 §7.6.1), and those that describe a body's framing.
pub(crate) fn without_framing(mut headers: HeaderMap<HeaderValue>) -> HeaderMap<HeaderValue> {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let fixed = [
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::TE,
        header::TRAILER,
        header::UPGRADE,
        HeaderName::from_static("keep-alive"),
    ];
    for name in named.iter().chain(&fixed) {
        headers.remove(name);
    }
    headers
}
