//! What a proxy is started with.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rolltap_rollout::training::TrainingPolicy;

use crate::admin_plane::public_url::PublicUrl;
use crate::agent_plane::cors::AllowedOrigins;
use crate::api::Limits;
use crate::common::history::History;
use crate::common::model_aliases::ModelAliases;
use crate::common::redaction::Redaction;
use crate::dialect::ToolStrictLevel;
use crate::render::RenderSettings;
use crate::roles::RoleRules;
use crate::store::StoreSettings;
use crate::upstream::{Address, PoolSettings};

/// Everything that [`crate::start`] needs to know.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The vLLM servers, replicas of one model. A trial stays with one of them, for the sake of its prefix cache. Without
    /// any, every call is answered 503: enough for agents that call no model.
    pub upstreams: Vec<Address>,
    /// Where agents reach the agent plane; port 0 takes a free one.
    pub listen: Vec<SocketAddr>,
    /// Where runners and trainers reach the admin plane; never where agents can.
    pub admin: SocketAddr,
    /// The agent plane as it is told to agents; `http://` and the first of `listen` where none is given.
    pub public_url: Option<PublicUrl>,
    /// Where captures are kept.
    pub data_dir: PathBuf,
    /// How they are written, and for how long they are kept.
    pub store: StoreSettings,
    /// What clients of the admin plane must bear. Off loopback there must be one.
    pub admin_token: Option<String>,
    /// Whether a key that nobody opened a trial for opens one.
    pub implicit_trials: ImplicitTrials,
    /// Model names that agents say, each with the served model that they get.
    pub model_aliases: ModelAliases,
    /// An upstream that has sent nothing for this long is given up. Long, because an answer that does not stream is
    /// silent until it is whole, and a server that takes new weights is silent too.
    pub upstream_idle_timeout: Duration,
    /// The upstreams' `--logprobs-mode`, which their answers do not tell.
    pub logprobs_mode: String,
    /// The upstreams' `--tool-strict-level`, which their answers do not tell either.
    pub tool_strict_level: ToolStrictLevel,
    /// What becomes of earlier turns' tokens, for trials that do not say.
    pub history: History,
    /// What the served model's prompts are rendered with, to continue them token for token.
    pub render: RenderSettings,
    /// What tells what calls are for.
    pub roles: RoleRules,
    /// Which calls are trained on, by what they are for; trials may say otherwise.
    pub training: TrainingPolicy,
    /// How the servers are looked after.
    pub pool: PoolSettings,
    /// Bounds on trials, where a trial does not say.
    pub limits: Limits,
    /// What open trials may take of memory, in bytes, about: those that nobody has called for longest are read from the store
    /// when they are called for again.
    pub memory: u64,
    /// Connections that agents may hold at once; further ones wait to be taken.
    pub max_connections: NonZeroUsize,
    /// Whether requests may name URLs of images, audio and video, which the servers then fetch in the agent's place.
    pub allow_media_urls: bool,
    /// Origins whose web pages may call the agent plane from a browser.
    pub allowed_origins: AllowedOrigins,
    /// What is taken out of records and of what upstream says of errors.
    pub redaction: Arc<Redaction>,
    /// A client of the admin plane that takes nothing of its answer for this long is cut off.
    pub reader_patience: Duration,
}

/// Whether any key opens a trial: for trying things out, where nobody opens trials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImplicitTrials {
    /// Only keys of opened trials count.
    #[default]
    Never,
    /// Any key does, while only this machine can call.
    OnLoopback,
    /// Any key does, whoever can call.
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
    /// On free ports that only this machine reaches, all else at its default.
    pub fn on_loopback(upstreams: Vec<Address>, data_dir: PathBuf) -> Self {
        let free_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self {
            upstreams,
            listen: vec![free_port],
            admin: free_port,
            public_url: None,
            data_dir,
            store: StoreSettings::default(),
            admin_token: None,
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
            limits: Self::DEFAULT_LIMITS,
            memory: Self::DEFAULT_MEMORY,
            max_connections: Self::DEFAULT_MAX_CONNECTIONS,
            allow_media_urls: false,
            allowed_origins: AllowedOrigins::default(),
            redaction: Arc::default(),
            reader_patience: Self::DEFAULT_READER_PATIENCE,
        }
    }

    /// For [`Settings::upstream_idle_timeout`].
    pub const DEFAULT_UPSTREAM_IDLE_TIMEOUT: Duration = Duration::from_mins(30);
    /// For [`Settings::limits`]: no agent that works has so many calls under way, and one that floods leaves most of the
    /// store's places to others.
    pub const DEFAULT_LIMITS: Limits = Limits {
        max_calls: None,
        max_completion_tokens: None,
        max_calls_in_flight: Some(256),
        max_body_bytes: None,
    };
    /// For [`Settings::memory`].
    pub const DEFAULT_MEMORY: u64 = 160 << 20;
    /// For [`Settings::max_connections`].
    pub const DEFAULT_MAX_CONNECTIONS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(16_383);
    /// For [`Settings::reader_patience`].
    pub const DEFAULT_READER_PATIENCE: Duration = Duration::from_mins(1);
    /// vLLM's default for [`Settings::logprobs_mode`]: before temperature and penalties.
    pub const DEFAULT_LOGPROBS_MODE: &str = Self::LOGPROBS_MODES[0];
    /// The values of vLLM's `--logprobs-mode` that give logprobs rather than logits.
    pub const LOGPROBS_MODES: [&str; 2] = ["raw_logprobs", "processed_logprobs"];
}
