//! The configuration of a job as Harbor's `JobConfig` and `TrialConfig`. A job's `config.json` is a valid job file that
//! makes the same job.

use jiff::Timestamp;
use rolltap_proxy::{ContentFormat, RenderSettings};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::common::secret_env::without_secrets;
use crate::environment::EnvironmentKind;
use crate::failure::TimeoutPolicy;
use crate::job::{JobSettings, ProxyChoice};
use crate::trial::TrialPlan;
use crate::trial::records::{JsonFields, VERSION, object, said, trial_version};

/// Returns the keys that a job and each of its trials share.
pub(super) fn shared(settings: &JobSettings) -> JsonFields {
    let TimeoutPolicy { multiplier, agent, agent_setup, verifier, environment_build, .. } = settings.timeouts;
    let mut fields = JsonFields::new();
    let mut say = |key: &str, value: Value| {
        if !value.is_null() {
            fields.insert(key.to_owned(), value);
        }
    };
    say("timeout_multiplier", json!(multiplier));
    say("agent_timeout_multiplier", json!(agent.multiplier));
    say("agent_setup_timeout_multiplier", json!(agent_setup.multiplier));
    say("verifier_timeout_multiplier", json!(verifier.multiplier));
    say("environment_build_timeout_multiplier", json!(environment_build.multiplier));
    say("environment", environment(settings));
    say(
        "verifier",
        object([
            ("override_timeout_sec", json!(verifier.override_sec)),
            ("max_timeout_sec", json!(verifier.max_sec)),
            ("env", json!(without_secrets(&settings.overrides.verifier_env))),
            ("disable", json!(settings.overrides.without_verifier)),
        ]),
    );
    let artifacts = &settings.overrides.artifacts;
    say("artifacts", if artifacts.is_empty() { Value::Null } else { json!(artifacts) });
    let instructions = &settings.overrides.instructions;
    say("extra_instructions", if instructions.is_empty() { Value::Null } else { json!(instructions) });
    fields
}

/// Returns the `EnvironmentConfig`. Harbor refuses an unknown `type`, such as `local`, so rolltap's kinds are in
/// `import_path`, where third parties name their environments.
fn environment(settings: &JobSettings) -> Value {
    let overrides = &settings.overrides;
    let (name, path) = match settings.environment {
        EnvironmentKind::Docker => (Some("docker"), None),
        other => (None, Some(format!("rolltap:{other}"))),
    };
    object([
        ("type", json!(name)),
        ("import_path", json!(path)),
        ("force_build", json!(settings.force_build.then_some(true))),
        ("override_cpus", json!(overrides.cpus)),
        ("override_memory_mb", json!(overrides.memory_mb)),
        ("override_storage_mb", json!(overrides.storage_mb)),
        ("delete", json!(overrides.keep.then_some(false))),
        ("mounts", json!(Some(&overrides.mounts).filter(|mounts| !mounts.is_empty()))),
        ("env", json!(without_secrets(&overrides.env))),
    ])
}

/// Returns the `rolltap` section.
pub(super) fn own(job_id: Uuid, settings: &JobSettings) -> Value {
    let mut own = said([
        ("version", json!(VERSION)),
        ("job_id", json!(job_id)),
        ("history", json!(settings.history)),
        ("sampling", json!(settings.sampling)),
        ("n_concurrent_per_task", json!(settings.per_task)),
        ("auto_concurrency", json!(settings.auto_concurrency.then_some(true))),
        ("reward", json!(settings.reward_rules.all)),
        ("task_rewards", json!(settings.reward_rules.of_tasks)),
        ("trial_deadline_sec", json!(settings.timeouts.trial_deadline_sec)),
        ("kill_agent_processes", json!(settings.overrides.kill_agent_processes.then_some(true))),
        ("messages", json!(settings.messages.then_some(true))),
    ]);
    own.extend(match &settings.proxy {
        ProxyChoice::Embedded { upstreams, public } => {
            let addresses: Vec<String> = upstreams.addresses.iter().map(ToString::to_string).collect();
            let mut fields = said([
                ("upstream", json!(addresses)),
                ("listen", json!(public.as_ref().map(|public| public.listen))),
                ("public_url", json!(public.as_ref().map(|public| public.url.to_string()))),
            ]);
            fields.extend(render(&upstreams.render));
            fields
        }
        // The token is a secret and is left out.
        ProxyChoice::External { admin_url, .. } => said([("proxy", json!(admin_url))]),
    });
    Value::Object(own)
}

fn render(settings: &RenderSettings) -> JsonFields {
    let RenderSettings { tokenizer, chat_template, chat_template_kwargs, content_format, .. } = settings;
    let format = content_format.map(|format| match format {
        ContentFormat::String => "string",
        ContentFormat::OpenAi => "openai",
    });
    said([
        ("tokenizer", json!(tokenizer)),
        ("chat_template", json!(chat_template)),
        ("default_chat_template_kwargs", json!(chat_template_kwargs)),
        ("chat_template_content_format", json!(format)),
    ])
}

/// Harbor's `JobLock`: the version of each task of the job's trials.
#[derive(Serialize)]
pub(crate) struct JobVersions {
    schema_version: u32,
    created_at: Timestamp,
    harbor: JsonFields,
    n_concurrent_trials: Option<Value>,
    retry: Option<Value>,
    trials: TrialVersions,
}

/// A `TrialLock` for each trial. Trials of one group have equal entries, so each entry is stored once with its count.
struct TrialVersions(Vec<(Value, u32)>);

impl Serialize for TrialVersions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer
            .collect_seq(self.0.iter().flat_map(|(version, samples)| (0..*samples).map(move |_| version)))
    }
}

/// Returns the `JobLock`. Each group is represented by its first trial.
pub(super) fn versions(settings: &JsonFields, job: &Value, groups: &[TrialPlan]) -> JobVersions {
    JobVersions {
        // The version of Harbor's `JobLock` that this layout follows.
        schema_version: 3,
        created_at: Timestamp::now(),
        harbor: JsonFields::new(),
        n_concurrent_trials: job.get("n_concurrent_trials").cloned(),
        retry: job.get("retry").cloned(),
        trials: TrialVersions(
            groups.iter().map(|plan| (trial_version(settings, plan), plan.group_size)).collect(),
        ),
    }
}
