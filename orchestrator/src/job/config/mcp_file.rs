//! Files that configure MCP servers: `.mcp.json` of Claude Code, and Harbor's own form in JSON, YAML or TOML.

use std::path::Path;

use rolltap_proxy::in_words;
use serde_json::{Map, Value};

use super::{ConfigError, yaml};
use crate::task::McpServer;

/// Harbor's keys of a server. Others are for programs that start the server themselves.
const KEYS: [&str; 6] = ["name", "transport", "url", "command", "args", "headers"];

/// Reads the MCP servers of a file.
///
/// # Errors
/// Fails if the file cannot be read or parsed, has no server, or has one that Harbor does not accept.
pub fn mcp_servers(path: &Path) -> Result<Vec<McpServer>, ConfigError> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    let syntax = |problem: String| ConfigError::Syntax(format!("{}: {problem}", path.display()));
    let value = match extension.as_str() {
        "json" => serde_json::from_str(&text).map_err(|error| syntax(error.to_string()))?,
        "yaml" | "yml" => yaml(&text).map_err(|error| syntax(error.to_string()))?,
        "toml" => toml::from_str(&text).map_err(|error| syntax(error.to_string()))?,
        _ => return Err(syntax("expected a file that ends in .json, .yaml, .yml or .toml".to_owned())),
    };
    servers(value)
        .map_err(|(key, problem)| ConfigError::Value { key: format!("{}: {key}", path.display()), problem })
}

/// A key and the problem with its value.
type Problem = (String, String);

fn servers(value: Value) -> Result<Vec<McpServer>, Problem> {
    let missing = || {
        let problem = "expected a table of servers by name, or the list `mcp_servers` of Harbor".to_owned();
        ("mcpServers".to_owned(), problem)
    };
    let Value::Object(mut file) = value else { return Err(missing()) };
    let of_claude = file.remove("mcpServers");
    let (key, is_of_claude) = if of_claude.is_some() { ("mcpServers", true) } else { ("mcp_servers", false) };
    let nested =
        |file: &mut Map<String, Value>| file.get_mut("environment")?.as_object_mut()?.remove("mcp_servers");
    let found = of_claude.or_else(|| file.remove("mcp_servers")).or_else(|| nested(&mut file));
    let entries: Vec<(String, Value)> = match found.ok_or_else(missing)? {
        Value::Object(named) => named
            .into_iter()
            .map(|(name, mut server)| {
                if let Value::Object(fields) = &mut server {
                    fields.entry("name").or_insert_with(|| Value::String(name.clone()));
                }
                (format!("{key}.{name}"), server)
            })
            .collect(),
        Value::Array(list) => {
            list.into_iter().enumerate().map(|(at, server)| (format!("{key}[{at}]"), server)).collect()
        }
        _ => return Err(missing()),
    };
    entries.into_iter().map(|(key, entry)| server(key, entry, is_of_claude)).collect()
}

fn server(key: String, entry: Value, is_of_claude: bool) -> Result<McpServer, Problem> {
    let Value::Object(mut fields) = entry else {
        return Err((key, "expected keys with values, like command or url".to_owned()));
    };
    if let Some(kind) = fields.remove("type") {
        fields.entry("transport").or_insert(kind);
    }
    // Claude Code leaves out the type of a server that it starts.
    if is_of_claude && fields.contains_key("command") {
        fields.entry("transport").or_insert_with(|| Value::String("stdio".to_owned()));
    }
    let (known, other): (Map<_, _>, Map<_, _>) =
        fields.into_iter().partition(|(field, _)| KEYS.contains(&field.as_str()));
    if !other.is_empty() {
        let other: Vec<_> = other.keys().map(String::as_str).collect();
        tracing::warn!("{key}: ignoring {}, as Harbor does", other.join(", "));
    }
    serde_json::from_value(Value::Object(known)).map_err(|error| (key, in_words(&error.to_string())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::task::McpTransport;

    #[test]
    fn files_of_claude_code_and_of_harbor_give_the_same_servers() {
        let claude = json!({"mcpServers": {
            "files": {"command": "mcp-files", "args": ["/app"], "env": {"A": "1"}},
            "web": {"type": "http", "url": "http://h/mcp"},
        }});
        let harbor = json!({"environment": {"mcp_servers": [
            {"name": "files", "transport": "stdio", "command": "mcp-files", "args": ["/app"]},
            {"name": "web", "transport": "streamable-http", "url": "http://h/mcp"},
        ]}});
        let of_claude = servers(claude).unwrap();
        assert_eq!(of_claude, servers(harbor).unwrap());
        assert!(
            matches!(&of_claude[0].transport, McpTransport::Stdio { command, .. } if command == "mcp-files")
        );
    }

    #[test]
    fn a_file_without_servers_and_a_wrong_server_are_named() {
        for value in [json!([]), json!({}), json!({"mcpServers": 1})] {
            assert_eq!(servers(value).unwrap_err().0, "mcpServers");
        }
        let (key, problem) = servers(json!({"mcpServers": {"x": {"type": "sse"}}})).unwrap_err();
        assert_eq!((key.as_str(), problem.as_str()), ("mcpServers.x", "MCP server \"x\" needs url"));
    }

    proptest::proptest! {
        #[test]
        fn any_file_is_a_list_of_servers_or_an_error(text in "\\PC{0,80}") {
            let dir = tempfile::tempdir().unwrap();
            for name in ["x.json", "x.yaml", "x.toml"] {
                let path = dir.path().join(name);
                std::fs::write(&path, &text).unwrap();
                let _ = mcp_servers(&path);
            }
        }
    }
}
