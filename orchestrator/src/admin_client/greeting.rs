//! The first request to an admin plane.

use std::time::Duration;

use reqwest::{Method, StatusCode};

use super::{AdminClient, AdminError, send};

/// The pause before an absent proxy is asked again.
const AGAIN: Duration = Duration::from_secs(2);

/// The part of a cluster that greets a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Greeter {
    /// Its token needs the role `read`.
    Reader,
    /// Its token needs no role `read`.
    Worker,
}

impl AdminClient {
    /// Checks that the proxy is reachable and accepts the token, which needs the role `read`. Does not retry: an error at
    /// the first request usually means a wrong address.
    pub async fn greet(&self) -> Result<(), AdminError> {
        let (request, name) = self.request::<()>(Method::GET, "/v1/upstreams", None);
        send(request, &name).await.map(drop)
    }

    /// Checks that the proxy is reachable and that the token is valid, for a client that needs no role `read`. Does not
    /// retry.
    pub(crate) async fn greet_without_reading(&self) -> Result<(), AdminError> {
        match self.greet().await {
            // An invalid token is a 401. A client without a token is refused for another reason than its roles.
            Err(AdminError::Refused { status, .. })
                if status == StatusCode::FORBIDDEN.as_u16() && self.token.is_some() =>
            {
                Ok(())
            }
            greeted => greeted,
        }
    }

    /// Waits until the proxy is present, and checks that it accepts the token. The parts of a cluster start in any order.
    pub(crate) async fn greet_once_present(&self, greeter: Greeter) -> Result<(), AdminError> {
        let mut is_first = true;
        loop {
            let greeted = match greeter {
                Greeter::Reader => self.greet().await,
                Greeter::Worker => self.greet_without_reading().await,
            };
            match greeted {
                Err(error) if error.is_of_an_absent_proxy() => {
                    if std::mem::take(&mut is_first) {
                        tracing::warn!(%error, "waiting for the proxy");
                    }
                }
                greeted => return greeted,
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}
