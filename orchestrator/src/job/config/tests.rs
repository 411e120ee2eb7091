//! Job files: the keys that are accepted, ignored and rejected, and the text of the errors.

use serde_json::json;

use super::*;
use crate::agents::{AgentSpec, TerminalOptions};
use crate::environment::{EnvironmentKind, MountKind};

fn read(text: &str) -> Result<JobFile, ConfigError> {
    yaml(text).and_then(JobFile::of)
}

fn error_of(text: &str) -> String {
    read(text).unwrap_err().to_string()
}

#[test]
fn a_job_file_of_harbors_is_read() {
    let file = read(
        "
job_name: nightly
jobs_dir: out
n_attempts: 8
n_concurrent_trials: 16
agent_timeout_multiplier: 2
retry:
  max_retries: 3
  include_exceptions: [RuntimeError]
environment:
  type: docker
  override_cpus: 1.5
  env: {MODE: fast}
verifier: {max_timeout_sec: 60}
metrics: [{type: max}]
agents:
  - {name: oracle}
  - name: terminal
    model_name: qwen3
    n_concurrent: 4
    override_timeout_sec: 100
    kwargs: {max_turns: 7}
datasets:
  - path: tasks
    task_names: ['add-*']
tasks:
  - {path: one, git_url: 'file:///r', git_commit_id: abc}
rolltap:
  upstream: ['http://h:8000']
  history: sampled
  n_concurrent_per_task: 2
",
    )
    .unwrap();
    let JobFile { job, own } = file;
    assert_eq!(job.job_name.as_deref(), Some("nightly"));
    assert_eq!((job.samples().get(), job.concurrency().get()), (8, 16));
    assert_eq!(job.retry.max_retries, 3);
    assert!(job.retry.exclude_exceptions.as_ref().unwrap().contains("AgentTimeoutError"), "Harbor's default");
    let agents = job.job_agents(&AgentDefaults::default()).unwrap();
    assert_eq!(agents[1].model.as_deref(), Some("qwen3"));
    assert_eq!(agents[1].timeouts.override_sec, Some(100.0));
    let options = TerminalOptions { max_turns: Some(7), ..TerminalOptions::default() };
    assert_eq!(agents[1].spec, AgentSpec::Terminal(Box::new(options)));
    let timeouts = job.timeouts(&own);
    assert_eq!((timeouts.agent.multiplier, timeouts.verifier.max_sec), (Some(2.0), Some(60.0)));
    assert_eq!(job.job_metrics(), [Metric::Max]);
    assert_eq!(job.environment_kind(&own).unwrap(), EnvironmentKind::Docker);
    assert_eq!(job.overrides().unwrap().cpus, Some(1.5));
    assert_eq!(own.upstream, ["http://h:8000"]);
}

#[test]
fn an_absent_key_has_harbors_default() {
    let JobFile { job, own } = read("tasks: [{path: t}]").unwrap();
    assert_eq!((job.samples().get(), job.concurrency().get()), (1, 4));
    assert_eq!(job.job_agents(&AgentDefaults::default()).unwrap()[0].spec.name(), "oracle");
    assert_eq!(job.job_metrics(), [Metric::Mean]);
    assert_eq!(job.environment_kind(&own).unwrap(), EnvironmentKind::Docker);
}

#[test]
fn a_trials_file_is_a_job_of_one() {
    let file = read("task: {path: t}\ntrial_name: it\ntrials_dir: out\nagent: {name: nop}").unwrap();
    assert_eq!(file.job.job_name.as_deref(), Some("it"));
    assert_eq!(file.job.tasks.len(), 1);
    assert_eq!(file.job.agents.unwrap()[0].name.as_deref(), Some("nop"));
    assert!(error_of("task: {path: t}\nagents: []").starts_with("agents: is a job's key"));
}

#[test]
fn old_keys_are_taken_as_the_new_ones() {
    let file = read(
        "
orchestrator: {type: local, n_concurrent_trials: 2, retry: {max_retries: 1}}
plugins: [x]
environment: {env: ['A=1', 'B = 2=3'], cpu_enforcement_policy: LIMIT, mounts_json: null}
tasks: [{path: t}]
",
    )
    .unwrap();
    assert_eq!(file.job.concurrency().get(), 2);
    assert_eq!(file.job.retry.max_retries, 1);
    assert_eq!(file.job.environment.env["B"], "2=3");
    let newer = read("orchestrator: {n_concurrent_trials: 2}\nn_concurrent_trials: 3").unwrap();
    assert_eq!(newer.job.concurrency().get(), 3, "the new key counts");
    assert!(error_of("acpx_config: x").starts_with("acpx_config: was removed"));
}

#[test]
fn what_cannot_be_honoured_is_named_with_its_value_all_at_once() {
    let text = "
install_only: true
agents: [{name: nop, load_trajectory: x}]
environment: {extra_docker_compose: [x], kwargs: {}, type: docker}
datasets: [{path: d, registry_url: 'https://h/r.json'}]
";
    assert_eq!(
        error_of(text),
        "rolltap cannot honour install_only = true (a trial runs to its end); \
         agents[0].load_trajectory = \"x\" (agents start without a past); \
         environment.extra_docker_compose = [\"x\"] (environments are single containers); \
         datasets[0].registry_url = \"https://h/r.json\" (datasets of Harbor Hub and registries at a URL are not \
         fetched: give path, repo or registry_path)"
    );
    let harmless =
        "{install_only: false, user_agent: null, debug: true, environment: {delete: true}, colour: red}";
    read(harmless).unwrap();
}

#[test]
fn mounts_have_the_form_of_compose_files() {
    let file =
        read("environment: {mounts: [{type: bind, source: /data, target: /in, read_only: true}]}").unwrap();
    let mounts = file.job.overrides().unwrap().mounts;
    let [mount] = mounts.as_slice() else { panic!("one mount: {mounts:?}") };
    assert_eq!((mount.kind, mount.source.as_str(), mount.read_only), (MountKind::Bind, "/data", true));
    assert_eq!(serde_json::to_value(mount).unwrap()["type"], "bind", "as in the file");
    for wrong in
        ["{type: image, source: x, target: /in}", "{type: bind, source: /x, target: /in, bind: {selinux: z}}"]
    {
        let told = error_of(&format!("environment: {{mounts: [{wrong}]}}"));
        assert!(told.starts_with("environment.mounts"), "{told}");
    }
}

#[test]
fn a_dataset_without_a_place_is_refused_by_its_name() {
    let error = error_of("datasets: [{name: terminal-bench, version: '2.0'}]");
    assert!(
        error.starts_with("datasets[0]: the dataset \"terminal-bench\" is looked up in no registry"),
        "{error}"
    );
    read("datasets: [{name: bench, registry_path: r.json}, {repo: org/tasks, path: d}]").unwrap();
}

#[test]
fn wrong_values_are_reported_with_their_places() {
    for (text, expected) in [
        ("n_attempts: 0", "n_attempts: "),
        ("agents: [{name: [x]}]", "agents[0].name: "),
        ("retry: {max_retries: -1}", "retry.max_retries: "),
        ("retry: {min_wait_sec: .inf}", "cannot be parsed: "),
        ("metrics: [{type: uv-script}]", "metrics[0].type: "),
        ("tasks: [{git_url: u}]", "tasks[0]: "),
        ("tasks: [{path: p, git_commit_id: u}]", "tasks[0].git_commit_id: "),
        ("agents: [{n_concurrent: 9}]", "agents[0].n_concurrent: 9 is more than n_concurrent_trials, 4"),
        ("agents: [{concurrency_group: g}]", "agents[0].concurrency_group: needs n_concurrent"),
        ("[1]", "expected keys with values"),
        ("a: [", "cannot be parsed: "),
        ("rolltap: {upstreams: [x]}", "unknown key rolltap.upstreams (did you mean \"upstream\"?)"),
        ("rolltap: {history: never}", "rolltap.history: "),
        ("rolltap: {reward: 'a,b'}", "rolltap.reward: expected the name of a reward"),
    ] {
        let told = error_of(text);
        assert!(told.starts_with(expected), "{text}: {told}");
    }
}

#[test]
fn agents_of_a_group_share_one_limit() {
    let group = |second: u32| {
        format!(
            "agents: [{{name: nop, n_concurrent: 2, concurrency_group: g}}, \
             {{name: oracle, n_concurrent: {second}, concurrency_group: g}}]"
        )
    };
    read(&group(2)).unwrap();
    assert!(error_of(&group(3)).contains("agents of concurrency_group \"g\" must have the same"));
}

#[test]
fn every_key_of_our_own_is_one() {
    let section = json!({
        "upstream": [], "upstream_api_key": "k", "proxy": "http://h", "proxy_token_file": "t", "history": "off",
        "proxy_ca": ["a"], "proxy_client_cert": "c", "proxy_client_key": "k",
        "sampling": {}, "tokenizer": "d", "chat_template": "f", "default_chat_template_kwargs": {},
        "chat_template_content_format": "auto", "exclude_tools_when_tool_choice_none": true,
        "environment": "local", "n_concurrent_per_task": 1, "auto_concurrency": true, "max_empty_trials": 0,
        "trial_deadline_sec": 60.0, "listen": "0.0.0.0:7070", "public_url": "https://h",
        "upstream_ca": ["a"], "upstream_client_cert": "c", "upstream_client_key": "k", "upstream_http_proxy": "http://p",
        "session_header": ["x-session-id"], "tls_cert": "c", "tls_key": "k",
        "preflight": false, "reward": "mean", "task_rewards": {"a-*": "b=1"}, "skip_invalid": true,
        "kill_agent_processes": true, "messages": true,
    });
    assert_eq!(section.as_object().unwrap().len(), own::KEYS.len());
    let mut untyped = Vec::new();
    let _: OwnConfig =
        serde_ignored::deserialize(section.clone(), |path| untyped.push(path.to_string())).unwrap();
    assert!(untyped.is_empty(), "{untyped:?}");
    OwnConfig::of(section).unwrap();
}

#[test]
fn the_example_is_a_job() {
    let file = read(include_str!("../../../../configs/job.yaml")).unwrap();
    assert_eq!(file.job.job_agents(&AgentDefaults::default()).unwrap().len(), 2);
}

proptest::proptest! {
    #[test]
    fn any_text_is_a_job_or_an_error(text: String) {
        let _ = read(&text);
    }

    #[test]
    fn any_values_of_known_keys_are_a_job_or_an_error(
        key in "(agents|datasets|tasks|environment|verifier|retry|metrics|orchestrator|task|rolltap|n_attempts)",
        value in "[\\[\\]{}:, a-z0-9'\"*&!|>-]{0,40}",
    ) {
        let _ = read(&format!("{key}: {value}"));
    }
}

#[test]
fn fuzz_job_file() {
    rolltap_testing::fuzz!("job_file", |text| {
        let Ok(text) = std::str::from_utf8(text) else { return };
        drop(read(text).map_err(|error| error.to_string()));
    });
}
