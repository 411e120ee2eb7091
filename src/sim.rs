//! `rolltap sim`

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use rolltap_sim as sim;

use crate::Outcome;
use crate::terminal::{self, StopSignals};

/// A vLLM-shaped server for trying things without a GPU
///
/// Answers the way vLLM does (chat completions, streaming, token ids, logprobs, errors), with random text or from a
/// script of conversations. No model is involved.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Address to listen on; port 0 takes a free one.
    #[arg(long, env = "ROLLTAP_SIM_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:8000")]
    listen: SocketAddr,
    /// Conversations to play back, in TOML; see configs/sim-script.toml. Without: random text.
    #[arg(long, env = "ROLLTAP_SIM_SCRIPT", value_name = "FILE")]
    script: Option<PathBuf>,
    /// Name of the served model.
    #[arg(long, env = "ROLLTAP_SIM_MODEL", value_name = "NAME", default_value = "sim")]
    model: String,
    /// Start of the random numbers: the same requests in the same order get the same answers.
    #[arg(long, env = "ROLLTAP_SIM_SEED", value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
    /// Tokens of prompt and answer together; longer prompts are refused as vLLM refuses them.
    #[arg(long, env = "ROLLTAP_SIM_MAX_MODEL_LEN", value_name = "TOKENS", default_value_t = 32768)]
    max_model_len: u32,
    /// Time between two tokens of an answer, in milliseconds.
    #[arg(long, env = "ROLLTAP_SIM_TOKEN_DELAY_MS", value_name = "MS", default_value_t = 0)]
    token_delay_ms: u64,
}

const AFTER_HELP: &str = "\
Examples:
  rolltap sim
  rolltap sim --listen 127.0.0.1:0 --script configs/sim-script.toml --token-delay-ms 20
  curl -s http://127.0.0.1:8000/v1/chat/completions -H 'content-type: application/json' \\
    -d '{\"model\": \"sim\", \"messages\": [{\"role\": \"user\", \"content\": \"hello\"}], \"max_tokens\": 16}'

Stops on Ctrl-C or SIGTERM.";

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    let mut stop = StopSignals::listen()?;
    let script = arguments.script.map(read_script).transpose()?;
    let server = sim::start(sim::Settings {
        listen: arguments.listen,
        model: arguments.model,
        script,
        seed: arguments.seed,
        max_model_len: arguments.max_model_len,
        token_delay: Duration::from_millis(arguments.token_delay_ms),
    })
    .await?;
    terminal::say(format_args!("sim listens on http://{}", server.addr()));
    stop.next().await;
    server.shutdown().await;
    Ok(Outcome::Done)
}

fn read_script(path: PathBuf) -> anyhow::Result<sim::Script> {
    let text =
        std::fs::read_to_string(&path).with_context(|| format!("cannot read script {}", path.display()))?;
    Ok(sim::Script::from_toml(&text, &path.display().to_string())?)
}
