//! Reads a tokenizer, for the texts of token ids.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use tokenizers::Tokenizer;

/// The tokenizer cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the tokenizer {}: {reason}; expected a tokenizer.json, or a directory with one", path.display())]
pub struct TokenizerError {
    /// The file.
    pub path: PathBuf,
    /// The reason.
    pub reason: String,
}

/// Reads a `tokenizer.json`, or that of a model directory.
///
/// # Errors
/// The file cannot be read.
pub fn read_tokenizer(path: &Path) -> Result<Tokenizer, TokenizerError> {
    let file = if path.is_dir() { path.join("tokenizer.json") } else { path.to_owned() };
    Tokenizer::from_file(&file).map_err(|error| TokenizerError { path: file, reason: error.to_string() })
}

/// A tokenizer that is read when the first page needs it. `None` shows ids.
pub(crate) type LazyTokenizer = LazyLock<Option<Tokenizer>, Box<dyn FnOnce() -> Option<Tokenizer> + Send>>;
