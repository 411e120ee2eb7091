//! The tokens of the admin plane: names, hashes, roles and expiry.
//!
//! A file holds hashes alone ([`file`]), and is read again when it changes ([`live`]). [`create`] makes an entry.

pub(crate) mod create;
pub(crate) mod file;
pub(crate) mod live;

use std::collections::BTreeSet;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::role::AdminRole;

/// The tokens of one file. There is at least one, and no two have the same name or the same hash.
#[derive(Debug)]
pub(crate) struct AdminTokens(Vec<AdminToken>);

/// A token with its name and its roles. The token itself is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdminToken {
    pub(crate) name: TokenName,
    pub(crate) roles: BTreeSet<AdminRole>,
    hash: TokenHash,
    /// The first moment at which the token is not valid. `None` if it never expires.
    expires: Option<Timestamp>,
}

/// The name of a token, for audit logs and errors. It is unique in its file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct TokenName(String);

/// The rule that the text of a [`TokenName`] breaks.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTokenName {
    /// The text has other characters, or is too long.
    #[error("a name has 1 to 64 letters, digits, '.', '_' or '-', the first a letter or digit")]
    Characters,
    /// The name has a meaning of its own.
    #[error("the name {RESERVED} is reserved for the token of --admin-token-file")]
    Reserved,
}

/// The name of the token of `--admin-token-file`.
const RESERVED: &str = "admin-token-file";
/// The largest number of characters of a name.
const LONGEST_NAME: usize = 64;

/// The SHA-256 hash of a token.
///
/// A token has 256 random bits, so its hash does not help to guess it. A slow hash, as for passwords, is unnecessary.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct TokenHash([u8; 32]);

/// A text that is not the hash of a token. The error leaves out the text, because it might be a token.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("sha256 is the SHA-256 hash of the token, as 64 hexadecimal digits")]
pub(crate) struct InvalidHash;

impl AdminTokens {
    /// Returns the token that a client sent, if it is valid at this time.
    pub(crate) fn find(&self, sent: &str, now: Timestamp) -> Option<&AdminToken> {
        let sent = TokenHash::of(sent);
        // Each token is compared, so that the time does not reveal the place of the right one.
        self.0.iter().fold(None, |found, token| if token.is(&sent, now) { Some(token) } else { found })
    }

    /// Returns the tokens in the order of the file.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &AdminToken> {
        self.0.iter()
    }
}

impl AdminToken {
    /// Returns the token of `--admin-token-file`, which has all roles and never expires.
    pub(crate) fn of_token_file(token: &str) -> Self {
        Self {
            name: TokenName(RESERVED.to_owned()),
            roles: AdminRole::ALL.into(),
            hash: TokenHash::of(token),
            expires: None,
        }
    }

    /// Whether `sent` is the hash of this token, and the token is valid at this time.
    pub(crate) fn is(&self, sent: &TokenHash, now: Timestamp) -> bool {
        let is_equal = self.hash.is(sent);
        is_equal && self.expires.is_none_or(|expires| now < expires)
    }

    /// Returns the first moment at which the token is not valid.
    pub(crate) fn expires(&self) -> Option<Timestamp> {
        self.expires
    }
}

impl TokenName {
    /// Accepts the text if it fits the rules of names.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn new(text: impl Into<String>) -> Result<Self, InvalidTokenName> {
        let text = text.into();
        let starts_well = text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        match () {
            () if !starts_well || text.len() > LONGEST_NAME || !text.bytes().all(fits) => {
                Err(InvalidTokenName::Characters)
            }
            () if text == RESERVED => Err(InvalidTokenName::Reserved),
            () => Ok(Self(text)),
        }
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for TokenName {
    type Error = InvalidTokenName;
    fn try_from(text: String) -> Result<Self, InvalidTokenName> {
        Self::new(text)
    }
}

impl fmt::Display for TokenName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TokenHash {
    pub(crate) fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    /// Compares in a time that does not depend on the hashes.
    fn is(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl TryFrom<String> for TokenHash {
    type Error = InvalidHash;
    fn try_from(text: String) -> Result<Self, InvalidHash> {
        if text.len() != 64 || !text.is_ascii() {
            return Err(InvalidHash);
        }
        let mut hash = [0; 32];
        for (byte, at) in hash.iter_mut().zip((0..64).step_by(2)) {
            let digits = text.get(at..at + 2).filter(|digits| digits.bytes().all(|c| c.is_ascii_hexdigit()));
            *byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).ok_or(InvalidHash)?;
        }
        Ok(Self(hash))
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_by_its_text_alone_until_it_expires() {
        let expires: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        let token = |name: &str, text: &str, expires| AdminToken {
            name: TokenName::new(name).unwrap(),
            roles: AdminRole::ALL.into(),
            hash: TokenHash::of(text),
            expires,
        };
        let tokens = AdminTokens(vec![token("short", "one", Some(expires)), token("long", "two", None)]);
        let before = expires - jiff::SignedDuration::from_secs(1);
        let find = |sent, now| tokens.find(sent, now).map(|token| token.name.as_str());
        assert_eq!(find("one", before), Some("short"));
        assert_eq!(find("one", expires), None);
        assert_eq!(find("two", expires), Some("long"));
        for wrong in ["", "on", "one ", "One", &TokenHash::of("one").to_string()] {
            assert_eq!(find(wrong, before), None, "{wrong:?}");
        }
    }

    #[test]
    fn names_fit_in_a_line_of_a_log() {
        for name in ["ci", "trainer-7", "a.b_c", &"x".repeat(64)] {
            assert_eq!(TokenName::new(name).unwrap().as_str(), name);
        }
        for name in ["", "-a", "a b", "a\nb", "é", &"x".repeat(65)] {
            assert_eq!(TokenName::new(name).unwrap_err(), InvalidTokenName::Characters, "{name:?}");
        }
        assert_eq!(TokenName::new(RESERVED).unwrap_err(), InvalidTokenName::Reserved);
    }

    #[test]
    fn a_hash_is_64_hexadecimal_digits_and_is_not_printed_by_debug() {
        let hash = TokenHash::of("token");
        let text = hash.to_string();
        assert_eq!(TokenHash::try_from(text.clone()), Ok(hash));
        assert_eq!(TokenHash::try_from(text.to_uppercase()), Ok(hash));
        for wrong in ["", &text[1..], &format!("{text}0"), &text.replace(&text[..1], "+"), &"é".repeat(32)] {
            assert_eq!(TokenHash::try_from(wrong.to_owned()), Err(InvalidHash), "{wrong}");
        }
        assert!(!format!("{hash:?}").contains(&text[..8]));
    }
}
