//! The settings of a proxy.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use rolltap_rollout::training::TrainingPolicy;

use crate::admin_plane::submissions::SubmissionDesk;
use crate::agent_plane::cors::AllowedOrigins;
use crate::agent_plane::public_url::PublicUrl;
use crate::api::Limits;
use crate::common::history::History;
use crate::common::model_aliases::ModelAliases;
use crate::common::redaction::Redaction;
use crate::common::tls::PlaneTls;
use crate::dialect::ToolStrictLevel;
use crate::render::RenderSettings;
use crate::roles::RoleRules;
use crate::store::StoreSettings;
use crate::traces::TraceSettings;
use crate::upstream::{Address, PoolSettings};

/// All settings for [`crate::start`].
#[derive(Clone, Debug)]
pub struct Settings {
    /// The vLLM servers, replicas of one model. A trial stays with one replica, because of its prefix cache. Without
    /// any upstream, every call is answered 503, which suffices for agents that call no model.
    pub upstreams: Vec<Address>,
    /// The addresses of the agent plane. Port 0 means a free port.
    pub listen: Vec<SocketAddr>,
    /// The address of the admin plane, for runners and trainers. Agents must not reach it.
    pub admin: SocketAddr,
    /// TLS of the agent plane. `None` means HTTP without TLS.
    pub agent_tls: Option<PlaneTls>,
    /// TLS of the admin plane. `None` means HTTP without TLS.
    pub admin_tls: Option<PlaneTls>,
    /// The URL of the agent plane that agents get. `None` means the first address of `listen`, with `https://` if the
    /// agent plane has TLS. Its path is also accepted in front of the paths of requests.
    pub public_url: Option<PublicUrl>,
    /// The directory of the captures.
    pub data_dir: PathBuf,
    /// How captures are written, and how long they are retained.
    pub store: StoreSettings,
    /// The token that clients of the admin plane must send. It has all roles. If the admin plane is not on loopback, this
    /// token or `admin_tokens` is required.
    pub admin_token: Option<String>,
    /// The file with further tokens, each with its roles. It is read again when it changes.
    pub admin_tokens: Option<PathBuf>,
    /// The file that a line is appended to for each action at the admin plane. `None` for no audit log.
    pub audit_log: Option<PathBuf>,
    /// Whether an unknown key opens a trial.
    pub implicit_trials: ImplicitTrials,
    /// Model names that agents request, each with the served model that answers.
    pub model_aliases: ModelAliases,
    /// The longest time in which an upstream may send nothing during a call. It is long, because an answer that does
    /// not stream is silent until it is complete, and so is a server that loads new weights.
    pub upstream_idle_timeout: Duration,
    /// The `--logprobs-mode` of the upstreams, which their answers do not contain.
    pub logprobs_mode: String,
    /// The `--tool-strict-level` of the upstreams, which their answers do not contain either.
    pub tool_strict_level: ToolStrictLevel,
    /// How tokens of earlier turns are treated, for trials without a mode of their own.
    pub history: History,
    /// The files with which prompts of the served model are rendered, to continue them token for token.
    pub render: RenderSettings,
    /// The rules that give each call its role.
    pub roles: RoleRules,
    /// Whether calls of each role are trained, for roles that a trial leaves out.
    pub training: TrainingPolicy,
    /// The checks of the upstreams, and the sampling defaults of their model.
    pub pool: PoolSettings,
    /// The limits of trials, for limits that a trial leaves out.
    pub limits: Limits,
    /// The approximate memory of open trials, in bytes. Beyond it, trials with the longest idle time are evicted. Their
    /// next call loads them from the store.
    pub memory: u64,
    /// The number of simultaneous connections of agents. Further connections wait.
    pub max_connections: NonZeroUsize,
    /// The largest number of connections of agents from one source address. Further connections are answered 429. `None`
    /// for no limit.
    pub max_connections_per_address: Option<NonZeroUsize>,
    /// Whether requests may contain URLs of images, audio and video. The upstreams would fetch them on behalf of the
    /// agent.
    pub allow_media_urls: bool,
    /// Origins whose web pages may call the agent plane from a browser.
    pub allowed_origins: AllowedOrigins,
    /// The secrets that are removed from records and from upstream's errors.
    pub redaction: Arc<Redaction>,
    /// Web pages that the admin plane serves below [`crate::PAGES_PATH`]. A browser sends its token as a password, also for
    /// requests that other pages cause, so no page may change anything.
    pub pages: Option<Router>,
    /// Takes the submissions of trainers. `None` without a service that samples them.
    pub submissions: Option<SubmissionDesk>,
    /// Where spans of trials and calls go. `None` makes no spans.
    pub traces: Option<TraceSettings>,
    /// The longest time in which a client of the admin plane may read nothing of its answer. Then its connection is
    /// closed.
    pub reader_patience: Duration,
}

/// Whether any key opens a trial. This is meant for experiments without a runner that opens trials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImplicitTrials {
    /// Only keys of opened trials are valid.
    #[default]
    Never,
    /// Any key opens a trial, if only this machine can call.
    OnLoopback,
    /// Any key opens a trial, also if other machines can call.
    Anywhere,
}

impl ImplicitTrials {
    /// The names of the places from which any key opens a trial, as configurations and flags have them.
    pub const NAMES: [&str; 2] = ["loopback", "anywhere"];

    /// The variant of a name in [`Self::NAMES`], or `None` if there is no such name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "loopback" => Some(Self::OnLoopback),
            "anywhere" => Some(Self::Anywhere),
            _ => None,
        }
    }
}

impl Settings {
    /// Returns settings for free ports that only this machine reaches, with defaults for everything else.
    pub fn on_loopback(upstreams: Vec<Address>, data_dir: PathBuf) -> Self {
        let free_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self {
            upstreams,
            listen: vec![free_port],
            admin: free_port,
            agent_tls: None,
            admin_tls: None,
            public_url: None,
            data_dir,
            store: StoreSettings::default(),
            admin_token: None,
            admin_tokens: None,
            audit_log: None,
            implicit_trials: ImplicitTrials::default(),
            model_aliases: ModelAliases::default(),
            upstream_idle_timeout: Self::DEFAULT_UPSTREAM_IDLE_TIMEOUT,
            logprobs_mode: Self::DEFAULT_LOGPROBS_MODE.to_owned(),
            tool_strict_level: ToolStrictLevel::default(),
            history: History::default(),
            render: RenderSettings::default(),
            roles: RoleRules::default(),
            training: TrainingPolicy::default(),
            pool: PoolSettings::default(),
            // The only limit is that of calls in flight: a bound on calls or tokens would depend on the task.
            limits: Self::DEFAULT_LIMITS,
            memory: Self::DEFAULT_MEMORY,
            max_connections: Self::DEFAULT_MAX_CONNECTIONS,
            max_connections_per_address: None,
            allow_media_urls: false,
            allowed_origins: AllowedOrigins::default(),
            redaction: Arc::default(),
            pages: None,
            submissions: None,
            traces: None,
            reader_patience: Self::DEFAULT_READER_PATIENCE,
        }
    }

    /// The default of [`Settings::upstream_idle_timeout`].
    pub const DEFAULT_UPSTREAM_IDLE_TIMEOUT: Duration = Duration::from_mins(30);
    /// The default of [`Settings::limits`]. A working agent has fewer calls in flight, and an agent that floods the
    /// proxy leaves most places in the store's queue to others.
    pub const DEFAULT_LIMITS: Limits = Limits {
        max_calls: None,
        max_completion_tokens: None,
        max_calls_in_flight: Some(256),
        max_calls_per_minute: None,
        max_body_bytes: None,
    };
    /// The default of [`Settings::memory`]: 160 MiB.
    pub const DEFAULT_MEMORY: u64 = 160 << 20;
    /// The default of [`Settings::max_connections`]: 16,384.
    // A sum, because the constructor of the type returns an option.
    pub const DEFAULT_MAX_CONNECTIONS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(16_383);
    /// The default of [`Settings::reader_patience`].
    pub const DEFAULT_READER_PATIENCE: Duration = Duration::from_mins(1);
    /// The default of [`Settings::logprobs_mode`], which is vLLM's own: logprobs before temperature and penalties.
    pub const DEFAULT_LOGPROBS_MODE: &str = Self::LOGPROBS_MODES[0];
    /// The values of vLLM's `--logprobs-mode` that give logprobs rather than logits.
    pub const LOGPROBS_MODES: [&str; 2] = ["raw_logprobs", "processed_logprobs"];
}
