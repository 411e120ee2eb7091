//! Resolves values of `env` tables that refer to the host's environment, by Harbor's rule.

use std::collections::BTreeMap;
use std::path::Path;

use super::TaskError;

/// A table whose values may refer to variables of this host.
pub(super) enum Table<'a> {
    /// An `env` table. A value is a reference as a whole.
    Env(&'a mut BTreeMap<String, String>),
    /// The headers of an MCP server. References may be within other text.
    Headers(&'a mut BTreeMap<String, String>),
}

/// Resolves a table. Returns each variable that is missing, with the key that refers to it. The values of these keys
/// stay unchanged.
pub(super) fn resolve_all(table: Table<'_>, host: &dyn Fn(&str) -> Option<String>) -> Vec<(String, String)> {
    let (table, is_env) = match table {
        Table::Env(table) => (table, true),
        Table::Headers(table) => (table, false),
    };
    let mut missing = Vec::new();
    for (key, value) in table {
        match if is_env { resolved_value(value, host) } else { resolved_header(value, host) } {
            Ok(resolved) => *value = resolved,
            Err(variable) => missing.push((variable, key.clone())),
        }
    }
    missing
}

/// Replaces every value that is `${VAR}` or `${VAR:-default}` as a whole. A template within other text stays unchanged.
///
/// `section` is the table's name for errors. `host` returns the value of a variable.
///
/// # Errors
/// A variable is not set and has no default.
pub(crate) fn resolve(
    table: &mut BTreeMap<String, String>,
    section: &str,
    path: &Path,
    host: impl Fn(&str) -> Option<String>,
) -> Result<(), TaskError> {
    for (key, value) in table {
        *value = resolved_value(value, &host).map_err(|variable| TaskError::Variable {
            path: path.to_owned(),
            key: format!("{section}.{key}"),
            variable,
        })?;
    }
    Ok(())
}

/// Returns the value with its variable replaced, or the name of the variable if it is missing.
fn resolved_value(value: &str, host: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let Some((variable, default)) = template(value) else { return Ok(value.to_owned()) };
    host(variable).or_else(|| default.map(str::to_owned)).ok_or_else(|| variable.to_owned())
}

/// Returns the header with every template replaced, or the name of the first missing variable.
fn resolved_header(value: &str, host: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut resolved = String::new();
    let mut rest = value;
    while let Some((before, (inside, after))) = embedded(rest) {
        resolved.push_str(before);
        resolved.push_str(&resolved_value(&format!("${{{inside}}}"), host)?);
        rest = after;
    }
    resolved.push_str(rest);
    Ok(resolved)
}

/// Splits a text into the part before its first template, the template's content, and the part after it.
fn embedded(text: &str) -> Option<(&str, (&str, &str))> {
    let (before, behind) = text.split_once("${")?;
    Some((before, behind.split_once('}')?))
}

/// Returns the name of the variable and the default in a template, or `None` if the value is not a template.
fn template(value: &str) -> Option<(&str, Option<&str>)> {
    let inner = value.strip_prefix("${")?.strip_suffix('}')?;
    let (name, default) = match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    };
    // Other expansions of the shell, such as `${VAR:?text}`, are no templates.
    (!name.is_empty() && !name.contains(['}', ':'])).then_some((name, default))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(value: &str) -> Result<String, TaskError> {
        let mut table = BTreeMap::from([("KEY".to_owned(), value.to_owned())]);
        let host = |name: &str| (name == "HOME_OF").then(|| "there".to_owned());
        resolve(&mut table, "verifier.env", Path::new("task.toml"), host)?;
        Ok(table.remove("KEY").unwrap())
    }

    #[test]
    fn a_template_is_the_whole_value() {
        for (value, expected) in [
            ("${HOME_OF}", "there"),
            ("${HOME_OF:-else}", "there"),
            ("${UNSET:-else}", "else"),
            ("${UNSET:-}", ""),
            ("${UNSET:-a:-b}", "a:-b"),
            ("plain", "plain"),
            ("x${HOME_OF}", "x${HOME_OF}"),
            ("${}", "${}"),
            ("$HOME_OF", "$HOME_OF"),
        ] {
            assert_eq!(resolved(value).unwrap(), expected, "{value}");
        }
    }

    #[test]
    fn headers_may_have_templates_amid_other_text() {
        let host = |name: &str| (name == "TOKEN").then(|| "secret".to_owned());
        let resolved = |value: &str| resolved_header(value, &host);
        for (value, expected) in [
            ("Bearer ${TOKEN}", "Bearer secret"),
            ("${TOKEN}:${UNSET:-x}!", "secret:x!"),
            ("plain", "plain"),
            ("${TOKEN", "${TOKEN"),
        ] {
            assert_eq!(resolved(value).unwrap(), expected, "{value}");
        }
        assert_eq!(resolved("Bearer ${UNSET}"), Err("UNSET".to_owned()));
    }

    #[test]
    fn a_variable_that_is_not_set_is_named() {
        assert_eq!(
            resolved("${UNSET}").unwrap_err().to_string(),
            "task.toml: verifier.env.KEY: the environment variable UNSET is not set; set it, or write ${UNSET:-default}"
        );
    }
}
