//! Layers from the npm registry. A package contains its programs, or depends on a package per platform that contains
//! them.

use tokio::process::Command;

use super::LayerError;
use super::installer::{Installer, on_path};

/// Installs the package into `node_modules`, with Node.js if the agent needs it.
pub(super) async fn install(
    installer: &Installer<'_>,
    package: &str,
    node: Option<u32>,
) -> Result<(), LayerError> {
    if !on_path("npm") {
        return Err(LayerError::NoProgram {
            agent: installer.agent.to_owned(),
            program: "npm",
            advice: "install Node.js with npm; it is needed once, on this host only",
        });
    }
    let mut command = Command::new("npm");
    // Install scripts would run as the user of this host, and download files that no lockfile lists.
    command
        .args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--no-update-notifier", "--prefix"])
        .arg(installer.dir)
        .arg(format!("{package}@{}", installer.version))
        .current_dir(installer.dir);
    if let Some(major) = node {
        command.arg(format!("node-linux-{}@{major}", arch()));
    }
    installer.run("npm install", command).await
}

/// Returns the machine's name in Node.js.
pub(crate) fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    }
}
