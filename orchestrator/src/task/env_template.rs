//! Resolves values of `env` tables that refer to the host's environment, by Harbor's rule.

use std::collections::BTreeMap;
use std::path::Path;

use super::TaskError;
use super::config::{TaskConfig, VerifierConfig};

/// Resolves every `env` table of a task and of its steps, and the headers of its MCP servers.
pub(super) fn resolve_all(
    config: &mut TaskConfig,
    path: &Path,
    host: impl Fn(&str) -> Option<String> + Copy,
) -> Result<(), TaskError> {
    resolve(&mut config.environment.env, "environment.env", path, host)?;
    resolve(&mut config.solution.env, "solution.env", path, host)?;
    for server in &mut config.environment.mcp_servers {
        let section = format!("environment.mcp_servers.{}.headers", server.name);
        if let Some(headers) = server.headers_mut() {
            resolve_embedded(headers, &section, path, host)?;
        }
    }
    resolve_verifier(&mut config.verifier, "verifier", path, host)?;
    for step in &mut config.steps {
        resolve_verifier(&mut step.verifier, &format!("steps.{}.verifier", step.name), path, host)?;
    }
    Ok(())
}

fn resolve_verifier(
    verifier: &mut VerifierConfig,
    section: &str,
    path: &Path,
    host: impl Fn(&str) -> Option<String> + Copy,
) -> Result<(), TaskError> {
    resolve(&mut verifier.env, &format!("{section}.env"), path, host)?;
    let own = verifier.environment.as_mut();
    own.map_or(Ok(()), |own| resolve(&mut own.env, &format!("{section}.environment.env"), path, host))
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
        let Some((variable, default)) = template(value) else { continue };
        let resolved =
            host(variable).or_else(|| default.map(str::to_owned)).ok_or_else(|| TaskError::Variable {
                path: path.to_owned(),
                key: format!("{section}.{key}"),
                variable: variable.to_owned(),
            })?;
        *value = resolved;
    }
    Ok(())
}

/// Replaces every template in every value, also within other text.
fn resolve_embedded(
    table: &mut BTreeMap<String, String>,
    section: &str,
    path: &Path,
    host: impl Fn(&str) -> Option<String> + Copy,
) -> Result<(), TaskError> {
    for (key, value) in table {
        let mut resolved = String::new();
        let mut rest = value.as_str();
        while let Some((before, (inside, after))) = embedded(rest) {
            // The table of one value reuses `resolve`, so that both rules report the same errors.
            let mut one = BTreeMap::from([(key.clone(), format!("${{{inside}}}"))]);
            resolve(&mut one, section, path, host)?;
            resolved.push_str(before);
            resolved.extend(one.into_values());
            rest = after;
        }
        resolved.push_str(rest);
        *value = resolved;
    }
    Ok(())
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
        let resolved = |value: &str| {
            let mut table = BTreeMap::from([("Authorization".to_owned(), value.to_owned())]);
            let host = |name: &str| (name == "TOKEN").then(|| "secret".to_owned());
            resolve_embedded(&mut table, "headers", Path::new("task.toml"), host)?;
            Ok::<_, TaskError>(table.remove("Authorization").unwrap())
        };
        for (value, expected) in [
            ("Bearer ${TOKEN}", "Bearer secret"),
            ("${TOKEN}:${UNSET:-x}!", "secret:x!"),
            ("plain", "plain"),
            ("${TOKEN", "${TOKEN"),
        ] {
            assert_eq!(resolved(value).unwrap(), expected, "{value}");
        }
        assert!(resolved("Bearer ${UNSET}").unwrap_err().to_string().contains("UNSET is not set"));
    }

    #[test]
    fn a_variable_that_is_not_set_is_named() {
        assert_eq!(
            resolved("${UNSET}").unwrap_err().to_string(),
            "task.toml: verifier.env.KEY: the environment variable UNSET is not set; set it, or write ${UNSET:-default}"
        );
    }
}
