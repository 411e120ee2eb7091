//! The rule for the token of a server: off loopback there must be one, and none may be guessable.

use std::net::SocketAddr;

use super::admission::Admission;

/// Why a server does not start with its token.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnsafeToken {
    /// Anyone on the network could call the server.
    #[error("{server} at {address} is not on loopback, so it needs a token: give {flag}")]
    Missing {
        /// The name of the server.
        server: &'static str,
        /// The address that the server listens on.
        address: SocketAddr,
        /// The option that names the file with the token.
        flag: &'static str,
    },
    /// The token could be guessed.
    #[error(
        "the token of {flag} has {length} characters, and needs {least} at least: make one with `openssl rand -hex 32`",
        least = Admission::SHORTEST_TOKEN
    )]
    TooShort {
        /// The option that names the file with the token.
        flag: &'static str,
        /// The number of characters of the token.
        length: usize,
    },
}

impl Admission {
    /// The minimal number of characters of a token.
    pub const SHORTEST_TOKEN: usize = 16;

    /// Checks the token of a server that listens on `address`.
    ///
    /// # Errors
    /// The token is missing off loopback, or is too short.
    pub fn check_token(&self, address: SocketAddr) -> Result<(), UnsafeToken> {
        let Self { server, flag, token } = self;
        let Some(token) = token else {
            let missing = UnsafeToken::Missing { server, address, flag };
            return if address.ip().is_loopback() { Ok(()) } else { Err(missing) };
        };
        match token.chars().count() {
            length if length < Self::SHORTEST_TOKEN => Err(UnsafeToken::TooShort { flag, length }),
            _ => Ok(()),
        }
    }
}
