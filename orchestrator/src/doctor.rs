//! `rolltap doctor`: examines a server as agents will use it, and names what to change on which side.
//!
//! The questions to the server itself come first ([`server`]). Then an embedded proxy captures calls of each kind
//! ([`calls`]), so that the findings are those of a real job. A job makes one of these calls before it starts
//! ([`captures`]).

mod calls;
mod capture;
mod features;
mod ledger;
mod probe;
mod report;
mod server;
mod streams;

use std::time::Duration;

use rolltap_proxy::{
    Address, History, HttpProxy, RenderSettings, SessionHeaders, StartError, TlsError, UpstreamTls,
};

use crate::admin_client::AdminError;
use crate::doctor::ledger::Ledger;
use crate::doctor::probe::Probe;
pub use crate::doctor::report::{Finding, Report, Verdict};
pub(crate) use crate::doctor::server::read_models;

/// The settings of an examination.
#[derive(Debug)]
pub struct DoctorSettings {
    /// The server.
    pub address: Address,
    /// The files of TLS, for an `https` address.
    pub tls: UpstreamTls,
    /// The HTTP proxy in front of the server.
    pub http_proxy: Option<HttpProxy>,
    /// The headers in which the server gets the session id of a conversation.
    pub session_headers: SessionHeaders,
    /// The model that agents request. `None` for the only model of the server.
    pub model: Option<String>,
    /// The settings for rendering prompts.
    pub render: RenderSettings,
    /// How the proxy treats the tokens of earlier turns.
    pub history: History,
    /// The longest time without a byte of an answer.
    pub timeout: Duration,
}

/// Why an examination or a check of captures cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// The files of TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The embedded proxy does not start.
    #[error("cannot start the proxy of the examination")]
    Proxy(#[from] StartError),
    /// The embedded proxy does not answer.
    #[error("the proxy of the examination does not answer")]
    Admin(#[from] AdminError),
    /// A temporary directory cannot be made.
    #[error("cannot make a temporary directory for the captures of the examination")]
    Directory(#[from] std::io::Error),
    /// The HTTP client cannot be made.
    #[error("cannot make an HTTP client")]
    Client(#[from] rolltap_agent::ClientError),
}

/// Examines a server. `progress` gets the name of each part before it begins.
///
/// # Errors
/// The examination itself cannot be made. Each problem of the server is a finding.
pub async fn examine(
    settings: DoctorSettings,
    mut progress: impl FnMut(&'static str),
) -> Result<Report, DoctorError> {
    let upstream = settings.address.to_string();
    let mut ledger = Ledger::default();
    progress("the server's own endpoints");
    let model = server::question(&settings, &mut ledger).await?;
    if let Some(served) = &model {
        let probe = Probe::start(settings, served.clone()).await?;
        calls::make(&probe, &mut ledger, &mut progress).await;
        probe.stop().await;
    }
    Ok(Report { upstream, model: model.map(|served| served.name), findings: ledger.into_findings() })
}

/// Makes one short call, and returns the problems of its record: none, if a trainer can use its tokens.
///
/// # Errors
/// The call cannot be made.
pub async fn captures(settings: DoctorSettings, model: String) -> Result<Vec<Finding>, DoctorError> {
    let mut ledger = Ledger::default();
    let probe = Probe::start(settings, server::Served { name: model, max_len: None }).await?;
    calls::make_first(&probe, &mut ledger).await;
    probe.stop().await;
    Ok(ledger.into_findings().into_iter().filter(|finding| finding.verdict == Verdict::Broken).collect())
}
