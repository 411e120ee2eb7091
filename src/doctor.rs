//! `rolltap doctor`

use std::time::Duration;

use clap::Args;
use clap::builder::RangedU64ValueParser;
use rolltap_orchestrator::doctor::{self, DoctorSettings, Verdict};
use rolltap_proxy::Address;

use crate::connection_options::UpstreamConnectionOptions;
use crate::prompt_options::PromptOptions;
use crate::{Outcome, terminal};

/// Examine a vLLM server as agents will use it, and name what to change
///
/// The command asks the server for its models, version and endpoints. Then it makes calls as agents do: each dialect,
/// whole and streamed, two turns, tools, several answers, a long prompt. It prints a line per check: ok, degraded (jobs
/// run, and something works worse than it could) or broken (not everything can be trained). A remedy follows each line
/// that is not ok.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Examine the vLLM server, or the router in front of it, at this URL, with or without /v1.
    #[arg(long, env = "ROLLTAP_UPSTREAM", value_name = "URL")]
    upstream: Address,
    /// Send this API key to the server (vLLM's --api-key).
    #[arg(long, env = "ROLLTAP_UPSTREAM_API_KEY", value_name = "KEY", hide_env_values = true)]
    upstream_api_key: Option<String>,
    /// Make the calls to this model. [default: the first that the server lists]
    #[arg(short, long, env = "ROLLTAP_MODEL", value_name = "MODEL")]
    model: Option<String>,
    /// Print the findings as JSON.
    #[arg(long)]
    json: bool,
    /// Give up a call after this many seconds without a byte.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = RangedU64ValueParser::<u64>::new().range(1..))]
    timeout: u64,
    #[command(flatten)]
    connections: UpstreamConnectionOptions,
    #[command(flatten)]
    prompts: PromptOptions,
}

const AFTER_HELP: &str = "\
Examples:
  rolltap doctor --upstream http://127.0.0.1:8000
  rolltap doctor --upstream https://gateway.example/llm --upstream-ca ca.pem --model qwen3
  rolltap doctor --upstream http://127.0.0.1:8000 --json | jq '.findings[] | select(.verdict != \"ok\")'

Exit codes: 0 nothing is broken; 1 something is broken; 2 the examination cannot be made.";

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    let address = match &arguments.upstream_api_key {
        Some(key) => arguments.upstream.with_api_key(key)?,
        None => arguments.upstream,
    };
    let history = arguments.prompts.history.unwrap_or_default();
    let settings = DoctorSettings {
        address,
        http_proxy: arguments.connections.http_proxy()?,
        session_headers: arguments.connections.session_headers()?,
        tls: arguments.connections.files()?,
        model: arguments.model,
        render: arguments.prompts.render_settings()?,
        history,
        timeout: Duration::from_secs(arguments.timeout),
    };
    let report = doctor::examine(settings, |part| terminal::note(format!("examining: {part}"))).await?;
    if arguments.json {
        terminal::say(serde_json::to_string_pretty(&report)?);
    } else {
        terminal::say(&report);
    }
    Ok(if report.worst() == Verdict::Broken { Outcome::Failed } else { Outcome::Done })
}
