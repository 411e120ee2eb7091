//! Sends spans to the collector: OTLP over HTTP, encoded as protobuf.
//!
//! The exporter of the OpenTelemetry SDK is not used: it blocks a thread of its own, hides its drops from metrics, and
//! reads the standard variables past the settings of the proxy. The messages are those of `opentelemetry-proto`.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use opentelemetry_proto::tonic::Attributes;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans};
use prost::Message;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::queue::Item;
use super::settings::{TRACES_PATH, TraceSettings};
use super::span::Span;
use crate::common::metrics::{DroppedSpans, SpanDrop};
use crate::common::tls::TlsError;
use crate::upstream::{HttpProxy, UpstreamClient, UpstreamTls};

/// The largest number of spans in one request, apart from the rest of the last item.
const BATCH: usize = 512;
/// The time that an incomplete batch waits for more spans.
const DELAY: Duration = Duration::from_secs(1);
/// The longest silence of the collector. It is the standard's default.
const SILENCE: Duration = Duration::from_secs(10);
/// The waits before a batch is sent again.
const RETRIES: [Duration; 3] = [Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(5)];
/// The time at the end of the process in which waiting spans are sent.
const FLUSH: Duration = Duration::from_secs(3);

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");

/// The task that sends spans.
#[derive(Debug)]
pub struct Exporting {
    task: JoinHandle<()>,
    stop: CancellationToken,
}

/// Why a batch is not taken.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
struct NotTaken {
    reason: String,
    /// Whether the collector may take the batch later.
    is_passing: bool,
}

struct Exporter {
    collector: String,
    client: UpstreamClient,
    headers: Vec<(http::HeaderName, HeaderValue)>,
    resource: Resource,
    scope: InstrumentationScope,
    dropped: DroppedSpans,
    /// Whether the last batch was not taken. A change is logged.
    is_failing: bool,
    stop: CancellationToken,
}

/// Starts the task.
pub(super) fn start(
    settings: TraceSettings,
    dropped: DroppedSpans,
    items: mpsc::Receiver<Item>,
) -> Result<Exporting, TlsError> {
    let tls = UpstreamTls { authorities: settings.certificate.into_iter().collect(), identity: None };
    let stop = CancellationToken::new();
    let mut headers = settings.headers;
    headers.push((header::CONTENT_TYPE, PROTOBUF));
    let exporter = Exporter {
        collector: settings.collector.to_string(),
        client: UpstreamClient::new(settings.collector.clone(), &tls, SILENCE)?
            .through(HttpProxy::of_environment(&settings.collector)),
        headers,
        resource: Resource { attributes: Attributes::from(settings.resource).0, ..Resource::default() },
        scope: InstrumentationScope {
            name: "rolltap".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        },
        dropped,
        is_failing: false,
        stop: stop.clone(),
    };
    Ok(Exporting { task: tokio::spawn(exporter.run(items)), stop })
}

impl Exporting {
    /// Sends the spans that wait, for at most some seconds, and ends the task.
    pub async fn finish(mut self) {
        self.stop.cancel();
        if timeout(FLUSH, &mut self.task).await.is_err() {
            self.task.abort();
            tracing::warn!("the last spans were not sent: the OTLP collector does not answer in time");
        }
    }
}

impl Exporter {
    async fn run(mut self, mut items: mpsc::Receiver<Item>) {
        while let Some(batch) = self.next_batch(&mut items).await {
            if !batch.is_empty() {
                self.deliver(&batch).await;
            }
        }
    }

    /// Collects the next batch. `None` if the queue is empty and gets no further item.
    async fn next_batch(&self, items: &mut mpsc::Receiver<Item>) -> Option<Vec<Span>> {
        let mut batch = tokio::select! {
            item = items.recv() => item?,
            () = self.stop.cancelled() => {
                // Items that were added before the end are still sent.
                items.close();
                items.recv().await?
            }
        };
        let more = async {
            while batch.len() < BATCH {
                match items.recv().await {
                    Some(item) => batch.extend(item),
                    None => return,
                }
            }
        };
        tokio::select! {
            () = more => {}
            () = tokio::time::sleep(DELAY) => {}
            () = self.stop.cancelled() => {}
        }
        Some(batch)
    }

    /// Sends a batch, again if the problem may pass. Counts the spans of a batch that is not taken.
    async fn deliver(&mut self, batch: &[Span]) {
        let body = self.encoded(batch);
        let mut waits = RETRIES.iter();
        loop {
            let error = match self.send(body.clone()).await {
                Ok(()) => return self.has_recovered(),
                Err(error) => error,
            };
            let wait = waits.next().filter(|_| error.is_passing && !self.stop.is_cancelled());
            let Some(&wait) = wait else {
                self.dropped.count(SpanDrop::NotTaken, batch.len());
                return self.fails(&error);
            };
            // The end of the process cuts the wait short.
            let _ = timeout(wait, self.stop.cancelled()).await;
        }
    }

    async fn send(&self, body: Bytes) -> Result<(), NotTaken> {
        let passing = |reason| NotTaken { reason, is_passing: true };
        let answer = self.client.post(TRACES_PATH, &self.headers, body).await;
        let answer = answer.map_err(|error| passing(error.to_string()))?;
        let status = answer.status();
        if status.is_success() {
            self.note_rejected(answer.body());
            return Ok(());
        }
        // The standard lists the statuses after which a batch is sent again.
        let is_passing = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT
        );
        Err(NotTaken { reason: format!("it answers {}", status.as_u16()), is_passing })
    }

    /// Counts the spans of a batch that the collector takes in part.
    fn note_rejected(&self, answer: &[u8]) {
        // Collectors may answer in another format, which has no bearing on the batch.
        let answer =
            ExportTraceServiceResponse::decode(answer).ok().and_then(|answer| answer.partial_success);
        let rejected = answer.map_or(0, |partly| partly.rejected_spans);
        if let Ok(rejected @ 1..) = usize::try_from(rejected) {
            self.dropped.count(SpanDrop::NotTaken, rejected);
            tracing::warn!(collector = self.collector, rejected, "the OTLP collector rejects spans");
        }
    }

    fn encoded(&self, batch: &[Span]) -> Bytes {
        let spans = batch.iter().map(Span::to_proto).collect();
        let scope_spans =
            vec![ScopeSpans { scope: Some(self.scope.clone()), spans, schema_url: String::new() }];
        let resource = Some(self.resource.clone());
        let resource_spans = vec![ResourceSpans { resource, scope_spans, schema_url: String::new() }];
        ExportTraceServiceRequest { resource_spans }.encode_to_vec().into()
    }

    fn fails(&mut self, error: &NotTaken) {
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::warn!(
                collector = self.collector, reason = %error,
                "spans are dropped until the OTLP collector takes them; it must take OTLP over HTTP, usually at port 4318, \
                 and not the gRPC of port 4317"
            );
        }
    }

    fn has_recovered(&mut self) {
        if std::mem::take(&mut self.is_failing) {
            tracing::info!(collector = self.collector, "the OTLP collector takes spans again");
        }
    }
}
