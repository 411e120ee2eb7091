//! The alerts and the dashboard in `deploy`, by Prometheus's own tool.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn promtool(dir: &Path, args: &[&str]) {
    let program = std::env::var("ROLLTAP_TESTBED_PROMTOOL").unwrap();
    let output = Command::new(program).args(args).current_dir(dir).output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "promtool {args:?}: {said}");
}

/// Returns the queries of the panels.
fn queries(dashboard: &Value) -> Vec<&str> {
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    targets.map(|target| target["expr"].as_str().unwrap()).collect()
}

#[test]
#[ignore = "needs promtool: run scripts/test"]
fn each_alert_fires_when_it_should_and_each_query_is_valid() {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
    promtool(&deploy.join("prometheus"), &["check", "rules", "alerts.yml"]);
    promtool(&deploy.join("prometheus"), &["test", "rules", "alerts.test.yml"]);

    // promtool checks rules and no dashboards, so each query becomes a rule. Grafana's variables become values.
    let dashboard: Value =
        serde_json::from_str(&fs::read_to_string(deploy.join("grafana/rolltap.json")).unwrap()).unwrap();
    let queries = queries(&dashboard);
    assert!(queries.len() > 20, "{queries:?}");
    let rules: Vec<_> = queries
        .iter()
        .enumerate()
        .map(|(number, query)| {
            let query =
                query.replace("$__rate_interval", "1m").replace("$job", "j").replace("$instance", "i");
            serde_json::json!({"record": format!("query_{number}"), "expr": query})
        })
        .collect();
    let groups = serde_json::json!({"groups": [{"name": "dashboard", "rules": rules}]});
    let dir = tempfile::tempdir().unwrap();
    // JSON is YAML.
    fs::write(dir.path().join("rules.yml"), groups.to_string()).unwrap();
    promtool(dir.path(), &["check", "rules", "rules.yml"]);
}
