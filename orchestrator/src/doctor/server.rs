//! Questions to the server itself: who answers, with which model and clock, over which connections.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, header};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use rolltap_proxy::UpstreamClient;
use rolltap_rollout::served_models::{ServedModel, ServedModels};

use super::features::{endpoints, parsers, session_id, vllm_version};
use super::ledger::Ledger;
use super::{DoctorError, DoctorSettings};
use crate::common::suggest::{did_you_mean, nearest};

/// The number of questions whose median is the latency.
const ROUNDS: usize = 5;
/// A larger difference of the clocks makes the times of captures unusable beside the server's logs.
const LARGEST_CLOCK_DIFFERENCE: Duration = Duration::from_secs(5);
/// Headers that proxies and routers add to answers. vLLM sends none of them.
const ROUTER_HEADERS: [&str; 9] = [
    "via",
    // vLLM sends it to browsers alone, whose requests have an origin. vLLM's own router sends it in every answer.
    "access-control-allow-origin",
    "x-envoy-upstream-service-time",
    "cf-ray",
    "x-served-by",
    "x-cache",
    "x-kong-proxy-latency",
    "x-amz-cf-id",
    "x-router-id",
];

/// The model of the examination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Served {
    pub(super) name: String,
    /// The maximum number of tokens in prompt and answer together, if the server states it.
    pub(super) max_len: Option<u64>,
}

/// Asks the server. Returns the model for the calls, or `None` if no call makes sense.
pub(super) async fn question(
    settings: &DoctorSettings,
    ledger: &mut Ledger,
) -> Result<Option<Served>, DoctorError> {
    let client = UpstreamClient::new(settings.address.clone(), &settings.tls, settings.timeout)?
        .through(settings.http_proxy.clone());
    let Some(first) = reach(&client, ledger).await else { return Ok(None) };
    let Some(served) = model(&first, settings.model.as_deref(), ledger) else { return Ok(None) };
    clock(first.headers(), ledger);
    let (version, description) = (ask(&client, "/version").await, ask(&client, "/openapi.json").await);
    let has_version = vllm_version(version, ledger);
    router(first.headers(), has_version, ledger);
    let description = description.as_ref().map(|answer| &answer.body()[..]);
    endpoints(description.unwrap_or_default(), ledger);
    session_id(description, ledger);
    parsers(client.has_parser().await, ledger);
    match ask(&client, "/metrics").await {
        Some(answer) if memchr::memmem::find(answer.body(), b"vllm:").is_some() => {
            ledger.ok("metrics", "GET /metrics has vLLM's metrics");
        }
        _ => ledger.degraded(
            "metrics",
            "GET /metrics has no metrics of vLLM",
            "name vLLM itself as the upstream, or let the router pass /metrics on; rolltap works without it",
        ),
    }
    Ok(Some(served))
}

/// Asks for the models several times, and returns an answer.
async fn reach(client: &UpstreamClient, ledger: &mut Ledger) -> Option<Response<Bytes>> {
    let mut times = Vec::new();
    let mut last = None;
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        match client.get("/v1/models").await {
            Ok(answer) => last = Some(answer),
            Err(error) => {
                let remedy = "check the address, that vLLM runs there, and that no firewall is in between";
                ledger.broken("reachable", error.to_string(), remedy);
                return None;
            }
        }
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    let (median, opened) = (times.get(ROUNDS / 2)?, client.opened_connections());
    ledger.ok(
        "reachable",
        format!("{:.1} ms for GET /v1/models (median of {ROUNDS})", median.as_secs_f64() * 1e3),
    );
    if opened == 1 {
        ledger.ok("connections", format!("one connection served {ROUNDS} requests"));
    } else {
        ledger.degraded(
            "connections",
            format!("{ROUNDS} requests needed {opened} connections"),
            "let the gateway keep connections open (keep-alive): each new connection costs a round trip, with TLS two",
        );
    }
    last
}

/// Returns the model for the calls.
fn model(answer: &Response<Bytes>, asked: Option<&str>, ledger: &mut Ledger) -> Option<Served> {
    let served = match read_models(answer) {
        Ok(served) => served.models,
        Err(reason) => {
            ledger.broken(
                "model",
                reason,
                "name the server itself as the upstream, and check --upstream-api-key",
            );
            return None;
        }
    };
    let names = served.iter().map(|model| model.id.as_str()).collect::<Vec<_>>();
    let all = names.join(", ");
    let chosen: Option<&ServedModel> = match asked {
        Some(asked) => served.iter().find(|model| model.id == asked),
        None => served.first(),
    };
    let Some(ServedModel { id, max_model_len, .. }) = chosen else {
        let asked = asked.unwrap_or_default();
        let hint = did_you_mean(nearest(asked, names.iter().copied()));
        ledger.broken(
            "model",
            format!("the server does not serve {asked:?}{hint}; it serves: {all}"),
            "choose a served model with --model",
        );
        return None;
    };
    match max_model_len {
        Some(length) => ledger.ok("model", format!("serves {all}; {id} takes {length} tokens")),
        None => ledger.degraded(
            "model",
            format!("serves {all}; the list has no max_model_len, so a router may have written it"),
            "name vLLM itself as the upstream, if you can",
        ),
    }
    Some(Served { name: id.clone(), max_len: *max_model_len })
}

/// Reads the list of models. The error names what came instead.
pub(crate) fn read_models(answer: &Response<Bytes>) -> Result<ServedModels, String> {
    let status = answer.status();
    let text = |name| answer.headers().get(name).and_then(|value| value.to_str().ok());
    if status.is_redirection() {
        let to = text(header::LOCATION).unwrap_or("an unknown address");
        return Err(format!("GET /v1/models is redirected ({status}) to {to}; give that address itself"));
    }
    if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        return Err(format!("GET /v1/models was answered {status}: is --upstream-api-key right?"));
    }
    if status == StatusCode::BAD_REQUEST && needs_tls(answer.body()) {
        return Err("the server expects TLS on this port, so its address begins with https://".to_owned());
    }
    if !status.is_success() {
        return Err(format!("GET /v1/models was answered {status}"));
    }
    let kind = text(header::CONTENT_TYPE).unwrap_or("no content type");
    if kind.starts_with("text/html") {
        return Err(
            "GET /v1/models was answered with an HTML page: a gateway or a login page answers".to_owned()
        );
    }
    ServedModels::parse(answer.body())
        .map_err(|error| format!("the answer of GET /v1/models ({kind}) is no list of models: {error}"))
}

/// Whether the body is that of a TLS port to a request without TLS: of nginx, Go's servers, Apache, or rolltap.
fn needs_tls(body: &[u8]) -> bool {
    let texts = ["sent to HTTPS port", "to an HTTPS server", "speaking plain HTTP to an SSL", "expects TLS"];
    texts.iter().any(|text| memchr::memmem::find(body, text.as_bytes()).is_some())
}

fn clock(headers: &HeaderMap, ledger: &mut Ledger) {
    let date = headers.get(header::DATE).and_then(|value| value.to_str().ok());
    let Some(date) = date.and_then(|date| rfc2822::parse(date).ok()) else {
        return ledger.ok("clock", "the server sends no Date, so its clock is unknown");
    };
    // The header has whole seconds.
    let difference = Timestamp::now().duration_since(date.timestamp()).unsigned_abs();
    let difference = difference.saturating_sub(Duration::from_secs(1));
    if difference <= LARGEST_CLOCK_DIFFERENCE {
        ledger.ok("clock", format!("within {} s of this machine's", difference.as_secs() + 1));
    } else {
        ledger.degraded(
            "clock",
            format!("{} s from this machine's", difference.as_secs()),
            "run NTP on both machines: otherwise the times of captures do not fit the server's logs",
        );
    }
}

fn router(headers: &HeaderMap, has_version: bool, ledger: &mut Ledger) {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let mut signs: Vec<String> =
        ROUTER_HEADERS.iter().filter_map(|name| text(name).map(|value| format!("{name}: {value}"))).collect();
    // vLLM's own server is uvicorn.
    signs.extend(
        text("server").filter(|server| *server != "uvicorn").map(|server| format!("server: {server}")),
    );
    match (signs.is_empty(), has_version) {
        (true, true) => ledger.ok("router", "none that shows itself"),
        (true, false) => ledger.degraded(
            "router",
            "no sign in the headers, but vLLM's own endpoints are missing",
            "a router or another server may answer; the lines about ids below show whether it matters",
        ),
        (false, _) => ledger.ok(
            "router",
            format!("something in between answers ({}); the lines about ids and streams below show whether it matters", signs.join(", ")),
        ),
    }
}

/// Returns the answer of a `GET` if its status is a success.
async fn ask(client: &UpstreamClient, path: &str) -> Option<Response<Bytes>> {
    client.get(path).await.ok().filter(|answer| answer.status().is_success())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, kind: &str, body: &'static str) -> Response<Bytes> {
        let answer = Response::builder().status(status).header(header::CONTENT_TYPE, kind);
        answer
            .header(header::LOCATION, "https://elsewhere")
            .body(Bytes::from_static(body.as_bytes()))
            .unwrap()
    }

    #[test]
    fn an_answer_that_is_no_list_of_models_is_named() {
        for (answer, part) in [
            (answer(200, "text/html; charset=utf-8", "<html>"), "HTML page"),
            (answer(307, "text/plain", ""), "https://elsewhere"),
            (answer(401, "application/json", "{}"), "--upstream-api-key"),
            (answer(502, "text/html", "<html>"), "502"),
            (answer(400, "text/html", "<h1>The plain HTTP request was sent to HTTPS port</h1>"), "https://"),
            (answer(200, "application/json", "{}"), "no list of models"),
        ] {
            let error = read_models(&answer).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_clock_that_differs_is_degraded() {
        for (date, worst) in [("Tue, 24 Nov 2020 03:00:00 GMT", "degraded"), ("yesterday", "ok")] {
            let (mut ledger, mut headers) = (Ledger::default(), HeaderMap::new());
            headers.insert(header::DATE, date.parse().unwrap());
            clock(&headers, &mut ledger);
            let found = serde_json::to_value(ledger.into_findings()).unwrap();
            assert_eq!(found[0]["verdict"], worst, "{found}");
        }
    }
}
