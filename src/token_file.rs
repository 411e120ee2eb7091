//! Files with a token: of the admin plane, and of the environment server.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, bail};

/// The mode bit with which every user of the machine may read a file.
const OTHERS_READ: u32 = 0o004;

/// Reads a token: the text of the file without the white space around it.
///
/// # Errors
/// The file cannot be read, or is empty. The server that uses the token checks its length.
pub(crate) fn read_token(path: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read token file {}", path.display()))?;
    let mode = std::fs::metadata(path).map_or(0, |metadata| metadata.permissions().mode());
    if mode & OTHERS_READ != 0 {
        tracing::warn!(
            "token file {} can be read by every user of this machine: chmod 600 it",
            path.display()
        );
    }
    match text.trim() {
        "" => bail!("token file {} is empty", path.display()),
        token => Ok(token.to_owned()),
    }
}
