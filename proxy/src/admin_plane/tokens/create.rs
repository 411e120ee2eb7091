//! New tokens, for `rolltap admin-token`.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use jiff::Timestamp;

use super::file::AdminTokensError;
use super::{AdminTokens, TokenHash, TokenName};
use crate::admin_plane::role::AdminRole;

/// The beginning of each token. It makes tokens recognisable, for redaction and for scanners of secrets.
const PREFIX: &str = "rolltap-admin-";
const SECRET_BYTES: usize = 32;

/// A token that was just made. It is the only place of its text.
pub struct NewAdminToken {
    text: String,
    entry: String,
}

impl NewAdminToken {
    /// Makes a token of 256 random bits.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn generate(
        name: &TokenName,
        roles: &BTreeSet<AdminRole>,
        expires: Option<Timestamp>,
    ) -> Result<Self, AdminTokensError> {
        let mut secret = [0; SECRET_BYTES];
        getrandom::fill(&mut secret).map_err(AdminTokensError::Random)?;
        let text = secret.iter().fold(PREFIX.to_owned(), |text, byte| text + &format!("{byte:02x}"));
        let roles: Vec<_> = roles.iter().map(|role| format!("\"{role}\"")).collect();
        // Names, roles and hashes have no character that TOML escapes.
        let mut entry = format!(
            "[[token]]\nname = \"{name}\"\nroles = [{}]\nsha256 = \"{}\"\n",
            roles.join(", "),
            TokenHash::of(&text)
        );
        if let Some(expires) = expires {
            entry.push_str(&format!("expires = {expires}\n"));
        }
        Ok(Self { text, entry })
    }

    /// Returns the token, for its holder.
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// Returns the entry of the token in a file of tokens. It has the hash alone.
    pub fn entry(&self) -> &str {
        &self.entry
    }

    /// Appends the entry to a file of tokens. A new file is for its owner alone (0600).
    ///
    /// # Errors
    /// The file cannot be written, has wrong text, or has a token of this name.
    pub fn append_to(&self, path: &Path) -> Result<(), AdminTokensError> {
        let io = |source| AdminTokensError::Io { path: path.to_owned(), source };
        let mut whole = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(io(error)),
        };
        let before = whole.len();
        if !whole.is_empty() {
            // The blank line separates the tokens, also after a last line without an end.
            whole.extend_from_slice(if whole.ends_with(b"\n") { b"\n" } else { b"\n\n" });
        }
        whole.extend_from_slice(self.entry.as_bytes());
        AdminTokens::parse(&whole)
            .map_err(|invalid| AdminTokensError::Invalid { path: path.to_owned(), invalid })?;
        append(path, whole.get(before..).unwrap_or_default()).map_err(io)
    }
}

fn append(path: &Path, text: &[u8]) -> io::Result<()> {
    // One write: a proxy that reads the file meanwhile sees the whole entry or nothing of it.
    let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    file.write_all(text)?;
    file.sync_all()
}

impl std::fmt::Debug for NewAdminToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewAdminToken").field("entry", &self.entry).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::redaction::Redaction;

    fn new(name: &str) -> NewAdminToken {
        let expires = Some("2099-01-31T00:00:00Z".parse().unwrap());
        NewAdminToken::generate(&TokenName::new(name).unwrap(), &AdminRole::ALL.into(), expires).unwrap()
    }

    #[test]
    fn an_entry_is_what_the_parser_reads_and_its_token_is_found() {
        let token = new("ci");
        let tokens = AdminTokens::parse(token.entry().as_bytes()).unwrap();
        let found = tokens.find(token.reveal(), Timestamp::now()).unwrap();
        assert_eq!((found.name.as_str(), &found.roles), ("ci", &AdminRole::ALL.into()));
        assert_eq!(found.expires().unwrap().to_string(), "2099-01-31T00:00:00Z");
        assert_eq!(token.reveal().len(), PREFIX.len() + 64);
        assert_ne!(token.reveal(), new("ci").reveal());
    }

    #[test]
    fn a_token_is_neither_printed_nor_logged() {
        let token = new("ci");
        assert!(!format!("{token:?} {}", token.entry()).contains(&token.reveal()[PREFIX.len()..]));
        assert_eq!(Redaction::default().redacted(&format!("<{}>", token.reveal())), "<[redacted]>");
    }

    #[test]
    fn entries_are_appended_to_a_file_of_the_owner_and_names_are_unique() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens.toml");
        new("one").append_to(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // A last line without its end.
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.trim_end()).unwrap();
        new("two").append_to(&path).unwrap();
        let names = || {
            AdminTokens::read(&path).unwrap().iter().map(|token| token.name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(), ["one", "two"]);
        let error = new("one").append_to(&path).unwrap_err().to_string();
        assert!(error.ends_with("line 14: the token of line 2 has the same name"), "{error}");
        assert_eq!(names(), ["one", "two"]);
    }
}
