//! Makes Harbor's `TrialConfig` from a trial's plan.

use std::path::Path;

use rolltap_proxy::api::TrialOpened;
use serde_json::{Map, Value, json};

use super::HarborJob;
use super::protocol::ApiFormat;
use crate::agents::AgentSpec;
use crate::failure::PhaseLimit;
use crate::job_dir::JobDir;
use crate::trial::TrialPlan;

/// The environment variable of the agent that holds the trial's key. Harbor redacts its value in all files that it
/// writes.
const KEY_NAME: &str = "ROLLTAP_TRIAL_KEY";

/// Returns Harbor's `AgentConfig`, without the values that belong to a trial.
pub(super) fn agent(agent: &AgentSpec, model: Option<&str>) -> Value {
    let mut config = json!({"name": agent.name(), "model_name": model, "kwargs": {}, "env": {}});
    if let (AgentSpec::Harbor(agent), Value::Object(config)) = (agent, &mut config) {
        config.insert("kwargs".to_owned(), json!(agent.kwargs));
        config.insert("env".to_owned(), json!(agent.env));
    }
    config
}

/// Returns Harbor's `EnvironmentConfig`.
pub(super) fn environment(job: &HarborJob<'_>, overlay: Option<&Path>) -> Value {
    let HarborJob { settings, overrides, .. } = job;
    let kind = &settings.environment_type;
    // A custom environment is named by its import path, as agents are.
    let kind = if kind.contains(':') { ("import_path", kind) } else { ("type", kind) };
    json!({
        kind.0: kind.1,
        "kwargs": settings.environment_kwargs,
        "force_build": job.force_build,
        "delete": !overrides.keep,
        "override_cpus": overrides.cpus,
        "override_memory_mb": overrides.memory_mb,
        "override_storage_mb": overrides.storage_mb,
        "env": job.env,
        "mounts": Some(&overrides.mounts).filter(|mounts| !mounts.is_empty()),
        "extra_docker_compose": overlay.into_iter().collect::<Vec<_>>(),
    })
}

/// The values of a trial's `TrialConfig` that do not derive from its plan.
pub(super) struct Surroundings<'a> {
    pub(super) dir: &'a JobDir,
    pub(super) environment: &'a Value,
    pub(super) opened: &'a TrialOpened,
    pub(super) api_format: Option<ApiFormat>,
}

/// Returns Harbor's `TrialConfig`.
pub(super) fn trial(plan: &TrialPlan, around: &Surroundings<'_>) -> Value {
    let timeouts = &plan.timeouts;
    let mut config = json!({
        "task": {"path": plan.task.dir},
        "trial_name": plan.name,
        "trials_dir": around.dir.path(),
        "timeout_multiplier": timeouts.multiplier,
        "agent_timeout_multiplier": timeouts.agent.multiplier,
        "verifier_timeout_multiplier": timeouts.verifier.multiplier,
        "agent_setup_timeout_multiplier": timeouts.agent_setup.multiplier,
        "environment_build_timeout_multiplier": timeouts.environment_build.multiplier,
        "agent": agent(&plan.agent.spec, plan.agent.model.as_deref()),
        "environment": around.environment,
        "verifier": {
            "disable": plan.extras.without_verifier,
            "env": plan.extras.verifier_env,
        },
        "artifacts": plan.extras.artifacts,
        "extra_instructions": plan.extras.instructions,
    });
    let skills: Vec<_> = plan.extras.skills.iter().map(|skill| &skill.dir).collect();
    set(&mut config, "agent", "skills", json!(skills));
    set(&mut config, "agent", "mcp_servers", json!(plan.extras.mcp_servers));
    limits(&mut config, "agent", timeouts.agent);
    limits(&mut config, "verifier", timeouts.verifier);
    set(&mut config, "agent", "override_setup_timeout_sec", json!(timeouts.agent_setup.override_sec));
    if let Some(format) = around.api_format {
        connect(&mut config, around.opened, format);
    }
    config
}

fn limits(config: &mut Value, section: &str, limit: PhaseLimit) {
    set(config, section, "override_timeout_sec", json!(limit.override_sec));
    set(config, section, "max_timeout_sec", json!(limit.max_sec));
}

/// Sets the base URL of the agent's model for its API format. The model keeps the upstream's name.
fn connect(config: &mut Value, opened: &TrialOpened, format: ApiFormat) {
    let urls = &opened.base_urls;
    let base_url = match format {
        ApiFormat::OpenaiChatCompletions | ApiFormat::OpenaiResponses => &urls.openai,
        ApiFormat::AnthropicMessages => &urls.anthropic,
        ApiFormat::GoogleGenerateContent => &urls.gemini,
    };
    set(config, "agent", "base_url", json!(base_url));
    set(config, "agent", "model_api_format", json!(format));
    // Harbor would otherwise take the part before a `/` for a provider.
    set(config, "agent", "skip_model_parsing", json!(true));
    set(config, "agent", "model_api_key_name", json!(KEY_NAME));
    if let Some(Value::Object(env)) = config.get_mut("agent").and_then(|agent| agent.get_mut("env")) {
        env.insert(KEY_NAME.to_owned(), json!(opened.key));
    }
}

fn set(config: &mut Value, section: &str, key: &str, value: Value) {
    if let Some(Value::Object(section)) = config.get_mut(section) {
        section.insert(key.to_owned(), value);
    }
}

/// Adds the `rolltap` key to a record that Harbor wrote. Harbor's own readers ignore this key.
///
/// # Errors
/// Fails if the record does not exist or cannot be written.
pub(crate) fn add_to_record(path: &Path, own: Value) -> std::io::Result<()> {
    let mut record: Map<String, Value> = serde_json::from_slice(&std::fs::read(path)?)?;
    record.insert("rolltap".to_owned(), own);
    crate::job_dir::write_json(path, &record)
}
