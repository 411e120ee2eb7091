//! Files of tokens: TOML with a table `[[token]]` for each.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Deserialize;
use toml::Spanned;
use toml::value::Datetime;

use super::{AdminToken, AdminTokens, TokenHash, TokenName};
use crate::admin_plane::role::AdminRole;

/// The largest file, in bytes. It has room for thousands of tokens.
const LARGEST: u64 = 1 << 20;
/// The mode bit with which every user of the machine may write a file.
const OTHERS_WRITE: u32 = 0o002;

/// Why a file of tokens cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AdminTokensError {
    /// The file cannot be read or written.
    #[error("cannot use the admin tokens in {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The text of the file is wrong.
    #[error("cannot use the admin tokens in {}: {invalid}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The place and the reason.
        invalid: InvalidTokens,
    },
    /// The system has no randomness for a new token.
    #[error("cannot make a token: {0}")]
    Random(getrandom::Error),
}

/// The first problem in the text of a file of tokens. It quotes no value, because a value might be a token.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct InvalidTokens {
    /// The line, from 1.
    pub line: usize,
    /// The rule that the line breaks.
    pub reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokensFile {
    #[serde(default)]
    token: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: Spanned<TokenName>,
    roles: Spanned<Vec<Spanned<String>>>,
    sha256: Spanned<TokenHash>,
    expires: Option<Spanned<Datetime>>,
}

impl AdminTokens {
    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read, or its text is wrong.
    pub(crate) fn read(path: &Path) -> Result<Self, AdminTokensError> {
        let text = text_of(path).map_err(|source| AdminTokensError::Io { path: path.to_owned(), source })?;
        Self::parse(&text).map_err(|invalid| AdminTokensError::Invalid { path: path.to_owned(), invalid })
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// The first wrong line.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, InvalidTokens> {
        let at =
            |span: Range<usize>, reason: String| InvalidTokens { line: line_of(text, span.start), reason };
        let unicode = str::from_utf8(text)
            .map_err(|error| at(error.valid_up_to()..0, "the text is not UTF-8".to_owned()))?;
        let file: TokensFile =
            toml::from_str(unicode).map_err(|error| at(error.span().unwrap_or(0..0), reason(&error)))?;
        if file.token.is_empty() {
            // A file that another program has just truncated has no token either, and must not lock everyone out.
            let reason = "the file has no [[token]]; `rolltap admin-token` adds one".to_owned();
            return Err(at(0..0, reason));
        }
        let (mut names, mut hashes) = (BTreeMap::new(), BTreeMap::new());
        let mut tokens = Vec::with_capacity(file.token.len());
        for entry in file.token {
            let (name_at, hash_at) = (entry.name.span(), entry.sha256.span());
            let line = line_of(text, name_at.start);
            if let Some(first) = names.insert(entry.name.get_ref().clone(), line) {
                return Err(at(name_at, format!("the token of line {first} has the same name")));
            }
            if let Some(first) = hashes.insert(*entry.sha256.get_ref(), line) {
                return Err(at(hash_at, format!("the token of line {first} has the same sha256")));
            }
            tokens.push(entry.token().map_err(|(span, reason)| at(span, reason))?);
        }
        Ok(Self(tokens))
    }
}

impl Entry {
    fn token(self) -> Result<AdminToken, (Range<usize>, String)> {
        let Self { name, roles, sha256, expires } = self;
        let roles_at = roles.span();
        let mut set = BTreeSet::new();
        for role in roles.into_inner() {
            let known = AdminRole::named(role.get_ref());
            let unknown = || format!("a role is one of {}", AdminRole::NAMES.join(", "));
            set.insert(known.ok_or_else(|| (role.span(), unknown()))?);
        }
        if set.is_empty() {
            return Err((roles_at, format!("a token has one of the roles {}", AdminRole::NAMES.join(", "))));
        }
        let expires = expires.map(|expires| {
            let time = expires.get_ref().to_string().parse::<Timestamp>();
            let reason = "expires is a time with its zone, such as 2027-01-31T00:00:00Z";
            time.map_err(|_| (expires.span(), reason.to_owned()))
        });
        Ok(AdminToken {
            name: name.into_inner(),
            roles: set,
            hash: sha256.into_inner(),
            expires: expires.transpose()?,
        })
    }
}

/// Reads the bytes of a plain file of at most [`LARGEST`] bytes, and warns if every user may write the file.
fn text_of(path: &Path) -> io::Result<Vec<u8>> {
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a plain file"));
    }
    if metadata.permissions().mode() & OTHERS_WRITE != 0 {
        tracing::warn!("every user of this machine can add tokens to {}: chmod o-w it", path.display());
    }
    let mut text = Vec::new();
    File::open(path)?.take(LARGEST + 1).read_to_end(&mut text)?;
    match text.len() as u64 {
        length if length > LARGEST => Err(io::Error::other(format!("it has more than {LARGEST} bytes"))),
        _ => Ok(text),
    }
}

/// Returns the line of a byte, from 1.
fn line_of(text: &[u8], byte: usize) -> usize {
    1 + text.iter().take(byte).filter(|&&byte| byte == b'\n').count()
}

/// Returns the reason of an error of the TOML parser without the values that serde quotes.
fn reason(error: &toml::de::Error) -> String {
    let message = error.message();
    match message.split_once("invalid type: ").map(|(_, rest)| rest.rsplit_once(", expected ")) {
        Some(Some((_, expected))) => format!("the value has the wrong type: expected {expected}"),
        Some(None) => "the value has the wrong type".to_owned(),
        None => message.trim_end().replace('\n', "; "),
    }
}

#[cfg(test)]
mod tests;
