//! What of this host, or of its engine, is seen inside besides the image.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A directory of this host that an environment sees too, and cannot write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Where it is on this host, absolute.
    pub host: PathBuf,
    /// Where it is seen inside, absolute.
    pub inside: String,
}

/// What the user wants mounted: the form of compose files that Harbor takes. Unlike a [`Share`] it must be there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// What `source` is.
    #[serde(rename = "type")]
    pub kind: MountKind,
    /// A path of this host, or a volume's name.
    pub source: String,
    /// Where it is seen inside, absolute.
    pub target: String,
    /// It cannot be written inside.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

/// What is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MountKind {
    /// A file or directory of this host.
    Bind,
    /// A volume of the engine, made where there is none of this name. It stays.
    Volume,
}
