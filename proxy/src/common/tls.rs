//! TLS: the files with certificates and keys, and the byte streams of connections.

mod accepted;
mod files;
mod net_stream;
mod plane;

pub(crate) use accepted::AcceptedStream;
pub(crate) use files::add_authorities;
pub use files::{CertificateFiles, TlsError};
pub(crate) use net_stream::NetStream;
pub use plane::PlaneTls;
pub(crate) use plane::ServedTls;
