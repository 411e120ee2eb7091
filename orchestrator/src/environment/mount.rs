//! Directories of this host, and volumes of its engine, that are mounted in an environment.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A directory of this host that an environment can read and cannot write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The path on this host, absolute.
    pub host: PathBuf,
    /// The path in the environment, absolute.
    pub inside: String,
}

/// A mount that the user configures, in the format of compose files that Harbor accepts. Unlike the source of a
/// [`Share`], its source must exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// The kind of `source`.
    #[serde(rename = "type")]
    pub kind: MountKind,
    /// A path on this host, or the name of a volume.
    pub source: String,
    /// The path in the environment, absolute.
    pub target: String,
    /// Whether it cannot be written from inside.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

/// The kind of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MountKind {
    /// A file or directory of this host.
    Bind,
    /// A volume of the engine, which is created if it is missing. It is never removed.
    Volume,
}
