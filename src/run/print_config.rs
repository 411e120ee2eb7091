//! `rolltap run --print-config`

use rolltap_orchestrator::job::config::JobFile;
use serde_json::Value;

use super::Arguments;
use crate::terminal;

/// Prints the file with the flags merged into it, and notes the flags that no job file can have.
pub(super) fn print_config(mut file: JobFile, arguments: &Arguments) {
    merge_agents(&mut file, arguments);
    merge_own(&mut file, arguments);
    let has_key = file.own.upstream_api_key.is_some() || arguments.upstream_api_key.is_some();
    let value = file.to_value();
    terminal::say(format_args!("{value:#}"));
    if has_key {
        terminal::note("note: the API key of the upstreams is not printed: set ROLLTAP_UPSTREAM_API_KEY");
    }
    if file.own.upstream_http_proxy.is_some() && value.pointer("/rolltap/upstream_http_proxy").is_none() {
        terminal::note(
            "note: the URL of the HTTP proxy has a password and is not printed: set ROLLTAP_UPSTREAM_HTTP_PROXY",
        );
    }
    let left_out = left_out(arguments);
    if !left_out.is_empty() {
        terminal::note(format_args!(
            "note: a job file has no key for {}: give them again",
            left_out.join(", ")
        ));
    }
}

/// Options of agents hold for agents whose entry in the file does not set them.
fn merge_agents(file: &mut JobFile, arguments: &Arguments) {
    for agent in file.job.agents.iter_mut().flatten() {
        let name = agent.name.as_deref().unwrap_or("oracle");
        let mut kwargs = Vec::new();
        if name == "command" {
            kwargs.extend(
                arguments.agent_command.clone().map(|command| ("command".to_owned(), Value::from(command))),
            );
        }
        if name == "terminal" {
            kwargs.extend(arguments.max_turns.map(|turns| ("max_turns".to_owned(), Value::from(turns))));
        }
        kwargs.extend(arguments.agent_kwarg.iter().cloned());
        for (key, value) in kwargs {
            // As in a job, `null` is an argument that is not set.
            let given = agent.kwargs.entry(key).or_insert(Value::Null);
            if given.is_null() {
                *given = value;
            }
        }
        for (name, value) in &arguments.agent_env {
            agent.env.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
}

/// The other settings of the section `rolltap` are merged before.
fn merge_own(file: &mut JobFile, arguments: &Arguments) {
    let JobFile { job, own } = file;
    job.quiet |= arguments.quiet;
    if !arguments.upstream.is_empty() {
        own.upstream = arguments.upstream.iter().map(ToString::to_string).collect();
    }
    if arguments.no_preflight {
        own.preflight = Some(false);
    }
    let prompts = arguments.prompts.clone();
    own.history = prompts.history;
    own.tokenizer = prompts.tokenizer;
    own.chat_template = prompts.chat_template;
    own.default_chat_template_kwargs = prompts.default_chat_template_kwargs;
    own.chat_template_content_format = prompts.chat_template_content_format;
    own.exclude_tools_when_tool_choice_none = prompts.exclude_tools_when_tool_choice_none;
    let connections = arguments.upstream_connections.clone();
    own.upstream_ca = connections.upstream_ca;
    own.upstream_client_cert = connections.upstream_client_cert;
    own.upstream_client_key = connections.upstream_client_key;
    own.upstream_http_proxy = connections.upstream_http_proxy;
    own.session_header = connections.session_header;
    own.tls_cert.clone_from(&arguments.plane_tls.tls_cert);
    own.tls_key.clone_from(&arguments.plane_tls.tls_key);
}

fn left_out(arguments: &Arguments) -> Vec<&'static str> {
    let given = [
        ("--json", arguments.json),
        ("--env-file", arguments.env_file.is_some()),
        ("--harbor-env", arguments.harbor_env.is_some()),
        ("--harbor-env-kwarg", !arguments.harbor_env_kwarg.is_empty()),
        ("--harbor-python", arguments.harbor_python.is_some()),
        ("--otlp-endpoint", arguments.traces.otlp_endpoint.is_some()),
        ("--cluster and --cluster-objects", arguments.cluster.is_given()),
    ];
    given.into_iter().filter(|(_, is_given)| *is_given).map(|(flag, _)| flag).collect()
}
