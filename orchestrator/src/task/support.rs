//! What of Harbor's format rolltap cannot honour yet. Told before the first trial, never found out by a wrong reward.

use std::path::Path;

use super::config::{NetworkMode, TaskConfig, VerifierEnvironmentMode};

/// Files that change what a task means.
const FILES: [(&str, &str); 4] = [
    ("environment/docker-compose.yaml", "several containers"),
    ("environment/docker-compose.yml", "several containers"),
    ("trajectory.json", "prior context for the agent"),
    (".harborignore", "leaving files out of tests and solution"),
];

/// One entry per field or file that would have to be ignored, with its value.
pub(super) fn unsupported(config: &TaskConfig, dir: &Path) -> Vec<String> {
    let TaskConfig { agent, verifier, environment, .. } = config;
    let mut found = Vec::new();
    let mut refuse = |present: bool, what: &str| {
        if present {
            found.push(what.to_owned());
        }
    };
    for (file, meaning) in FILES {
        refuse(dir.join(file).exists(), &format!("{file} ({meaning})"));
    }
    refuse(!config.steps.is_empty(), "[[steps]]");
    refuse(!config.artifacts.is_empty(), "artifacts (files in /logs/artifacts are kept without it)");
    refuse(!environment.os.eq_ignore_ascii_case("linux"), &format!("environment.os = {:?}", environment.os));
    refuse(environment.gpus.is_some_and(|gpus| gpus > 0), "environment.gpus");
    refuse(environment.tpu.is_some(), "environment.tpu");
    refuse(environment.skills_dir.is_some(), "environment.skills_dir");
    refuse(environment.healthcheck.is_some(), "[environment.healthcheck]");
    refuse(!environment.mcp_servers.is_empty(), "[[environment.mcp_servers]]");
    refuse(!verifier.collect.is_empty(), "[[verifier.collect]]");
    let separate = verifier.environment_mode == Some(VerifierEnvironmentMode::Separate);
    refuse(separate, "verifier.environment_mode = \"separate\"");
    refuse(verifier.environment.is_some(), "[verifier.environment]");
    let old = environment.network_mode.is_none() && environment.allow_internet == Some(false);
    refuse(old, "environment.allow_internet = false (the network can only be public)");
    for (section, mode, hosts) in [
        ("environment", environment.network_mode, &environment.allowed_hosts),
        ("agent", agent.network_mode, &agent.allowed_hosts),
        ("verifier", verifier.network_mode, &verifier.allowed_hosts),
    ] {
        let mode = mode.unwrap_or(NetworkMode::Public);
        refuse(mode != NetworkMode::Public, &format!("{section}.network_mode other than \"public\""));
        refuse(hosts.is_some() && mode == NetworkMode::Public, &format!("{section}.allowed_hosts"));
    }
    found
}
