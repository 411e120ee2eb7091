//! The proxy: the agent plane that agents call, the admin plane that trainers and runners call, what is kept of the
//! calls between them, and a vLLM-shaped simulator.
//!
//! [`start`] runs it inside of any tokio program; the `rolltap proxy` command is a page around it.

mod admin_plane;
mod admission;
mod agent_error;
mod agent_plane;
pub mod api;
mod call_under_way;
mod causes;
mod clock;
mod cors;
mod dialect;
mod endpoint;
mod exchange;
mod feed;
mod history;
mod identity;
mod inbox;
mod json_cursor;
mod metrics;
mod model_aliases;
mod opening;
mod passing;
mod policy;
mod prefix;
mod public_url;
mod recorder;
mod redaction;
mod render;
mod replay;
mod request_body;
mod retry;
pub mod roles;
mod running;
mod seconds;
mod server;
mod settings;
mod silence;
mod silent_connections;
pub mod sim;
mod sleeping;
mod sse;
pub mod store;
mod streaming;
mod surgery;
mod tap;
mod trial;
mod trial_key;
mod trials;
mod upstream;

pub use admission::{Admission, NotAdmitted};
pub use cors::{AllowedOrigins, InvalidOrigin};
pub use dialect::ToolStrictLevel;
pub use history::{History, InvalidHistory};
pub use model_aliases::ModelAliases;
pub use public_url::{InvalidPublicUrl, PublicUrl};
pub use redaction::{InvalidRedaction, Redaction};
pub use render::{ContentFormat, LoadError, RenderSettings};
pub use rolltap_rollout::training::TrainingPolicy;
pub use running::{RunningProxy, ShutdownError, StartError, start};
pub use seconds::{InvalidSeconds, Seconds};
pub use settings::{ImplicitTrials, Settings};
pub use upstream::{Address, InvalidAddress, PoolSettings, SamplingDefaults};
