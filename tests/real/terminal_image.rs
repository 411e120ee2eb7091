//! An image with tmux and full-screen programs. It is built once, under a name that is the hash of its contents.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::process::{Command, Stdio};

use crate::harness::testbed;
use crate::program::text;

/// A login shell records every command that it runs, and has no history of earlier ones.
const DOCKERFILE: &str = r#"
RUN apt-get update && apt-get install -y --no-install-recommends less python3 tmux vim && rm -rf /var/lib/apt/lists/*
ENV LANG=C.UTF-8
RUN echo 'unset HISTFILE; trap '\''printf "%s\n" "$BASH_COMMAND" >> "${RECORD:-/logs/agent/commands}"'\'' DEBUG' > /root/.bash_profile
WORKDIR /app
"#;

/// Builds the image if it does not exist, and returns its name.
pub(crate) fn built() -> String {
    let dockerfile = format!("FROM {}\n{DOCKERFILE}", testbed("ROLLTAP_TESTBED_IMAGE"));
    let base = docker(&["image", "inspect", "--format", "{{.Id}}", &testbed("ROLLTAP_TESTBED_IMAGE")], "");
    let mut hasher = DefaultHasher::new();
    (&dockerfile, base).hash(&mut hasher);
    let name = format!("rolltap-testbed/terminal:{:016x}", hasher.finish());
    // Tests are processes, and several of them may build the image at once.
    let lock = fs::File::create(std::env::temp_dir().join("rolltap-testbed-terminal.lock")).unwrap();
    lock.lock().unwrap();
    if docker(&["image", "ls", "--quiet", &name], "").is_empty() {
        docker(&["build", "--quiet", "--tag", &name, "-"], &dockerfile);
    }
    name
}

/// Returns the output of `docker` for this input.
fn docker(arguments: &[&str], input: &str) -> String {
    let mut command = Command::new("docker");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "docker {arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}
