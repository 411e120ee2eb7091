//! An agent's programs, installed once per version into a directory of this host that its trials share read-only.
//!
//! A layer is made under a temporary name and renamed when it is complete, so that an existing layer is always
//! complete. The name contains a hash over its inputs, and a layer never changes afterwards.

mod installer;
mod npm;
mod python;
mod script;

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::json;
use sha2::{Digest, Sha256};

pub(super) use npm::arch as node_arch;

use super::definition::{Definition, Install};
use crate::common::cache;
use crate::environment::Share;

/// The directory of layers in a container.
const INSIDE: &str = "/opt/rolltap/agents";
/// The file that marks a complete layer.
pub(super) const MARK: &str = "rolltap-layer.json";
/// The version of the installers. It changes if they make a different layer from the same definition.
const RECIPE: &str = "1";

/// An installed agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layer {
    /// The directory on this host.
    pub(crate) host: PathBuf,
    /// The directory in a container.
    pub(crate) inside: String,
}

impl Layer {
    pub(crate) fn share(&self) -> Share {
        Share { host: self.host.clone(), inside: self.inside.clone() }
    }
}

/// Why an agent is not installed.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// The directory of layers cannot be used.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// The action that failed.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// There is no directory for layers.
    #[error("no place for installed agents: set HOME, XDG_CACHE_HOME or ROLLTAP_CACHE_DIR")]
    NoCache,
    /// A program that the installer needs is missing.
    #[error("agent {agent:?} is installed by {program}, which is not on PATH: {advice}")]
    NoProgram {
        /// The agent.
        agent: String,
        /// The program.
        program: &'static str,
        /// How to install the program.
        advice: &'static str,
    },
    /// No Python of this host supports the agent.
    #[error(
        "agent {agent:?} needs Python {wanted} with pip on this host, to be copied; found: {found}. Install one, or name \
         it in ROLLTAP_PYTHON"
    )]
    NoPython {
        /// The agent.
        agent: String,
        /// The supported versions.
        wanted: String,
        /// The interpreters that were found.
        found: String,
    },
    /// The Python does not have Harbor.
    #[error("agent \"terminus-2\" needs Harbor in {}: {why}; name a Python that has it with --harbor-python or ROLLTAP_HARBOR_PYTHON", python.display())]
    NoHarbor {
        /// The interpreter.
        python: PathBuf,
        /// Its error.
        why: String,
    },
    /// An installer failed.
    #[error("agent {agent:?} version {version} could not be installed: {step} {ended}; last lines:\n{tail}")]
    Failed {
        /// The agent.
        agent: String,
        /// Its version.
        version: String,
        /// The step that failed.
        step: String,
        /// How the step ended.
        ended: String,
        /// The last lines of its output.
        tail: String,
    },
}

impl LayerError {
    fn io<'p>(action: &'static str, path: &'p Path) -> impl FnOnce(io::Error) -> Self + use<'p> {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }
}

/// Returns the layer of this agent, and installs it if necessary. Concurrent callers wait for the first.
pub(crate) async fn layer(definition: &Definition, version: &str) -> Result<Option<Layer>, LayerError> {
    if definition.install == Install::Image {
        return Ok(None);
    }
    Ok(Some(layer_in(&cache_dir()?, definition, version).await?))
}

async fn layer_in(layers: &Path, definition: &Definition, version: &str) -> Result<Layer, LayerError> {
    fs::create_dir_all(layers).map_err(LayerError::io("create", layers))?;
    let name = key(definition, version);
    let host = layers.join(&name);
    let layer = Layer { inside: format!("{INSIDE}/{}", definition.name), host: host.clone() };
    if is_whole(&host) {
        return Ok(layer);
    }
    let lock = layers.join(format!("{name}.lock"));
    let waits = || tracing::info!("waiting for another run that installs agent {}", definition.name);
    let _turn = cache::turn(lock.clone(), waits).await.map_err(LayerError::io("lock", &lock))?;
    // Another run may have installed the layer while this one waited.
    if !is_whole(&host) {
        make(definition, version, &host, &layers.join(format!("{name}.partial"))).await?;
    }
    Ok(layer)
}

/// Returns whether the default version of the agent is installed.
pub fn is_installed(definition: &Definition) -> bool {
    let version = definition.install.default_version();
    version
        .zip(cache_dir().ok())
        .is_some_and(|(version, cache)| is_whole(&cache.join(key(definition, version))))
}

/// Returns `$ROLLTAP_CACHE_DIR/agents`, or the directory in the user's cache.
fn cache_dir() -> Result<PathBuf, LayerError> {
    let dir = cache::variable("ROLLTAP_CACHE_DIR").or_else(cache::of_user).ok_or(LayerError::NoCache)?;
    let dir = std::path::absolute(&dir).map_err(LayerError::io("find", &dir))?;
    Ok(dir.join("agents"))
}

/// Returns a layer's name, which contains its inputs.
fn key(definition: &Definition, version: &str) -> String {
    let digest = Sha256::new()
        .chain_update(RECIPE)
        .chain_update(format!("{:?}", definition.install))
        .chain_update(std::env::consts::ARCH)
        .finalize();
    let digest: String = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{version}-{}-{digest}", definition.name, std::env::consts::ARCH)
}

fn is_whole(dir: &Path) -> bool {
    dir.join(MARK).is_file()
}

async fn make(definition: &Definition, version: &str, host: &Path, partial: &Path) -> Result<(), LayerError> {
    // A run that died left this directory. The lock excludes every other writer.
    if partial.exists() {
        fs::remove_dir_all(partial).map_err(LayerError::io("remove", partial))?;
    }
    fs::create_dir(partial).map_err(LayerError::io("create", partial))?;
    let begun = std::time::Instant::now();
    tracing::info!("installing agent {} {version} (once; cached in {})", definition.name, host.display());
    let installer = installer::Installer { agent: &definition.name, version, dir: partial };
    let installed = match &definition.install {
        Install::Image => Ok(()),
        Install::Npm { package, node, .. } => npm::install(&installer, package, *node).await,
        Install::Pypi { package, python, with, .. } => {
            python::install(&installer, package, python, with).await
        }
        Install::Script { script, .. } => script::install(&installer, script).await,
    };
    if let Err(error) = installed {
        if let Err(left) = fs::remove_dir_all(partial) {
            tracing::warn!(path = %partial.display(), error = %left, "cannot remove a half-installed agent");
        }
        return Err(error);
    }
    let mark = json!({"agent": definition.name, "version": version, "machine": std::env::consts::ARCH});
    let mark_file = partial.join(MARK);
    // The mark is written last, because its presence means that the layer is complete.
    fs::write(&mark_file, format!("{mark:#}\n")).map_err(LayerError::io("write", &mark_file))?;
    open_to_all(partial)?;
    fs::rename(partial, host).map_err(LayerError::io("move into place", host))?;
    tracing::info!(
        "agent {} {version} is installed, {:.0} s",
        definition.name,
        begun.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Makes the files readable to all, because the agent may run as any user of the image.
fn open_to_all(path: &Path) -> Result<(), LayerError> {
    let metadata = fs::symlink_metadata(path).map_err(LayerError::io("look at", path))?;
    if metadata.is_symlink() {
        return Ok(());
    }
    let mode = metadata.permissions().mode();
    let searched = metadata.is_dir() || mode & 0o100 != 0;
    let wanted = mode | if searched { 0o555 } else { 0o444 };
    if wanted != mode {
        fs::set_permissions(path, Permissions::from_mode(wanted)).map_err(LayerError::io("open", path))?;
    }
    if metadata.is_dir() {
        for entry in fs::read_dir(path).map_err(LayerError::io("read", path))? {
            open_to_all(&entry.map_err(LayerError::io("read", path))?.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
