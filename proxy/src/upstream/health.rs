//! Checks a replica apart from calls: its health, its weights, its models, its place for prompts as ids, and whether it
//! parses answers. One task per replica asks, so that no call waits for these answers.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use rolltap_cluster::versions::NamedBy;
use serde::Deserialize;
use tokio::time::Instant;

use super::cache_admission::ledger::FIXED_TRIALS;
use super::cache_admission::report::CacheReport;
use super::http1::ReadLimits;
use super::replica::{Outgoing, Replica};
use super::send_error::SendFailure;
use super::{IdsPlace, ModelCard, Pool, parser_question};
use crate::store::Store;
use crate::upstream::policy::ReportedWeights;

/// The timeout of a check.
const PATIENCE: Duration = Duration::from_secs(5);
/// The maximum pause between checks of a server that gets no calls.
const CHECK_WHEN_OUT: Duration = Duration::from_secs(1);
/// How long a list of models is valid, because models change (LoRA adapters). A failed request is not repeated earlier.
const MODELS_HOLD: Duration = Duration::from_secs(60);
/// The pause before a server without `/weight_info` is asked again, because it may be restarted with that path.
const NO_WEIGHTS_HOLD: Duration = Duration::from_secs(60);
/// The pause before a server without usable metrics is asked for them again.
const NO_METRICS_HOLD: Duration = Duration::from_secs(60);
/// The limits of an answer to a check.
const LIMITS: ReadLimits = ReadLimits { bytes: 4 << 20, silence: PATIENCE };

/// The answer of vLLM's `GET /weight_info`, which needs `VLLM_SERVER_DEV_MODE=1`.
#[derive(Deserialize)]
struct WeightInfo {
    weight_version: String,
}

/// Checks the replica until it or the pool is gone.
pub(super) async fn watch(pool: Weak<Pool>, replica: Arc<Replica>) {
    let mut watcher = Watcher {
        replica,
        models_due: None,
        weights_due: None,
        metrics_due: None,
        told: None,
        was_out: false,
        is_described: false,
    };
    loop {
        // A weak reference, so that this task does not extend the life of the pool.
        let Some(pool) = pool.upgrade() else { return };
        // A draining replica is removed here, and its task ends with it.
        if pool.let_go(&watcher.replica) {
            return;
        }
        watcher.look(&pool).await;
        let pause = pool.settings().check_every;
        drop(pool);
        let is_out = watcher.replica.ejected().is_some();
        let pause = if is_out { pause.min(CHECK_WHEN_OUT) } else { pause };
        // A timeout and a notification both lead to the next check.
        let _ = tokio::time::timeout(pause, watcher.replica.look.notified()).await;
    }
}

struct Watcher {
    replica: Arc<Replica>,
    /// `None` if a request is due now.
    models_due: Option<Instant>,
    weights_due: Option<Instant>,
    metrics_due: Option<Instant>,
    /// The label in the server's last report.
    told: Option<String>,
    /// Whether the server was out of service since that report. It may have been restarted with other weights.
    was_out: bool,
    /// Whether the server has answered the request for its description since it came back.
    is_described: bool,
}

impl Watcher {
    async fn look(&mut self, pool: &Pool) {
        match self.ask("/health").await {
            Ok((status, _)) if status.is_server_error() => {
                self.replica
                    .check_failed(&SendFailure::Broken(format!("its /health answers {}", status.as_u16())));
            }
            Err(failure) => self.replica.check_failed(&failure),
            Ok(_) => {
                if self.replica.check_passed() {
                    // The server may have been restarted with another model.
                    (self.models_due, self.weights_due, self.metrics_due) = (None, None, None);
                    self.is_described = false;
                    self.was_out = true;
                    self.replica.may_take_ids();
                }
                self.weights(pool).await;
                self.models(pool).await;
                self.description().await;
                self.cache(pool).await;
                return;
            }
        }
        // An empty card ends the waits for the model card of a server that does not answer.
        self.publish(None, pool);
    }

    async fn weights(&mut self, pool: &Pool) {
        if !is_due(self.weights_due) {
            return;
        }
        match self.ask("/weight_info").await {
            Ok((StatusCode::OK, body)) => match serde_json::from_slice::<WeightInfo>(&body) {
                Ok(info) => self.learn_version(pool, &info.weight_version).await,
                Err(_) => self.weights_due = Some(Instant::now() + NO_WEIGHTS_HOLD),
            },
            Ok((status, _)) if status.is_client_error() => {
                self.weights_due = Some(Instant::now() + NO_WEIGHTS_HOLD);
            }
            _ => {}
        }
    }

    async fn learn_version(&mut self, pool: &Pool, label: &str) {
        let was_out = std::mem::take(&mut self.was_out);
        let told = match self.told.as_deref() {
            Some(before) if before == label => {
                if was_out {
                    self.warn_of_old_label(label);
                }
                return;
            }
            Some(_) => ReportedWeights::Changed,
            None => ReportedWeights::First,
        };
        if !pool.policy().is_baseline(told) {
            // Without a number or a place in the store the version is not learnt, and the next check asks again.
            let number = match pool.policy().number(label, NamedBy::Replica).await {
                Ok(number) => number,
                Err(error) => return tracing::warn!(%error, label, "a policy version has no number yet"),
            };
            let Ok(place) = Store::reserve(pool.store()).await else { return };
            if let Some(version) = pool.policy().learn(label, number, told, place) {
                self.replica.has_version(version);
            }
        }
        self.told = Some(label.to_owned());
    }

    /// Warns of a trainer that loads weights by a restart of the server, without `POST /v1/policy`. All its steps would
    /// get one version.
    fn warn_of_old_label(&self, label: &str) {
        tracing::warn!(
            upstream = %self.replica.address(), label,
            "the upstream was away and names its weights as it did before, so calls are stamped with the same version; if \
             it was started again with other weights, name them with POST /v1/policy"
        );
    }

    async fn models(&mut self, pool: &Pool) {
        if !is_due(self.models_due) {
            return;
        }
        let card = match self.ask("/v1/models").await {
            Ok((StatusCode::OK, body)) => ModelCard::from_models_answer(&body),
            _ => None,
        };
        self.models_due = Some(Instant::now() + MODELS_HOLD);
        if card.is_none() {
            tracing::debug!(upstream = %self.replica.address(), "the upstream does not tell which model it serves");
        }
        self.publish(card, pool);
    }

    /// Reads the description. It has some hundred kilobytes, so it is requested once.
    async fn description(&mut self) {
        if self.is_described {
            return;
        }
        // A server that cannot answer now is asked at the next check.
        let Ok((status, body)) = self.ask("/openapi.json").await else { return };
        self.is_described = !status.is_server_error();
        if status == StatusCode::OK {
            self.replica.takes_ids_in(IdsPlace::in_description(&body));
            self.parser(&body).await;
        }
    }

    /// Asks whether the server parses its answers. If it gives no answer, the reasoning in a stream shows that it has a
    /// parser.
    async fn parser(&self, description: &[u8]) {
        if !parser_question::is_answered_by(description) {
            return;
        }
        let headers = parser_question::headers();
        let answer = self.answer_to(&parser_question::question(&headers)).await;
        if let Ok((StatusCode::OK, answer)) = answer
            && let Some(has_parser) = parser_question::has_parser(&answer)
        {
            self.replica.parses(has_parser);
        }
    }

    /// Reads the state of the KV cache, if the runner of trials asks for it.
    async fn cache(&mut self, pool: &Pool) {
        let Some(cache) = pool.cache.as_ref().filter(|_| is_due(self.metrics_due)) else { return };
        let report = match self.ask("/metrics").await {
            Ok((StatusCode::OK, body)) => {
                CacheReport::read(&String::from_utf8_lossy(&body)).map_err(|error| error.to_string())
            }
            Ok((status, _)) => Err(format!("it answers {}", status.as_u16())),
            Err(failure) => Err(failure.to_string()),
        };
        let is_news =
            cache.report(self.replica.id, report.as_ref().ok().copied(), self.replica.card().as_deref());
        if let Err(reason) = report {
            self.metrics_due = Some(Instant::now() + NO_METRICS_HOLD);
            if is_news {
                tracing::warn!(
                    upstream = %self.replica.address(), reason,
                    "/metrics of the upstream does not describe its KV cache, so at most {FIXED_TRIALS} trials are open there"
                );
            }
        }
    }

    /// Publishes a model card. An earlier card stays valid until there is a new one.
    fn publish(&self, card: Option<ModelCard>, pool: &Pool) {
        let configured = pool.settings().generation_defaults;
        self.replica.card.send_if_modified(|known| {
            // The first publication always counts, because callers wait for any card.
            let is_news = card.is_some() || known.is_none();
            if is_news {
                *known = Some(Arc::new(card.unwrap_or_default().with_defaults(configured)));
            }
            is_news
        });
    }

    async fn ask(&self, path: &str) -> Result<(StatusCode, Bytes), SendFailure> {
        let headers = HeaderMap::new();
        let request =
            Outgoing { method: Method::GET, path, headers: &headers, session: None, body: Bytes::new() };
        self.answer_to(&request).await
    }

    async fn answer_to(&self, request: &Outgoing<'_>) -> Result<(StatusCode, Bytes), SendFailure> {
        let asked = async {
            let answer = self.replica.send(PATIENCE, request).await?;
            let status = answer.status();
            let body = answer.into_body().whole(LIMITS).await;
            Ok((status, body.map_err(|error| SendFailure::Broken(error.to_string()))?))
        };
        tokio::time::timeout(PATIENCE, asked).await.unwrap_or(Err(SendFailure::Silent(PATIENCE)))
    }
}

fn is_due(at: Option<Instant>) -> bool {
    at.is_none_or(|at| at <= Instant::now())
}
