//! `[[environment.mcp_servers]]`: tool servers for the agent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A tool server that the agent is told of.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "Table")]
pub struct McpServer {
    /// What the agent calls it.
    pub name: String,
    /// How it is reached.
    #[serde(flatten)]
    pub transport: McpTransport,
}

/// How a tool server is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "transport", rename_all = "kebab-case")]
pub enum McpTransport {
    /// Over HTTP with server-sent events.
    Sse {
        /// Its address.
        url: String,
        /// Headers of every request, `${VAR}` replaced by [`crate::task::Task::load`].
        headers: BTreeMap<String, String>,
    },
    /// Over HTTP, each answer a stream.
    StreamableHttp {
        /// Its address.
        url: String,
        /// Headers of every request, `${VAR}` replaced by [`crate::task::Task::load`].
        headers: BTreeMap<String, String>,
    },
    /// A process that the agent starts.
    Stdio {
        /// The program.
        command: String,
        /// What it is given.
        args: Vec<String>,
    },
}

impl McpServer {
    /// Those of a server over HTTP.
    pub(in crate::task) fn headers_mut(&mut self) -> Option<&mut BTreeMap<String, String>> {
        match &mut self.transport {
            McpTransport::Sse { headers, .. } | McpTransport::StreamableHttp { headers, .. } => Some(headers),
            McpTransport::Stdio { .. } => None,
        }
    }
}

#[derive(Deserialize)]
struct Table {
    name: String,
    #[serde(default)]
    transport: Transport,
    #[serde(default)]
    url: Option<String>,
    #[serde(default)]
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Transport {
    #[default]
    Sse,
    Stdio,
    #[serde(alias = "http")]
    StreamableHttp,
}

impl TryFrom<Table> for McpServer {
    type Error = String;

    fn try_from(table: Table) -> Result<Self, String> {
        let Table { name, transport, url, command, args, headers } = table;
        for (header, value) in &headers {
            let is_name = !header.is_empty()
                && header.chars().all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+.^_`|~-".contains(c));
            if !is_name || value.contains(['\r', '\n']) {
                return Err(format!("MCP server {name:?}: header {header:?} is no HTTP header of one line"));
            }
        }
        let missing = |key: &str| format!("MCP server {name:?} needs {key}");
        let filled = |value: Option<String>| value.filter(|value| !value.is_empty());
        let transport = match transport {
            Transport::Sse => McpTransport::Sse { url: filled(url).ok_or_else(|| missing("url"))?, headers },
            Transport::StreamableHttp => {
                McpTransport::StreamableHttp { url: filled(url).ok_or_else(|| missing("url"))?, headers }
            }
            Transport::Stdio if !headers.is_empty() => {
                return Err(format!("MCP server {name:?}: headers are for servers over HTTP"));
            }
            Transport::Stdio => {
                McpTransport::Stdio { command: filled(command).ok_or_else(|| missing("command"))?, args }
            }
        };
        Ok(Self { name, transport })
    }
}
