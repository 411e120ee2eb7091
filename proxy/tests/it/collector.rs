//! An OpenTelemetry collector that stores the spans that it gets. Tests of the program use it too.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tokio::net::TcpListener;

/// A collector, and the requests that it got.
pub(crate) struct Collector {
    pub(crate) url: String,
    taken: Arc<Mutex<Vec<Export>>>,
}

/// One request.
#[derive(Clone)]
pub(crate) struct Export {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Collector {
    /// Starts a collector that answers every request with this status.
    pub(crate) async fn answering(status: StatusCode) -> Self {
        let taken = Arc::default();
        let take = move |State(taken): State<Arc<Mutex<Vec<Export>>>>,
                         uri: Uri,
                         headers: HeaderMap,
                         body: Bytes| async move {
            taken.lock().unwrap().push(Export { path: uri.path().to_owned(), headers, body });
            status
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(take).with_state(Arc::clone(&taken));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, taken }
    }

    pub(crate) fn exports(&self) -> Vec<Export> {
        self.taken.lock().unwrap().clone()
    }

    /// Returns the spans so far, in the order of their arrival.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let resources = self.exports().into_iter().flat_map(|export| export.decoded().resource_spans);
        resources.flat_map(|of| of.scope_spans).flat_map(|scope| scope.spans).collect()
    }

    /// Returns the attributes of the process that sent the first spans.
    pub(crate) fn resource(&self) -> BTreeMap<String, String> {
        let first = self.exports()[0].decoded().resource_spans.remove(0);
        texts(&first.resource.unwrap().attributes)
    }
}

impl Export {
    fn decoded(&self) -> ExportTraceServiceRequest {
        ExportTraceServiceRequest::decode(self.body.clone()).unwrap()
    }
}

/// Returns the only span with this name.
pub(crate) fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let found: Vec<_> = spans.iter().filter(|span| span.name == name).collect();
    let names: Vec<_> = spans.iter().map(|span| &span.name).collect();
    assert_eq!(found.len(), 1, "{name} among {names:?}");
    found[0]
}

/// Returns the attributes, each as text. A list has commas between its items.
pub(crate) fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |pair: &KeyValue| (pair.key.clone(), pair.value.as_ref().map(text).unwrap_or_default());
    attributes.iter().map(text).collect()
}

fn text(value: &AnyValue) -> String {
    match value.value.as_ref() {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::BoolValue(is)) => is.to_string(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::DoubleValue(number)) => number.to_string(),
        Some(Value::ArrayValue(list)) => list.values.iter().map(text).collect::<Vec<_>>().join(","),
        other => panic!("no attribute of rolltap has this type: {other:?}"),
    }
}
