//! The settings of `rolltap proxy`, each declared once. A field is a flag, an environment variable, a key of the file,
//! a default and its documentation.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, RangedU64ValueParser};
use rolltap_proxy::store::SyncPolicy;
use rolltap_proxy::{ImplicitTrials, SamplingDefaults, Settings, ToolStrictLevel};
use serde::{Deserialize, Deserializer};

/// Settings that are a flag, an environment variable and a key of the file. The key is the name of the field.
///
/// `just docs` writes `configs/proxy.toml` and the reference pages from these declarations. The settings that only the
/// file has are in [`super::tables`], and those that `rolltap run` shares in [`crate::prompt_options`].
#[derive(Args, Clone, Debug, Deserialize)]
#[serde(default)]
pub(crate) struct ProxyOptions {
    /// Use the vLLM server at this URL, with or without /v1. Repeat the flag for several replicas of one model.
    ///
    /// A trial stays with one replica, because that replica has its prefix cache. A replica that fails its health
    /// checks gets no calls. The admin plane adds and removes replicas at run time. vLLM needs no special flags.
    #[arg(long, env = "ROLLTAP_UPSTREAM", value_name = "URL", value_delimiter = ',')]
    pub(super) upstream: Vec<String>,
    /// Send this API key to the upstreams (vLLM's --api-key).
    #[arg(long, env = "ROLLTAP_UPSTREAM_API_KEY", value_name = "KEY", hide_env_values = true)]
    pub(super) upstream_api_key: Option<String>,
    /// Send this API key to one upstream, named by its URL. Repeat the flag for several. [default: --upstream-api-key]
    #[arg(long = "upstream-api-key-for", env = "ROLLTAP_UPSTREAM_API_KEY_FOR", value_name = "URL=KEY",
          value_delimiter = ',', hide_env_values = true, value_parser = key_of_upstream)]
    #[serde(deserialize_with = "text_table")]
    pub(super) upstream_api_keys: Vec<(String, String)>,
    /// Serve the agent plane at this address. Repeat the flag for several addresses; port 0 takes a free port.
    ///
    /// Agents call it with the key of a trial. Agents in containers need an address that they can reach, such as the
    /// gateway of their network: 172.17.0.1:7070.
    #[arg(
        long,
        env = "ROLLTAP_LISTEN",
        value_name = "ADDRESS",
        value_delimiter = ',',
        default_value = "127.0.0.1:7070"
    )]
    pub(super) listen: Vec<SocketAddr>,
    /// Serve the admin plane at this address. An address off loopback requires --admin-token-file or
    /// --admin-tokens.
    ///
    /// Runners and trainers open, seal and reward trials here, and fetch calls and rollouts. Choose an address that
    /// agents cannot reach.
    #[arg(long, env = "ROLLTAP_ADMIN", value_name = "ADDRESS", default_value = "127.0.0.1:7071")]
    pub(super) admin: SocketAddr,
    /// Require a certificate of an authority in this PEM file from clients of the admin plane (mutual TLS). [default:
    /// none]
    ///
    /// It requires --tls-cert. The token of --admin-token-file is required too, if that is given.
    #[arg(long, env = "ROLLTAP_ADMIN_CLIENT_CA", value_name = "FILE")]
    pub(super) admin_client_ca: Option<PathBuf>,
    /// Give agents this URL of the agent plane, in the base_urls of an opened trial. [default: the first --listen, with
    /// https:// if --tls-cert is given]
    ///
    /// It is necessary if agents reach the agent plane by a load balancer or a host name. The URL may have a path, like
    /// `https://gateway.example/rolltap`. Gateways may forward requests with this path or without it.
    #[arg(long, env = "ROLLTAP_PUBLIC_URL", value_name = "URL")]
    pub(super) public_url: Option<String>,
    /// Store captures in this directory.
    ///
    /// A restart on the same directory continues its open trials.
    #[arg(long, env = "ROLLTAP_DATA", value_name = "DIR", default_value = "rolltap-data")]
    pub(super) data: PathBuf,
    /// Choose when captures become durable against a crash of the machine.
    ///
    /// With `always`, a record is durable before the proxy acknowledges it, at the speed of the disk. With `interval`,
    /// it is durable at most 50 ms later. With `off`, the operating system decides. Captures survive a crash of the
    /// proxy in each case.
    #[arg(long, env = "ROLLTAP_SYNC", value_name = "WHEN", default_value_t = SyncPolicy::default().to_string(),
          value_parser = PossibleValuesParser::new(SyncPolicy::NAMES))]
    pub(super) sync: String,
    /// Remove the captures of a trial after this many days. [default: never]
    ///
    /// The days count from the completion of the trial, or from the close of its group. They count from one day after
    /// the seal if the trial has no reward. They count from one day after the completion if its group is open. Captures
    /// of an open trial stay. Files are removed whole, so a trial stays as long as the other trials in its files.
    #[arg(long, env = "ROLLTAP_RETAIN_DAYS", value_name = "DAYS")]
    pub(super) retain_days: Option<u32>,
    /// Remove the oldest captures while all captures together exceed this size in GiB. [default: never]
    ///
    /// A trial stays for at least one hour from the moment at which its days for --retain-days begin to count. Captures
    /// of an open trial stay.
    #[arg(long, env = "ROLLTAP_RETAIN_GIB", value_name = "GIB")]
    pub(super) retain_gib: Option<u32>,
    /// Require the token in this file from clients of the admin plane (Authorization: Bearer …).
    ///
    /// The token has all roles, and at least 16 characters. Other users must not be able to read the file.
    #[arg(long, env = "ROLLTAP_ADMIN_TOKEN_FILE", value_name = "FILE")]
    pub(super) admin_token_file: Option<PathBuf>,
    /// Accept the tokens whose hashes are in this TOML file, each with its roles, on the admin plane.
    ///
    /// `rolltap admin-token` makes a token and its entry. The roles are `open`, `reward`, `read` and `operate`. The file
    /// is read again when it changes; if it is then wrong, the tokens of before stay valid.
    #[arg(long, env = "ROLLTAP_ADMIN_TOKENS", value_name = "FILE")]
    pub(super) admin_tokens: Option<PathBuf>,
    /// Append a line of JSON to this file for each action at the admin plane. [default: none]
    ///
    /// The actions are all that change something, reads of calls and rollouts, and denied requests. While the file cannot
    /// be written, these actions are answered 503. The file may be rotated at any time.
    #[arg(long, env = "ROLLTAP_AUDIT_LOG", value_name = "FILE")]
    pub(super) audit_log: Option<PathBuf>,
    /// Record this --logprobs-mode of the upstreams with each rollout.
    ///
    /// The answers of vLLM do not contain it. The logprobs of `raw_logprobs`, vLLM's default,
    /// are those before temperature and penalties.
    #[arg(long, env = "ROLLTAP_LOGPROBS_MODE", value_name = "MODE", default_value = Settings::DEFAULT_LOGPROBS_MODE,
          value_parser = PossibleValuesParser::new(Settings::LOGPROBS_MODES))]
    pub(super) logprobs_mode: String,
    /// Assume this --tool-strict-level of the upstreams.
    ///
    /// The answers of vLLM do not contain it. With `function` or `parameter`, vLLM samples tool calls under a grammar,
    /// and the proxy records these calls as constrained. Models with vLLM's glm47 tool parser have `function` without
    /// the flag.
    #[arg(long, env = "ROLLTAP_TOOL_STRICT_LEVEL", value_name = "LEVEL",
          default_value_t = ToolStrictLevel::default().to_string(),
          value_parser = PossibleValuesParser::new(ToolStrictLevel::NAMES))]
    pub(super) tool_strict_level: String,
    /// Open a trial for any key that an agent calls with, for experiments. [default: off]
    ///
    /// With `loopback`, the proxy starts only if no other machine can call the agent plane. With `anywhere`, it starts
    /// in any case.
    #[arg(long, env = "ROLLTAP_IMPLICIT_TRIALS", value_name = "WHERE", num_args = 0..=1,
          default_missing_value = "loopback", value_parser = PossibleValuesParser::new(ImplicitTrials::NAMES))]
    pub(super) implicit_trials: Option<String>,
    /// Record these sampling parameters for requests that omit them: temperature, top_p, top_k. [default: those of the
    /// model's generation_config.json, if it is on this machine]
    ///
    /// The format is that of vLLM's --override-generation-config: `{"temperature": 0.6}`. The parameters are necessary
    /// if the model is on another machine, or if vLLM has --override-generation-config.
    #[arg(long, env = "ROLLTAP_GENERATION_DEFAULTS", value_name = "JSON", value_parser = generation_defaults)]
    pub(super) generation_defaults: Option<GenerationDefaults>,
    /// Fail a call to an upstream that sends no data for this many seconds.
    ///
    /// The time applies before the answer and within it. The default is long for two reasons. An answer without
    /// streaming is silent until its end, and a weight update pauses streams.
    #[arg(long, env = "ROLLTAP_UPSTREAM_IDLE_TIMEOUT", value_name = "SECONDS", default_value_t = IDLE_TIMEOUT,
          value_parser = RangedU64ValueParser::<NonZeroU64>::new().range(1..))]
    pub(super) upstream_idle_timeout: NonZeroU64,
    /// Limit the memory of open trials to about this many MiB.
    ///
    /// Above the limit, the trials that were idle for longest are evicted. The next call of an evicted trial reads it
    /// from the captures, which takes some milliseconds.
    #[arg(long, env = "ROLLTAP_MEMORY_MIB", value_name = "MIB",
          default_value_t = (Settings::DEFAULT_MEMORY >> 20) as u32)]
    pub(super) memory_mib: u32,
    /// Limit the open connections of agents to this number. Further connections wait.
    #[arg(long, env = "ROLLTAP_MAX_CONNECTIONS", value_name = "N", default_value_t = Settings::DEFAULT_MAX_CONNECTIONS)]
    pub(super) max_connections: NonZeroUsize,
    /// Limit the open connections of agents from one source address to this number. [default: none]
    ///
    /// A connection beyond the limit is answered 429 with the reason. Leave the setting out if agents come by a load
    /// balancer, because all of them then have its address. A network of 64 bits of IPv6 counts as one address.
    #[arg(long, env = "ROLLTAP_MAX_CONNECTIONS_PER_ADDRESS", value_name = "N")]
    pub(super) max_connections_per_address: Option<NonZeroUsize>,
    /// Permit requests with URLs of images, audio and video.
    ///
    /// The upstreams fetch these URLs, from networks that the sandbox of the agent may not reach. Restrict them with
    /// vLLM's --allowed-media-domains. Without this setting, requests contain their media as data: URLs.
    #[arg(long, env = "ROLLTAP_ALLOW_MEDIA_URLS")]
    pub(super) allow_media_urls: bool,
    /// Permit web pages of this origin to call the agent plane; `*` permits all origins. Repeat the flag for several.
    /// [default: none]
    ///
    /// The setting is CORS, like vLLM's --allowed-origins. An origin is like `https://app.example`. Web pages cannot
    /// call the admin plane.
    #[arg(
        long = "allowed-origin",
        env = "ROLLTAP_ALLOWED_ORIGIN",
        value_name = "ORIGIN",
        value_delimiter = ','
    )]
    pub(super) allowed_origins: Vec<String>,
    /// Map a model name of agents to a served model or LoRA adapter. Repeat the flag for several. [default: none]
    ///
    /// A name may end in `*`, and the longest match wins: `claude-haiku-*=qwen3`. A served name may end in `*` too, for
    /// the rest of the name: `openai/*=*` removes the prefix. Answers contain the name that the agent uses. Aliases of
    /// a trial come before these.
    #[arg(long = "model-alias", env = "ROLLTAP_MODEL_ALIAS", value_name = "NAME=SERVED", value_delimiter = ',',
          value_parser = alias)]
    #[serde(deserialize_with = "text_table")]
    pub(super) model_aliases: Vec<(String, String)>,
}

const IDLE_TIMEOUT: NonZeroU64 =
    NonZeroU64::MIN.saturating_add(Settings::DEFAULT_UPSTREAM_IDLE_TIMEOUT.as_secs() - 1);

impl Default for ProxyOptions {
    /// The defaults of the declarations above, without the command line and the environment.
    fn default() -> Self {
        // A variable of the environment would replace a default here.
        let command =
            Self::augment_args(clap::Command::new("defaults")).mut_args(|arg| arg.env(None::<&str>));
        let parsed = command.try_get_matches_from(["defaults"]);
        let defaults = parsed.and_then(|matches| <Self as clap::FromArgMatches>::from_arg_matches(&matches));
        // A declared default that its own parser rejects is a defect, and the tests of this folder find it.
        defaults.unwrap_or_else(|error| error.exit())
    }
}

/// Keys of vLLM's `generation_config.json` that the proxy records.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GenerationDefaults {
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<i64>,
}

impl From<GenerationDefaults> for SamplingDefaults {
    fn from(given: GenerationDefaults) -> Self {
        let GenerationDefaults { temperature, top_p, top_k } = given;
        Self { temperature, top_p, top_k }
    }
}

fn generation_defaults(text: &str) -> Result<GenerationDefaults, String> {
    serde_json::from_str(text).map_err(|error| format!("{error}; write it like {{\"temperature\": 0.6}}"))
}

/// Parses `NAME=SERVED`. Neither name may contain `=`, so the text has one meaning.
fn alias(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, served)) if !name.is_empty() && !served.is_empty() && !served.contains('=') => {
            Ok((name.to_owned(), served.to_owned()))
        }
        _ => Err("write it as NAME=SERVED, such as claude-haiku-*=qwen3".to_owned()),
    }
}

/// Parses `URL=KEY`. A URL of an upstream has no `=`, and a key may have some.
fn key_of_upstream(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((url, key)) if !url.is_empty() && !key.is_empty() => Ok((url.to_owned(), key.to_owned())),
        _ => Err("write it as URL=KEY, such as http://127.0.0.1:8001=KEY".to_owned()),
    }
}

/// Reads pairs of texts, which are a table in the file.
fn text_table<'de, D: Deserializer<'de>>(table: D) -> Result<Vec<(String, String)>, D::Error> {
    Ok(BTreeMap::deserialize(table)?.into_iter().collect())
}
