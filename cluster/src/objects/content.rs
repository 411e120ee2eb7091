//! The content of an object.

use serde::{Deserialize, Serialize};

use super::digest::Sha256;

/// The content of an object, by its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Content {
    /// The checksum.
    pub sha256: Sha256,
    /// The number of bytes.
    pub bytes: u64,
}
