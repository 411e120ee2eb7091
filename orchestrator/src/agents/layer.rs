//! An agent's programs, installed once per version into a directory of this host that its trials share read-only.
//!
//! A layer is made in a directory beside its own and gets its name when it is whole, so that what is there is whole. Its name
//! says everything that it was made from; nothing changes it afterwards.

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

/// Where layers are seen in a container.
const INSIDE: &str = "/opt/rolltap/agents";
/// Stands in every layer that is whole.
pub(super) const MARK: &str = "rolltap-layer.json";
/// Changes when what installers make of the same definition changes.
const RECIPE: &str = "1";

/// An installed agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layer {
    /// On this host.
    pub(crate) host: PathBuf,
    /// In a container.
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
        /// What was tried.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Nowhere to put layers.
    #[error("no place for installed agents: set HOME, XDG_CACHE_HOME or ROLLTAP_CACHE_DIR")]
    NoCache,
    /// An installer's program is not there.
    #[error("agent {agent:?} is installed by {program}, which is not on PATH: {advice}")]
    NoProgram {
        /// The agent.
        agent: String,
        /// The program.
        program: &'static str,
        /// What helps.
        advice: &'static str,
    },
    /// No Python that the agent runs on.
    #[error(
        "agent {agent:?} needs Python {wanted} with pip on this host, to be copied; found: {found}. Install one, or name \
         it in ROLLTAP_PYTHON"
    )]
    NoPython {
        /// The agent.
        agent: String,
        /// Versions.
        wanted: String,
        /// What there is.
        found: String,
    },
    /// No Harbor where it is looked for.
    #[error("agent \"terminus-2\" needs Harbor in {}: {why}; name a Python that has it with --harbor-python or ROLLTAP_HARBOR_PYTHON", python.display())]
    NoHarbor {
        /// The interpreter.
        python: PathBuf,
        /// What it said.
        why: String,
    },
    /// An installer failed.
    #[error("agent {agent:?} version {version} could not be installed: {step} {ended}; last lines:\n{tail}")]
    Failed {
        /// The agent.
        agent: String,
        /// Its version.
        version: String,
        /// What was under way.
        step: String,
        /// How it ended.
        ended: String,
        /// What it wrote last.
        tail: String,
    },
}

impl LayerError {
    fn io<'p>(action: &'static str, path: &'p Path) -> impl FnOnce(io::Error) -> Self + use<'p> {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }
}

/// The layer of this agent, installed if it is not there yet. Whoever else wants it meanwhile waits.
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
    if !is_whole(&host) {
        make(definition, version, &host, &layers.join(format!("{name}.partial"))).await?;
    }
    Ok(layer)
}

/// Whether the version that is installed if nobody asks for another is there.
pub fn is_installed(definition: &Definition) -> bool {
    let version = definition.install.default_version();
    version
        .zip(cache_dir().ok())
        .is_some_and(|(version, cache)| is_whole(&cache.join(key(definition, version))))
}

/// `$ROLLTAP_CACHE_DIR/agents`, or else in the user's cache.
fn cache_dir() -> Result<PathBuf, LayerError> {
    let dir = cache::variable("ROLLTAP_CACHE_DIR").or_else(cache::of_user).ok_or(LayerError::NoCache)?;
    let dir = std::path::absolute(&dir).map_err(LayerError::io("find", &dir))?;
    Ok(dir.join("agents"))
}

/// Everything that a layer is made from.
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
    // Left by a run that died. Under the lock nobody else works here.
    if partial.exists() {
        fs::remove_dir_all(partial).map_err(LayerError::io("remove", partial))?;
    }
    fs::create_dir(partial).map_err(LayerError::io("create", partial))?;
    let begun = std::time::Instant::now();
    tracing::info!("installing agent {} {version} (once; kept in {})", definition.name, host.display());
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

/// The agent may run as any user of the image.
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
