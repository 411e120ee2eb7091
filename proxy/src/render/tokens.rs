//! Converts texts to ids and back, with the model's `tokenizer.json`.

use std::fs;
use std::path::Path;

use rolltap_rollout::token::TokenId;
use sha2::{Digest, Sha256};
use tokenizers::Tokenizer;

use super::{LoadError, RenderError};

/// The number of hexadecimal digits in a tokenizer's hash: 64 bits.
const HASH_DIGITS: usize = 16;

/// A model's tokenizer.
pub(super) struct Tokens {
    tokenizer: Tokenizer,
    /// Tokens that are never split, longest first. If a token begins with another one, the longer token matches.
    added: Vec<(String, TokenId)>,
    pub(super) hash: String,
}

impl Tokens {
    /// Reads `tokenizer.json` of a model directory.
    pub(super) fn load(dir: &Path) -> Result<Self, LoadError> {
        let path = dir.join("tokenizer.json");
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(source) => return Err(LoadError::Read { path, source }),
        };
        let wrong = |reason: String| LoadError::Content { path: path.clone(), reason };
        let mut tokenizer = Tokenizer::from_bytes(&bytes).map_err(|error| wrong(error.to_string()))?;
        // transformers resets both in its own calls, whatever the file specifies.
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|error| wrong(error.to_string()))?;
        let mut added = Vec::new();
        for (id, token) in tokenizer.get_added_tokens_decoder() {
            added.push((token.content, TokenId::try_from(id).map_err(|error| wrong(error.to_string()))?));
        }
        added.sort_by_key(|(text, id)| (std::cmp::Reverse(text.len()), *id));
        let digest = Sha256::digest(&bytes);
        let hash: String = digest.iter().take(HASH_DIGITS / 2).map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { tokenizer, added, hash })
    }

    pub(super) fn encode(&self, text: &str) -> Result<Vec<TokenId>, RenderError> {
        let encoding = self.tokenizer.encode_fast(text, false).map_err(failure)?;
        let ids = encoding.get_ids().iter().map(|id| TokenId::try_from(*id));
        ids.collect::<Result<_, _>>().map_err(|error| RenderError::Tokenizer(error.to_string()))
    }

    pub(super) fn decode<'a>(
        &self,
        ids: impl IntoIterator<Item = &'a TokenId>,
    ) -> Result<String, RenderError> {
        let ids: Vec<u32> = ids.into_iter().map(|id| u32::from(*id)).collect();
        self.tokenizer.decode(&ids, false).map_err(failure)
    }

    pub(super) fn at_start(&self, text: &str) -> Option<(TokenId, &str)> {
        self.added
            .iter()
            .filter(|(token, _)| !token.is_empty() && text.starts_with(token.as_str()))
            .map(|(token, id)| (*id, token.as_str()))
            .next()
    }

    pub(super) fn id(&self, token: &str) -> Option<TokenId> {
        self.tokenizer.token_to_id(token).and_then(|id| TokenId::try_from(id).ok())
    }
}

fn failure(error: tokenizers::Error) -> RenderError {
    RenderError::Tokenizer(error.to_string())
}
