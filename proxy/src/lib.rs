//! Contains the proxy: the agent plane for agents, the admin plane for trainers and runners, and the store of their
//! calls.
//!
//! [`start`] runs the proxy inside any tokio program; `rolltap proxy` only reads the settings and calls it.
//! `layers.toml` beside this folder lists the modules from top to bottom: each module imports only modules below it.

mod admin_plane;
mod agent_plane;
pub mod api;
mod common;
mod dialect;
mod feed;
mod lifecycle;
mod prefix;
mod recorder;
mod render;
pub mod roles;
mod settings;
mod start;
pub mod store;
pub mod traces;
mod trial;
mod upstream;
mod wire;

pub use admin_plane::admission::{Admission, NotAdmitted};
pub use admin_plane::audit::AuditLogError;
pub use admin_plane::role::AdminRole;
pub use admin_plane::submissions::{SubmissionDesk, SubmissionPage, SubmissionRefusal, SubmissionRequest};
pub use admin_plane::token_rule::UnsafeToken;
pub use admin_plane::tokens::create::NewAdminToken;
pub use admin_plane::tokens::file::{AdminTokensError, InvalidTokens};
pub use admin_plane::tokens::{InvalidTokenName, TokenName};
pub use admin_plane::{PAGES_PATH, openapi};
pub use agent_plane::cors::{AllowedOrigins, InvalidOrigin};
pub use agent_plane::gateway_page::{GATEWAY_TIMEOUT_REMEDY, GATEWAY_TOO_LARGE_REMEDY};
pub use agent_plane::public_url::{InvalidPublicUrl, PublicUrl};
pub use common::history::{History, InvalidHistory};
pub use common::in_words::in_words;
pub use common::model_aliases::ModelAliases;
pub use common::redaction::{InvalidRedaction, Redaction};
pub use common::seconds::{InvalidSeconds, Seconds};
pub use common::suggest;
pub use common::tls::{CertificateFiles, PlaneTls, TlsError};
pub use common::to_the_end::to_the_end;
pub use dialect::{InvalidSampling, ToolStrictLevel, check_sampling};
pub use prefix::RefutedKind;
pub use render::{ContentFormat, LoadError, RenderSettings};
pub use rolltap_rollout::training::TrainingPolicy;
pub use settings::{ImplicitTrials, Settings};
pub use start::{
    NodeError, NodeSettings, NodeStatus, RunningNode, RunningProxy, ShutdownError, StartError, start,
    start_node,
};
pub use upstream::{
    Address, AskError, CacheLedger, CacheReport, CacheStatus, EndedCall, FIXED_TRIALS, HttpProxy,
    InvalidAddress, InvalidHttpProxy, InvalidSessionHeader, PoolSettings, SamplingDefaults, ServerId,
    SessionHeaders, TrialAdmission, UnusableReport, UpstreamClient, UpstreamTls,
};
