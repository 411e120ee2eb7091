//! Layers that a definition's own script makes.

use tokio::process::Command;

use super::LayerError;
use super::installer::Installer;

/// Runs the script in the layer's directory.
pub(super) async fn install(installer: &Installer<'_>, script: &str) -> Result<(), LayerError> {
    let mut command = Command::new("bash");
    command
        .args(["-eu", "-c", script])
        .current_dir(installer.dir)
        .env("ROLLTAP_LAYER", installer.dir)
        .env("ROLLTAP_VERSION", installer.version);
    installer.run("the install script", command).await
}
