//! `rolltap proxy`

use std::net::{Ipv4Addr, SocketAddr};
use std::num::{NonZeroU64, NonZeroUsize};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use clap::builder::PossibleValuesParser;
use rolltap_proxy::roles::RoleRules;
use rolltap_proxy::store::{Retention, StoreSettings, SyncPolicy};
use rolltap_proxy::{
    Address, AllowedOrigins, ImplicitTrials, PoolSettings, Redaction, Settings, ToolStrictLevel,
};

use crate::Outcome;
use crate::proxy_file::{GenerationDefaults, ProxyFile};
use crate::render_args::PromptArguments;
use crate::terminal::{self, StopSignals};

/// The proxy alone, beside whatever runs your trials
///
/// Agents call the agent plane with a trial's key; runners and trainers open, seal and reward trials and fetch calls
/// and rollouts at the admin plane.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// A vLLM server, with or without /v1; repeat it for several replicas of one model.
    #[arg(long, env = "ROLLTAP_UPSTREAM", value_name = "URL", value_delimiter = ',')]
    upstream: Vec<String>,
    /// The API key that the upstreams want (vLLM's --api-key).
    #[arg(long, env = "ROLLTAP_UPSTREAM_API_KEY", value_name = "KEY", hide_env_values = true)]
    upstream_api_key: Option<String>,
    /// Address of the agent plane; repeat it for several, port 0 takes a free one. [default: 127.0.0.1:7070]
    #[arg(long, env = "ROLLTAP_LISTEN", value_name = "ADDRESS", value_delimiter = ',')]
    listen: Vec<SocketAddr>,
    /// Address of the admin plane. Off loopback it needs --admin-token-file. [default: 127.0.0.1:7071]
    #[arg(long, env = "ROLLTAP_ADMIN", value_name = "ADDRESS")]
    admin: Option<SocketAddr>,
    /// The agent plane's URL as agents are told it. [default: http:// and the first --listen]
    #[arg(long, env = "ROLLTAP_PUBLIC_URL", value_name = "URL")]
    public_url: Option<String>,
    /// Directory of the captures. Started again on the same one, open trials go on. [default: rolltap-data]
    #[arg(long, env = "ROLLTAP_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
    /// When captures also survive the death of the machine: before anybody is told (always), 50 ms later at most
    /// (interval), or when the system sees fit (off). The death of the proxy they always survive. [default: interval]
    #[arg(long, env = "ROLLTAP_SYNC", value_name = "WHEN", value_parser = PossibleValuesParser::new(SYNCS))]
    sync: Option<String>,
    /// Captures of trials that were sealed more days ago than this are removed. [default: never]
    #[arg(long, env = "ROLLTAP_RETAIN_DAYS", value_name = "DAYS")]
    retain_days: Option<u32>,
    /// While captures have more GiB than this, those of the trials that were sealed first are removed, none within an
    /// hour of that. [default: never]
    #[arg(long, env = "ROLLTAP_RETAIN_GIB", value_name = "GIB")]
    retain_gib: Option<u32>,
    /// File with the token that clients of the admin plane must bear, of 16 characters at least; nobody else should be
    /// able to read it.
    #[arg(long, env = "ROLLTAP_ADMIN_TOKEN_FILE", value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    /// The upstreams' --logprobs-mode, which their answers do not tell. [default: raw_logprobs]
    #[arg(long, env = "ROLLTAP_LOGPROBS_MODE", value_name = "MODE",
          value_parser = PossibleValuesParser::new(LOGPROBS_MODES))]
    logprobs_mode: Option<String>,
    /// The upstreams' --tool-strict-level, which their answers do not tell: with `function` or `parameter`, tool calls are
    /// sampled under a grammar, and recorded so. Models of the glm47 tool parser have `function`. [default: auto]
    #[arg(long, env = "ROLLTAP_TOOL_STRICT_LEVEL", value_name = "LEVEL",
          value_parser = PossibleValuesParser::new(TOOL_STRICT_LEVELS))]
    tool_strict_level: Option<String>,
    /// Open a trial for any key that an agent calls with, for trying things out: as long as only this machine can call,
    /// or `anywhere`.
    #[arg(long, env = "ROLLTAP_IMPLICIT_TRIALS", value_name = "WHERE", num_args = 0..=1,
          default_missing_value = "loopback", value_parser = PossibleValuesParser::new(IMPLICIT_TRIALS))]
    implicit_trials: Option<String>,
    /// How the served model samples where a request is silent, as vLLM's --override-generation-config takes it:
    /// {"temperature": 0.6}. Needed where rolltap cannot read the model's generation_config.json.
    #[arg(long, env = "ROLLTAP_GENERATION_DEFAULTS", value_name = "JSON", value_parser = generation_defaults)]
    generation_defaults: Option<GenerationDefaults>,
    /// Seconds after which an upstream that sends nothing is given up, before its answer or within. [default: 1800]
    #[arg(long, env = "ROLLTAP_UPSTREAM_IDLE_TIMEOUT", value_name = "SECONDS",
          value_parser = clap::value_parser!(u64).range(1..))]
    upstream_idle_timeout: Option<u64>,
    /// MiB of memory that open trials may take, about. Those that no agent has called for longest are read from the
    /// captures when one calls again. [default: 160]
    #[arg(long, env = "ROLLTAP_MEMORY_MIB", value_name = "MIB")]
    memory_mib: Option<u32>,
    /// Connections that agents may hold at once; further ones wait. [default: 16384]
    #[arg(long, env = "ROLLTAP_MAX_CONNECTIONS", value_name = "N")]
    max_connections: Option<NonZeroUsize>,
    /// Let requests name URLs of images, audio and video, which the upstreams then fetch: with their network, not the
    /// agent's. Without, media come in the request itself (data: URLs). See also vLLM's --allowed-media-domains.
    #[arg(long, env = "ROLLTAP_ALLOW_MEDIA_URLS")]
    allow_media_urls: bool,
    /// An origin whose web pages may call the agent plane from a browser: https://app.example, or * for all. Repeat it for
    /// several. [default: none]
    #[arg(
        long = "allowed-origin",
        env = "ROLLTAP_ALLOWED_ORIGIN",
        value_name = "ORIGIN",
        value_delimiter = ','
    )]
    allowed_origins: Vec<String>,
    /// A model name that agents say, and the served model that they get: claude-haiku-*=qwen3. A name may end in *, and
    /// the longest that fits wins. Repeat it for several; agents get their own name back.
    #[arg(long = "model-alias", env = "ROLLTAP_MODEL_ALIAS", value_name = "NAME=SERVED", value_delimiter = ',',
          value_parser = alias)]
    model_aliases: Vec<(String, String)>,
    #[command(flatten)]
    prompts: PromptArguments,
    /// TOML file with any of these settings; see configs/proxy.toml. Flags and environment variables win over it.
    #[arg(long, env = "ROLLTAP_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
}

/// vLLM's own names.
const TOOL_STRICT_LEVELS: [&str; 3] = ["auto", "function", "parameter"];

/// Those of vLLM's modes that give logprobs rather than logits.
const LOGPROBS_MODES: [&str; 2] = ["raw_logprobs", "processed_logprobs"];

/// When captures are made durable.
const SYNCS: [&str; 3] = ["always", "interval", "off"];

/// Who may open a trial by calling.
const IMPLICIT_TRIALS: [&str; 2] = ["loopback", "anywhere"];

const DEFAULT_LISTEN_PORT: u16 = 7070;
const DEFAULT_ADMIN_PORT: u16 = 7071;
const DEFAULT_DATA: &str = "rolltap-data";

/// How long calls under way may take to end once the proxy is told to stop.
const GRACE: Duration = Duration::from_secs(30);

const AFTER_HELP: &str = "\
Examples:
  rolltap proxy --upstream http://127.0.0.1:8000
  rolltap proxy --config configs/proxy.toml --listen 127.0.0.1:0

Then, for each trial:
  curl -s http://127.0.0.1:7071/v1/trials -H 'content-type: application/json' \\
    -d '{\"task_id\": \"hello\"}'
and give the agent the base_urls and the key of the answer.

Stops on Ctrl-C or SIGTERM: no new call is taken, calls under way have 30 s to end.";

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    let mut stop = StopSignals::listen()?;
    let settings = settings(arguments)?;
    terminal::hide_from_logs(Arc::clone(&settings.redaction));
    let proxy = rolltap_proxy::start(settings).await?;
    for address in proxy.agent_addrs() {
        terminal::say(format_args!("agent plane listens on http://{address}"));
    }
    terminal::say(format_args!("admin plane listens on http://{}", proxy.admin_addr()));
    let (grace, broken) = tokio::select! {
        () = stop.next() => (GRACE, None),
        error = proxy.broken() => (Duration::ZERO, Some(error)),
    };
    let stopped = proxy.shutdown(grace).await;
    match (broken, stopped) {
        (Some(error), _) => Err(error.into()),
        (None, Err(error)) => {
            terminal::report(&error.into());
            Ok(Outcome::Failed)
        }
        (None, Ok(())) => Ok(Outcome::Done),
    }
}

/// Flag, then environment variable (both by clap), then file, then default.
fn settings(arguments: Arguments) -> anyhow::Result<Settings> {
    let file = arguments.config.as_deref().map(ProxyFile::read).transpose()?.unwrap_or_default();
    let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let token_file = arguments.admin_token_file.or(file.admin_token_file);
    let public_url = arguments.public_url.or(file.public_url);
    let listen = first_given(arguments.listen, file.listen);
    let generation_defaults = arguments.generation_defaults.or(file.generation_defaults);
    let idle_timeout =
        arguments.upstream_idle_timeout.and_then(NonZeroU64::new).or(file.upstream_idle_timeout);
    let given = arguments.prompts;
    let prompts = PromptArguments {
        tokenizer: given.tokenizer.or(file.tokenizer),
        chat_template: given.chat_template.or(file.chat_template),
        default_chat_template_kwargs: given
            .default_chat_template_kwargs
            .or(file.default_chat_template_kwargs),
        chat_template_content_format: given
            .chat_template_content_format
            .or(file.chat_template_content_format),
        ..given
    };
    let logprobs_mode = arguments.logprobs_mode.or(file.logprobs_mode);
    Ok(Settings {
        upstreams: upstreams(
            &first_given(arguments.upstream, file.upstream),
            arguments.upstream_api_key.or(file.upstream_api_key).as_deref(),
        )?,
        listen: if listen.is_empty() { vec![loopback(DEFAULT_LISTEN_PORT)] } else { listen },
        admin: arguments.admin.or(file.admin).unwrap_or_else(|| loopback(DEFAULT_ADMIN_PORT)),
        public_url: public_url.map(|url| url.parse()).transpose()?,
        data_dir: arguments.data.or(file.data).unwrap_or_else(|| DEFAULT_DATA.into()),
        store: StoreSettings {
            sync: match arguments.sync.or(file.sync) {
                None => SyncPolicy::default(),
                Some(when) => when.parse().map_err(|error| anyhow!("sync: {error}"))?,
            },
            retention: Retention {
                max_age: arguments
                    .retain_days
                    .or(file.retain_days)
                    .map(|days| Duration::from_hours(24 * u64::from(days))),
                max_bytes: arguments.retain_gib.or(file.retain_gib).map(|gib| u64::from(gib) << 30),
            },
        },
        admin_token: token_file.as_deref().map(read_token).transpose()?,
        implicit_trials: match arguments.implicit_trials.or(file.implicit_trials).as_deref() {
            None => ImplicitTrials::Never,
            Some("loopback") => ImplicitTrials::OnLoopback,
            Some("anywhere") => ImplicitTrials::Anywhere,
            Some(other) => bail!("implicit_trials is {other:?}; it may be {}", IMPLICIT_TRIALS.join(" or ")),
        },
        model_aliases: first_given(arguments.model_aliases, file.model_aliases.into_iter().collect())
            .into_iter()
            .collect(),
        upstream_idle_timeout: idle_timeout
            .map_or(Settings::DEFAULT_UPSTREAM_IDLE_TIMEOUT, |seconds| Duration::from_secs(seconds.get())),
        tool_strict_level: match arguments.tool_strict_level.or(file.tool_strict_level) {
            None => ToolStrictLevel::default(),
            Some(level) => level.parse().map_err(|error| anyhow!("tool_strict_level: {error}"))?,
        },
        history: prompts.history()?.or(file.history).unwrap_or_default(),
        render: prompts.render_settings()?,
        roles: RoleRules::with(file.roles)?,
        training: file.training,
        limits: file.limits.or(Settings::DEFAULT_LIMITS),
        memory: arguments
            .memory_mib
            .or(file.memory_mib)
            .map_or(Settings::DEFAULT_MEMORY, |mib| u64::from(mib) << 20),
        max_connections: arguments
            .max_connections
            .or(file.max_connections)
            .unwrap_or(Settings::DEFAULT_MAX_CONNECTIONS),
        allow_media_urls: arguments.allow_media_urls || file.allow_media_urls,
        allowed_origins: AllowedOrigins::new(&first_given(arguments.allowed_origins, file.allowed_origins))
            .context("allowed_origins")?,
        redaction: Arc::new(Redaction::new(&file.redact.headers, &file.redact.patterns)?),
        pool: PoolSettings {
            generation_defaults: generation_defaults.map(Into::into).unwrap_or_default(),
            ..PoolSettings::default()
        },
        reader_patience: Settings::DEFAULT_READER_PATIENCE,
        logprobs_mode: match logprobs_mode {
            None => Settings::DEFAULT_LOGPROBS_MODE.to_owned(),
            Some(mode) if LOGPROBS_MODES.contains(&mode.as_str()) => mode,
            Some(mode) => bail!("logprobs_mode is {mode:?}; it may be {}", LOGPROBS_MODES.join(" or ")),
        },
    })
}

fn generation_defaults(text: &str) -> Result<GenerationDefaults, String> {
    serde_json::from_str(text).map_err(|error| format!("{error}; write it like {{\"temperature\": 0.6}}"))
}

/// `NAME=SERVED`. Neither may hold an `=`, so there is one way to read it.
fn alias(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, served)) if !name.is_empty() && !served.is_empty() && !served.contains('=') => {
            Ok((name.to_owned(), served.to_owned()))
        }
        _ => Err("write it as NAME=SERVED, such as claude-haiku-*=qwen3".to_owned()),
    }
}

fn first_given<T>(flags: Vec<T>, file: Vec<T>) -> Vec<T> {
    if flags.is_empty() { file } else { flags }
}

fn upstreams(urls: &[String], api_key: Option<&str>) -> anyhow::Result<Vec<Address>> {
    if urls.is_empty() {
        bail!("no upstream is given: name a vLLM server, like --upstream http://127.0.0.1:8000");
    }
    let authorized = |address: Address| match api_key {
        Some(key) => address.with_api_key(key),
        None => Ok(address),
    };
    Ok(urls.iter().map(|url| url.parse().and_then(authorized)).collect::<Result<_, _>>()?)
}

/// Who is neither the file's owner nor of its group.
const OTHERS_READ: u32 = 0o004;

/// A token is the file's text without the white space around it.
pub(crate) fn read_token(path: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read token file {}", path.display()))?;
    let mode = std::fs::metadata(path).map_or(0, |metadata| metadata.permissions().mode());
    if mode & OTHERS_READ != 0 {
        tracing::warn!(
            "token file {} can be read by every user of this machine: chmod 600 it",
            path.display()
        );
    }
    match text.trim() {
        "" => bail!("token file {} is empty", path.display()),
        token => Ok(token.to_owned()),
    }
}
