//! Questions to the server itself: who answers, which model, which version, which endpoints.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, header};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use rolltap_proxy::UpstreamClient;
use rolltap_rollout::served_models::{ServedModel, ServedModels};
use serde::Deserialize;

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

#[derive(Deserialize)]
struct Version {
    version: String,
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

/// Returns whether the server reports a version of vLLM.
fn vllm_version(answer: Option<Response<Bytes>>, ledger: &mut Ledger) -> bool {
    let version = answer.and_then(|answer| serde_json::from_slice::<Version>(answer.body()).ok());
    let Some(Version { version }) = version else {
        ledger.degraded(
            "version",
            "GET /version names no version of vLLM",
            "name vLLM itself as the upstream, or let the router pass /version on",
        );
        return false;
    };
    match numbers(&version) {
        Some(found) if found < (0, 10, 2) => ledger.broken(
            "version",
            format!("vLLM {version}"),
            "update vLLM to 0.10.2 or later: earlier versions send no token ids",
        ),
        Some(found) if found < (0, 31, 0) => ledger.degraded(
            "version",
            format!("vLLM {version}"),
            "update vLLM to 0.31 or later: earlier versions take no prompts as token ids, so a later turn may start a branch",
        ),
        _ => ledger.ok("version", format!("vLLM {version}")),
    }
    true
}

/// Returns the first three numbers of a version. Missing ones are zero.
fn numbers(version: &str) -> Option<(u32, u32, u32)> {
    let mut parts = version.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().ok());
    let first = parts.next()??;
    let mut next = || parts.next().flatten().unwrap_or_default();
    Some((first, next(), next()))
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

/// Lists the endpoints of vLLM that trainers use.
fn endpoints(description: &[u8], ledger: &mut Ledger) {
    let known = ["/sleep", "/wake_up", "/pause", "/resume", "/weight_info", "/reset_prefix_cache"];
    let has = |path: &&str| memchr::memmem::find(description, format!("\"{path}\"").as_bytes()).is_some();
    let found: Vec<&str> = known.into_iter().filter(has).collect();
    let found = match found.as_slice() {
        [] => "none of sleep, pause and weight_info; VLLM_SERVER_DEV_MODE=1 adds them, for trainers that update weights in \
               place"
            .to_owned(),
        found => found.join(", "),
    };
    ledger.ok("weights", found);
}

/// Notes whether chat requests have a session id, by which a router finds the replica of an earlier call.
fn session_id(description: Option<&[u8]>, ledger: &mut Ledger) {
    let takes = description.map(|text| memchr::memmem::find(text, b"\"session_id\"").is_some());
    ledger.ok(
        "session id",
        match takes {
            Some(true) => "requests may have a session_id",
            Some(false) => "requests have no session_id, which vLLM 0.32 added",
            None => "unknown, because GET /openapi.json is not answered",
        },
    );
}

/// Notes whether the server has a parser of reasoning or of tool calls.
fn parsers(has_parser: Option<bool>, ledger: &mut Ledger) {
    match has_parser {
        Some(true) => ledger.ok("parsers", "the server parses reasoning or tool calls"),
        Some(false) => ledger.degraded(
            "parsers",
            "the server has no parser, so reasoning and tool calls are text to agents",
            "start vLLM with the --reasoning-parser and the --tool-call-parser of the model, unless agents parse the text",
        ),
        None => ledger.ok(
            "parsers",
            "the server does not answer whether it has any (vLLM 0.32 with --enable-scale-out does); see reasoning and \
             tools below",
        ),
    }
}

/// Returns the answer of a `GET` if its status is a success.
async fn ask(client: &UpstreamClient, path: &str) -> Option<Response<Bytes>> {
    client.get(path).await.ok().filter(|answer| answer.status().is_success())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
    fn versions_compare_by_their_numbers() {
        assert_eq!(numbers("0.10.2"), Some((0, 10, 2)));
        assert_eq!(numbers("0.32.0rc1.dev3+g12"), Some((0, 32, 0)));
        assert_eq!(numbers("0.31"), Some((0, 31, 0)));
        assert_eq!(numbers("main"), None);
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

    #[test]
    fn a_session_id_and_parsers_are_named() {
        let mut ledger = Ledger::default();
        session_id(Some(br#"{"properties":{"session_id":{}}}"#), &mut ledger);
        session_id(Some(b"{}"), &mut ledger);
        session_id(None, &mut ledger);
        [Some(true), Some(false), None].into_iter().for_each(|has| parsers(has, &mut ledger));
        let found = serde_json::to_value(ledger.into_findings()).unwrap();
        for (at, verdict, part) in [
            (0, "ok", "may have"),
            (1, "ok", "have no session_id"),
            (2, "ok", "unknown"),
            (3, "ok", "parses"),
            (4, "degraded", "has no parser"),
            (5, "ok", "see reasoning and tools"),
        ] {
            assert_eq!(found[at]["verdict"], verdict, "{found}");
            assert!(found[at]["found"].as_str().unwrap().contains(part), "{found}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_versions_never_panic(text: String) {
            numbers(&text);
        }
    }
}
