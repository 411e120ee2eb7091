//! The manifests in `deploy/kubernetes`: the schemas of Kubernetes, the commands of their containers, and their Secrets.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::program::{both_outputs, rolltap, text};

/// Prints the documents of YAML files as a JSON array.
const DOCUMENTS: &str = "
import json, sys, yaml
print(json.dumps([document for path in sys.argv[1:] for document in yaml.safe_load_all(open(path))]))
";

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn manifests() -> Vec<PathBuf> {
    let folder = repository().join("deploy/kubernetes");
    let files = [&folder, &folder.join("cluster")].map(|folder| folder.read_dir().unwrap());
    let mut files: Vec<_> = files.into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    assert!(files.len() > 5, "{files:?}");
    files
}

fn tool(name: &str) -> Command {
    Command::new(Path::new(&std::env::var("ROLLTAP_TESTBED_KUBERNETES").unwrap()).join(name))
}

fn documents() -> Vec<Value> {
    let output = tool("python").args(["-c", DOCUMENTS]).args(manifests()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The templates of the pods, with their names.
fn pods(documents: &[Value]) -> Vec<(&str, &Value)> {
    let templates = documents.iter().filter(|document| document["spec"]["template"].is_object());
    templates
        .map(|document| (document["metadata"]["name"].as_str().unwrap(), &document["spec"]["template"]))
        .collect()
}

fn list(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[test]
#[ignore = "needs the schemas of Kubernetes: run ./scripts/test"]
fn each_manifest_fits_the_schemas_of_kubernetes() {
    let output = tool("kubernetes-validate").arg("--strict").args(manifests()).output().unwrap();
    assert!(output.status.success(), "{}", both_outputs(&output));
}

#[test]
#[ignore = "needs the schemas of Kubernetes: run ./scripts/test"]
fn each_container_has_a_command_and_variables_that_rolltap_takes_and_no_privilege() {
    let variables = std::fs::read_to_string(repository().join("docs/reference/environment.md")).unwrap();
    let documents = documents();
    let mut checked = 0;
    for (name, template) in pods(&documents) {
        let pod = &template["spec"];
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{name}");
        assert_eq!(pod["automountServiceAccountToken"], false, "{name}");
        for container in pod["containers"].as_array().unwrap() {
            let security = &container["securityContext"];
            assert_eq!(security["readOnlyRootFilesystem"], true, "{name}");
            assert_eq!(security["allowPrivilegeEscalation"], false, "{name}");
            assert_eq!(list(&security["capabilities"]["drop"]), ["ALL"], "{name}");
            if !container["image"].as_str().unwrap().starts_with("rolltap") {
                continue;
            }
            checked += 1;
            // A wrong flag is an error before the help is printed.
            let output = rolltap(&[&list(&container["args"])[..], &["--help"]].concat());
            assert!(output.status.success(), "{name}: {}", both_outputs(&output));
            for variable in container["env"].as_array().unwrap() {
                let variable = variable["name"].as_str().unwrap();
                let is_known =
                    !variable.starts_with("ROLLTAP_") || variables.contains(&format!("| `{variable}` |"));
                assert!(is_known, "{name}: {variable}");
            }
        }
    }
    assert_eq!(checked, 2);
}

#[test]
#[ignore = "needs the schemas of Kubernetes: run ./scripts/test"]
fn manifests_refer_to_secrets_and_contain_none() {
    let documents = documents();
    assert!(documents.iter().all(|document| document["kind"] != "Secret"));
    let guide = std::fs::read_to_string(repository().join("docs/how-to/deploy-a-cluster.md")).unwrap();
    let mut secrets = BTreeSet::new();
    for (_, template) in pods(&documents) {
        let pod = &template["spec"];
        for volume in pod["volumes"].as_array().into_iter().flatten() {
            secrets.extend(volume["secret"]["secretName"].as_str());
        }
        for container in pod["containers"].as_array().unwrap() {
            for variable in container["env"].as_array().unwrap() {
                secrets.extend(variable["valueFrom"]["secretKeyRef"]["name"].as_str());
            }
            for source in container["envFrom"].as_array().into_iter().flatten() {
                secrets.extend(source["secretRef"]["name"].as_str());
            }
        }
    }
    assert_eq!(secrets.len(), 5, "{secrets:?}");
    for secret in secrets {
        assert!(guide.contains(&format!("secret generic {secret} ")), "the guide does not make {secret}");
    }
}

#[test]
#[ignore = "needs the schemas of Kubernetes: run ./scripts/test"]
fn nats_admits_three_roles_and_agents_reach_one_port() {
    let documents = documents();
    let policies: Vec<_> = documents.iter().filter(|document| document["kind"] == "NetworkPolicy").collect();
    let policy = |name: &str| {
        let mut found = policies.iter().filter(|policy| policy["metadata"]["name"] == name);
        &found.next().unwrap()["spec"]
    };
    let admitted = |policy: &Value, port: u16| {
        let rules = policy["ingress"].as_array().unwrap().iter();
        let rule = rules.filter(|rule| rule["ports"][0]["port"] == port).collect::<Vec<_>>();
        let [rule] = rule[..] else { panic!("{policy}") };
        let values = &rule["from"][0]["podSelector"]["matchExpressions"][0]["values"];
        list(values).into_iter().map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let roles = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(admitted(policy("rolltap-nats"), 4222), roles(&["node", "worker", "coordinator"]));
    let admin = admitted(policy("rolltap-nodes"), 7071);
    assert_eq!(admin, roles(&["node", "worker", "coordinator", "trainer"]));
    let egress = policy("rolltap-agents")["egress"].as_array().unwrap();
    let ports: Vec<_> = egress
        .iter()
        .flat_map(|rule| rule["ports"].as_array().unwrap())
        .map(|port| port["port"].as_u64().unwrap())
        .collect();
    assert_eq!(ports, [7070, 53, 53]);
}
