//! The files in `deploy` and the metrics of a proxy agree, and spans and the log of a job have their form.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use axum::http::StatusCode;
use regex::Regex;
use rolltap_testing::limit;
use serde_json::{Value, json};

use super::collector::{Collector, named, texts};
use super::jobs::task;
use super::program::{Running, repository, rolltap};

/// The series of a scrape: the values of each label, by metric.
type Series = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// Labels that Prometheus adds.
const OF_PROMETHEUS: [&str; 2] = ["instance", "job"];
/// The metric that Prometheus makes itself.
const UP: &str = "up";

fn series(text: &str) -> Series {
    let label = Regex::new(r#"(\w+)="([^"]*)""#).unwrap();
    let mut series = Series::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, rest) = line.split_once(['{', ' ']).unwrap();
        let labels = series.entry(name.to_owned()).or_default();
        for found in label.captures_iter(rest.split('}').next().unwrap()) {
            labels.entry(found[1].to_owned()).or_default().insert(found[2].to_owned());
        }
    }
    series
}

/// Returns the problems of a query: metrics, labels and values that the scrape lacks.
fn problems(query: &str, series: &Series) -> Vec<String> {
    let selector = Regex::new(r"\b(rolltap_\w+|up)\b(?:\{([^}]*)\})?").unwrap();
    let matcher = Regex::new(r#"(\w+)\s*(=~|!=|!~|=)\s*"([^"]*)""#).unwrap();
    let grouping = Regex::new(r"\b(?:by|on)\s*\(([^)]*)\)").unwrap();
    let mut problems = Vec::new();
    let mut known: BTreeSet<&str> = OF_PROMETHEUS.into();
    for found in selector.captures_iter(query).filter(|found| &found[1] != UP) {
        let Some(labels) = series.get(&found[1]) else {
            problems.push(format!("no metric {}", &found[1]));
            continue;
        };
        known.extend(labels.keys().map(String::as_str));
        let matchers = found.get(2).map_or("", |matchers| matchers.as_str());
        for found in matcher.captures_iter(matchers).filter(|found| !OF_PROMETHEUS.contains(&&found[1])) {
            let values = labels.get(&found[1]);
            let are_there =
                |given: &str| given.split('|').all(|one| values.is_some_and(|all| all.contains(one)));
            if values.is_none() || (found[2].starts_with('=') && !are_there(&found[3])) {
                problems.push(format!("no series with {}", &found[0]));
            }
        }
    }
    let labels = grouping
        .captures_iter(query)
        .flat_map(|found| found[1].split(", ").map(str::to_owned).collect::<Vec<_>>());
    problems.extend(
        labels.filter(|label| !known.contains(label.as_str())).map(|label| format!("no label {label}")),
    );
    problems
}

/// Returns the texts of all members with this name.
fn members(value: &Value, name: &str) -> Vec<String> {
    match value {
        Value::Array(items) => items.iter().flat_map(|item| members(item, name)).collect(),
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(key, field)| match field {
                Value::String(text) if key == name => vec![text.clone()],
                field => members(field, name),
            })
            .collect(),
        _ => Vec::new(),
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(repository(path)).unwrap()
}

#[test]
fn a_query_with_an_unknown_name_has_problems() {
    let series = series("# TYPE a gauge\nrolltap_a{state=\"x\"} 1\nrolltap_b 2\n");
    assert_eq!(
        problems("sum by (state, job) (rolltap_a{state=~\"x\", instance=\"i\"}) / rolltap_b > up", &series),
        [""; 0]
    );
    for wrong in [
        "rolltap_c",
        "rolltap_a{state=\"y\"}",
        "rolltap_a{state=~\"x|y\"}",
        "rolltap_b{state!=\"\"}",
        "sum by (status) (rolltap_a)",
    ] {
        assert_eq!(problems(wrong, &series).len(), 1, "{wrong}");
    }
}

#[tokio::test]
async fn the_dashboard_and_the_alerts_ask_for_metrics_that_a_proxy_has() {
    let dir = tempfile::tempdir().unwrap();
    let mut sim = Running::start(dir.path(), &["sim", "--listen", "127.0.0.1:0"]);
    let upstream = sim.next_url();
    let args = ["--upstream", &upstream, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let mut proxy = Running::start(dir.path(), &[&["proxy"], &args[..]].concat());
    let (_, admin) = (proxy.next_url(), proxy.next_url());
    let http = rolltap_testing::http_client();
    let open = http.post(format!("{admin}/v1/trials")).json(&json!({"task_id": "t"}));
    let trial: Value = open.send().await.unwrap().json().await.unwrap();
    let url = format!("{}/chat/completions", trial["base_urls"]["openai"].as_str().unwrap());
    let body = json!({"model": "sim", "max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]});
    assert!(http.post(url).json(&body).send().await.unwrap().status().is_success());
    let scrape = http.get(format!("{admin}/metrics")).send().await.unwrap().text().await.unwrap();
    let series = series(&scrape);

    let dashboard: Value = serde_json::from_str(&read("deploy/grafana/rolltap.json")).unwrap();
    let alerts: Value = serde_saphyr::from_str(&read("deploy/prometheus/alerts.yml")).unwrap();
    let queries =
        [members(&dashboard, "expr"), members(&dashboard, "query"), members(&alerts, "expr")].concat();
    assert!(queries.len() > 40, "{queries:?}");
    let all: Vec<_> = queries.iter().flat_map(|query| problems(query, &series)).collect();
    assert!(all.is_empty(), "{all:#?} in:\n{scrape}");

    let guide = read("docs/how-to/observe-rolltap.md");
    for (alert, runbook) in members(&alerts, "alert").iter().zip(members(&alerts, "runbook")) {
        assert!(guide.contains(&format!("### {alert}\n")), "{alert} has no section");
        assert_eq!(runbook, format!("docs/how-to/observe-rolltap.md#{}", alert.to_lowercase()));
        let test = format!("ALERTS{{alertname=\"{alert}\"");
        assert!(read("deploy/prometheus/alerts.test.yml").contains(&test), "{alert} has no test");
    }
    let types = scrape.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    for (name, kind) in types {
        let name = if kind == "counter" { format!("{name}_total") } else { name.to_owned() };
        let page = read("docs/how-to/operate-the-proxy.md");
        assert!(page.contains(&format!("`{name}`")), "{name} is not in operate-the-proxy.md");
    }
}

// The collector runs while the test waits for the job.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_sends_a_span_per_trial_and_phase_and_the_proxy_continues_them() {
    let dir = tempfile::tempdir().unwrap();
    let task = task(dir.path(), "good", "echo 1 > /logs/verifier/reward.txt");
    let collector = Collector::answering(StatusCode::OK).await;
    let args = ["run", "-p", task.to_str().unwrap(), "-a", "nop", "-e", "local", "--job-name", "it"];
    let mut command = rolltap(dir.path(), &args);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url).env("OTEL_SERVICE_NAME", "jobs");
    assert_eq!(Running::spawn(&mut command).wait(limit(60)).0, Some(0));
    assert_eq!(collector.resource()["service.name"], "jobs");
    let spans = collector.spans();
    let trial = named(&spans, "trial");
    assert!(trial.parent_span_id.is_empty());
    for name in ["environment", "invoke_agent", "verifier", "capture"] {
        let span = named(&spans, name);
        assert_eq!((&span.trace_id, &span.parent_span_id), (&trial.trace_id, &trial.span_id), "{name}");
    }
    let attributes = texts(&trial.attributes);
    assert_eq!((attributes["rolltap.job"].as_str(), attributes["rolltap.reward"].as_str()), ("it", "1"));
    let page = read("docs/reference/spans.md");
    for pair in spans.iter().flat_map(|span| &span.attributes) {
        assert!(page.contains(&format!("`{}`", pair.key)), "{} is not in docs/reference/spans.md", pair.key);
    }
}

#[test]
fn traces_that_cannot_be_sent_are_refused_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    for (variable, value, part) in [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "secret", "name=value"),
        ("OTEL_TRACES_SAMPLER_ARG", "2", ""),
    ] {
        let args = ["proxy", "--upstream", "http://127.0.0.1:1", "--otlp-endpoint", "http://127.0.0.1:4318"];
        let mut command = rolltap(dir.path(), &args);
        command.env(variable, value).env("OTEL_TRACES_SAMPLER", "traceidratio");
        let (code, stderr) = Running::spawn(&mut command).wait(limit(20));
        assert_eq!(code, Some(2), "{variable}: {stderr}");
        assert!(stderr.contains(part) && !stderr.contains("secret"), "{stderr}");
    }
}

#[test]
fn errors_are_json_if_the_log_is() {
    let dir = tempfile::tempdir().unwrap();
    let ended = super::program::run(dir.path(), &["proxy", "--log-format", "json"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let error: Value = serde_json::from_str(&ended.stderr).unwrap();
    assert_eq!((error["level"].as_str(), error["target"].as_str()), (Some("ERROR"), Some("rolltap")));
    assert!(error["message"].as_str().unwrap().contains("--upstream"), "{error}");
}
