//! `rolltap sim`

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use rolltap_sim as sim;

use crate::Outcome;
use crate::option_values::one_or_more;
use crate::terminal::{self, StopSignals};

/// Simulate a vLLM server, for experiments without a GPU
///
/// The server answers in the formats of vLLM: chat completions, streams, token ids, logprobs and errors. It has no
/// model. The text is random or comes from a script of conversations.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Listen at this address; port 0 takes a free port.
    #[arg(long, env = "ROLLTAP_SIM_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:8000")]
    listen: SocketAddr,
    /// Answer with the conversations of this TOML file (see configs/sim-script.toml). [default: random text]
    #[arg(long, env = "ROLLTAP_SIM_SCRIPT", value_name = "FILE")]
    script: Option<PathBuf>,
    /// Serve a model of this name.
    #[arg(long, env = "ROLLTAP_SIM_MODEL", value_name = "NAME", default_value = "sim")]
    model: String,
    /// Seed the random numbers. The same requests in the same order get the same answers.
    #[arg(long, env = "ROLLTAP_SIM_SEED", value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
    /// Limit prompt and answer together to this many tokens. A longer prompt gets the error of vLLM.
    #[arg(long, env = "ROLLTAP_SIM_MAX_MODEL_LEN", value_name = "TOKENS", default_value_t = 32768)]
    max_model_len: u32,
    /// Wait this many milliseconds between two tokens of an answer.
    #[arg(long, env = "ROLLTAP_SIM_TOKEN_DELAY_MS", value_name = "MS", default_value_t = 0)]
    token_delay_ms: u64,
    /// Limit the KV cache to this many blocks, one of which vLLM reserves. Requests wait for free blocks, and prompt and
    /// answer together are at most as long as the cache. [default: no limit, and nothing is cached]
    #[arg(long, env = "ROLLTAP_SIM_KV_BLOCKS", value_name = "BLOCKS", value_parser = clap::value_parser!(u32).range(2..))]
    kv_blocks: Option<u32>,
    /// Cache this many tokens per block. vLLM's default is 16 on GPUs and 128 on CPUs.
    #[arg(long, env = "ROLLTAP_SIM_KV_BLOCK_SIZE", value_name = "TOKENS", default_value_t = sim::DEFAULT_BLOCK_SIZE,
          value_parser = one_or_more::<NonZeroU32>)]
    kv_block_size: NonZeroU32,
    /// Wait this many milliseconds before the first token for every 1,000 tokens of the prompt that are not cached.
    #[arg(long, env = "ROLLTAP_SIM_PREFILL_DELAY_MS", value_name = "MS", default_value_t = 0)]
    prefill_delay_ms: u64,
}

const AFTER_HELP: &str = "\
Examples:
  rolltap sim
  rolltap sim --listen 127.0.0.1:0 --script configs/sim-script.toml --token-delay-ms 20
  rolltap sim --kv-blocks 2000 --token-delay-ms 20 --prefill-delay-ms 100
  curl -s http://127.0.0.1:8000/v1/chat/completions -H 'content-type: application/json' \\
    -d '{\"model\": \"sim\", \"messages\": [{\"role\": \"user\", \"content\": \"hello\"}], \"max_tokens\": 16}'

The server stops on Ctrl-C or SIGTERM.";

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
        kv_blocks: arguments.kv_blocks,
        kv_block_size: arguments.kv_block_size,
        prefill_delay: Duration::from_millis(arguments.prefill_delay_ms),
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
