//! `[[environment.mcp_servers]]`: tool servers for the agent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A tool server that is configured in the agent.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "Table")]
pub struct McpServer {
    /// The server's name for the agent.
    pub name: String,
    /// The transport and its address.
    #[serde(flatten)]
    pub transport: McpTransport,
}

/// The transport of a tool server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "transport", rename_all = "kebab-case")]
pub enum McpTransport {
    /// HTTP with server-sent events.
    Sse {
        /// The server's URL.
        url: String,
        /// Headers of every request, which may refer to variables of this host.
        headers: BTreeMap<String, String>,
    },
    /// HTTP with a stream per answer.
    StreamableHttp {
        /// The server's URL.
        url: String,
        /// Headers of every request, which may refer to variables of this host.
        headers: BTreeMap<String, String>,
    },
    /// A process that the agent starts.
    Stdio {
        /// The program.
        command: String,
        /// The program's arguments.
        args: Vec<String>,
    },
}

impl McpServer {
    /// Returns the headers of an HTTP server, or `None` for a process.
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
            // The characters of an HTTP token (RFC 9110). A line break in a value would inject another header.
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
