//! Opens a terminal in a container.

use std::collections::BTreeMap;

use bollard::models::ExecConfig;
use bollard::query_parameters::ResizeExecOptions;
use rolltap_agent::terminal::TerminalSize;

use super::Container;
use super::exec::assignments;
use crate::environment::{EnvironmentError, TerminalStreams};

const SHELL: &str = "if command -v bash >/dev/null 2>&1; then exec bash --login; fi; exec sh -l";

impl Container {
    pub(in crate::environment) async fn open_terminal(
        &self,
        size: TerminalSize,
        mut env: BTreeMap<String, String>,
        user: Option<&str>,
    ) -> Result<TerminalStreams, EnvironmentError> {
        env = self.with_network_variables(env);
        env.entry("TERM".to_owned()).or_insert_with(|| "xterm-256color".to_owned());
        let config = ExecConfig {
            cmd: Some(["sh", "-c", SHELL].map(str::to_owned).to_vec()),
            env: Some(assignments(env)),
            working_dir: Some(self.paths().workdir.clone()),
            user: user.map(str::to_owned),
            tty: Some(true),
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            ..ExecConfig::default()
        };
        let id = self.create_exec(config).await?;
        let (reader, writer) = tokio::io::split(self.engine().start_terminal(&id).await?);
        // Engines before 25 (API 1.42) do not accept a size at the start.
        let size = ResizeExecOptions { h: i32::from(size.rows.max(1)), w: i32::from(size.cols.max(1)) };
        self.api().resize_exec(&id, size).await.map_err(EnvironmentError::engine("resize a terminal"))?;
        Ok(TerminalStreams { reader: Box::new(reader), writer: Box::new(writer) })
    }
}
