//! Converts a task's MCP servers to an agent's configuration.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::{Table, Value};

use super::Mcp;
use super::content::{FileContent, strings_of};
use super::template::{Template, Values, fill};
use crate::task::{McpServer, McpTransport};

/// The places that a server's entry may have. `args`, `command_line` and `headers` become a list or a table if they are
/// the whole string.
pub(super) const OF_SERVERS: [&str; 6] = ["name", "url", "command", "args", "command_line", "headers"];

/// The section `[mcp]` in the definition.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    #[serde(default)]
    instruction: bool,
    path: Option<Template>,
    key: Option<String>,
    #[serde(default)]
    arguments: Vec<Template>,
    stdio: Option<Table>,
    sse: Option<Table>,
    streamable_http: Option<Table>,
}

impl TryFrom<Written> for Mcp {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, &'static str> {
        let Written { instruction, path, key, arguments, stdio, sse, streamable_http } = written;
        match (path, key) {
            (None, None) if instruction && arguments.is_empty() => Ok(Self::InWords),
            (Some(path), Some(key)) if !instruction => {
                Ok(Self::InFile(Box::new(McpHandover { path, key, arguments, stdio, sse, streamable_http })))
            }
            _ => Err(
                "[mcp] needs either instruction = true, or path and key of the file that lists the servers",
            ),
        }
    }
}

/// The location of the agent's list of servers, and the shape of its entries.
#[derive(Clone, Debug, PartialEq)]
pub struct McpHandover {
    /// The file: an entry of `[[files]]`, or a JSON file that is written only if there are servers.
    pub(crate) path: Template,
    /// The key of the table for the entries. Each entry has its server's name.
    pub(crate) key: String,
    /// Arguments to add if there are servers.
    pub(crate) arguments: Vec<Template>,
    /// The entry of a server that is a program. `None` if the agent does not support this transport.
    pub(crate) stdio: Option<Table>,
    /// The entry of a server with server-sent events.
    pub(crate) sse: Option<Table>,
    /// The entry of a server with streamable HTTP.
    pub(crate) streamable_http: Option<Table>,
}

impl McpHandover {
    fn shape(&self, transport: &McpTransport) -> Option<&Table> {
        match transport {
            McpTransport::Stdio { .. } => self.stdio.as_ref(),
            McpTransport::Sse { .. } => self.sse.as_ref(),
            McpTransport::StreamableHttp { .. } => self.streamable_http.as_ref(),
        }
    }

    /// Returns every string of every shape.
    pub(super) fn strings(&self) -> Vec<&str> {
        [&self.stdio, &self.sse, &self.streamable_http].into_iter().flatten().flat_map(strings_of).collect()
    }

    /// Returns the entries of these servers.
    ///
    /// # Errors
    /// Returns the first server that the agent does not support.
    pub(crate) fn entries<'s>(&self, servers: &'s [McpServer]) -> Result<Table, &'s McpServer> {
        let entry = |server: &'s McpServer| {
            let shape = self.shape(&server.transport).ok_or(server)?;
            Ok((server.name.clone(), Value::Table(fill_shape(shape, server))))
        };
        servers.iter().map(entry).collect()
    }

    /// Returns the file with the servers, for a path that is not in `[[files]]`.
    pub(crate) fn own_file(&self, values: &Values, entries: &Table) -> super::FileText {
        let text = FileContent::Json(Table::new()).render(values, Some((&self.key, entries)));
        super::FileText { path: self.path.fill(values), text }
    }
}

fn fill_shape(shape: &Table, server: &McpServer) -> Table {
    let entries = shape.iter().filter_map(|(key, value)| Some((key.clone(), fill_value(value, server)?)));
    entries.collect()
}

/// Fills the places of a value. Returns `None` for `${headers}` if there are no headers, because the key is left out
/// then.
fn fill_value(value: &Value, server: &McpServer) -> Option<Value> {
    let (url, headers, command, args) = parts(server);
    let list = |items: &mut dyn Iterator<Item = &str>| {
        Value::Array(items.map(|item| Value::String(item.to_owned())).collect())
    };
    let arguments = || args.iter().map(String::as_str);
    Some(match value {
        Value::String(text) => match text.as_str() {
            "${args}" => list(&mut arguments()),
            "${command_line}" => list(&mut std::iter::once(command).chain(arguments())),
            "${headers}" => {
                let headers = headers.filter(|headers| !headers.is_empty())?.iter();
                Value::Table(
                    headers.map(|(name, value)| (name.clone(), Value::String(value.clone()))).collect(),
                )
            }
            text => Value::String(fill(text, |name| match name {
                "name" => Some(server.name.clone()),
                "url" => Some(url.to_owned()),
                "command" => Some(command.to_owned()),
                // The parser has rejected unknown places.
                _ => None,
            })),
        },
        Value::Table(table) => Value::Table(fill_shape(table, server)),
        other => other.clone(),
    })
}

type Parts<'s> = (&'s str, Option<&'s BTreeMap<String, String>>, &'s str, &'s [String]);

/// Returns URL, headers, program and arguments. Those that the transport does not have are empty.
fn parts(server: &McpServer) -> Parts<'_> {
    match &server.transport {
        McpTransport::Sse { url, headers } | McpTransport::StreamableHttp { url, headers } => {
            (url, Some(headers), "", &[])
        }
        McpTransport::Stdio { command, args } => ("", None, command, args),
    }
}

/// Describes the servers in text, for an agent that has no configuration for them.
pub(crate) fn in_words(servers: &[McpServer]) -> String {
    let line = |McpServer { name, transport }: &McpServer| match transport {
        McpTransport::Stdio { command, args } => {
            format!(
                "- {name}: the program `{command} {}`, on its standard input and output\n",
                args.join(" ")
            )
        }
        McpTransport::Sse { url, .. } => format!("- {name}: {url} (server-sent events)\n"),
        McpTransport::StreamableHttp { url, .. } => format!("- {name}: {url} (streamable HTTP)\n"),
    };
    format!(
        "\n\nThese MCP servers are there for this task:\n{}",
        servers.iter().map(line).collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handover() -> McpHandover {
        let mcp: Mcp = toml::from_str(
            "path = '${state}/mcp.json'\nkey = 'mcpServers'\n[stdio]\ncommand = '${command}'\nargs = '${args}'\n\
             [sse]\ntype = 'sse'\nurl = '${url}'\nheaders = '${headers}'\n",
        )
        .unwrap();
        let Mcp::InFile(handover) = mcp else { panic!("no file") };
        *handover
    }

    #[test]
    fn servers_are_entries_of_the_agents_own_shape() {
        let stdio = McpTransport::Stdio {
            command: "serve".to_owned(),
            args: vec!["--root".to_owned(), "/a \"b\"".to_owned()],
        };
        let sse = McpTransport::Sse { url: "http://web:1/sse".to_owned(), headers: BTreeMap::new() };
        let files = McpServer { name: "files".to_owned(), transport: stdio };
        let web = McpServer { name: "web".to_owned(), transport: sse };
        let servers = [files, web];
        let entries = handover().entries(&servers).unwrap();
        let file = handover().own_file(&Values::from([("state", "/s".to_owned())]), &entries);
        let json: serde_json::Value = serde_json::from_str(&file.text).unwrap();
        assert_eq!(file.path, "/s/mcp.json");
        assert_eq!(
            json["mcpServers"],
            serde_json::json!({
                "files": {"command": "serve", "args": ["--root", "/a \"b\""]},
                "web": {"type": "sse", "url": "http://web:1/sse"},
            })
        );
    }

    #[test]
    fn a_transport_that_the_agent_does_not_take_is_told() {
        let transport = McpTransport::StreamableHttp { url: "http://x".to_owned(), headers: BTreeMap::new() };
        let servers = [McpServer { name: "x".to_owned(), transport }];
        assert_eq!(handover().entries(&servers).unwrap_err().name, "x");
    }
}
