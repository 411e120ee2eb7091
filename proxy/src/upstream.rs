//! The vLLM servers behind the proxy. [`Pool`] chooses the server of a call, and [`replica`] holds the state of a
//! server. `health` checks the servers, and [`body`] is the body of an answer. [`http1`] sends requests and reads
//! answers. [`cache_admission`] decides which trials may be open.

mod address;
mod body;
mod cache_admission;
mod client;
mod flaws;
mod health;
mod http1;
mod http_proxy;
mod ids_support;
mod model_card;
mod parser_question;
pub(crate) mod policy;
mod pool;
mod replica;
mod schema;
mod send_error;
mod served_by;
mod session;
mod session_end;
mod settings;
mod tls;

pub use address::{Address, InvalidAddress};
pub(crate) use body::UpstreamBody;
pub use cache_admission::TrialAdmission;
pub use cache_admission::ledger::{CacheLedger, CacheStatus, EndedCall, FIXED_TRIALS, ServerId};
pub use cache_admission::report::{CacheReport, UnusableReport};
pub use client::{AskError, UpstreamClient};
use http::{HeaderMap, HeaderName, HeaderValue, header};
pub use http_proxy::{HttpProxy, InvalidHttpProxy};
pub(crate) use http1::{AnswerBody, AnswerError, Connections, ReadLimits, RequestHead};
pub(crate) use model_card::ModelCard;
pub use model_card::SamplingDefaults;
pub(crate) use pool::{AddError, Pool};
pub(crate) use replica::{Replica, ReplicaId};
pub(crate) use schema::IdsPlace;
pub(crate) use send_error::{SendError, SendFailure};
pub(crate) use served_by::ServedBy;
pub(crate) use session::Session;
pub use session::{InvalidSessionHeader, SessionHeaders};
pub use settings::PoolSettings;
pub use tls::UpstreamTls;

/// The headers of one connection alone (RFC 9110 §7.6.1), and those that describe the framing of a body.
const HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
];

/// Removes the headers of one connection alone, and those that describe the framing of a body.
pub(crate) fn without_framing(mut headers: HeaderMap<HeaderValue>) -> HeaderMap<HeaderValue> {
    let removed: Vec<_> = headers.keys().filter(|name| is_hop_by_hop(name, &headers)).cloned().collect();
    for name in removed {
        headers.remove(name);
    }
    headers
}

/// Returns the headers that [`without_framing`] keeps.
pub(crate) fn end_to_end(headers: &HeaderMap) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
    headers.iter().filter(|(name, _)| !is_hop_by_hop(name, headers))
}

/// Whether a header is valid for one connection alone. The header `Connection` names further ones.
fn is_hop_by_hop(name: &HeaderName, headers: &HeaderMap) -> bool {
    HOP_BY_HOP.contains(name)
        || connection_options(headers).any(|option| option.eq_ignore_ascii_case(name.as_str().as_bytes()))
}

/// Returns the options of the header `Connection`.
fn connection_options(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let values = headers.get_all(header::CONNECTION).iter();
    values.flat_map(|value| value.as_bytes().split(|&byte| byte == b',')).map(<[u8]>::trim_ascii)
}
