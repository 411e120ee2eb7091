//! Values of `env` tables that refer to the environment of the host, by Harbor's rule.

use std::collections::BTreeMap;
use std::path::Path;

use super::TaskError;

/// Replaces every value that is `${VAR}` or `${VAR:-default}` as a whole; a template amid other text stays as it is.
///
/// `section` is the table's name for errors; `host` looks a variable up.
pub(super) fn resolve(
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

/// The variable's name and the default of a template.
fn template(value: &str) -> Option<(&str, Option<&str>)> {
    let inner = value.strip_prefix("${")?.strip_suffix('}')?;
    let (name, default) = match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    };
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
    fn a_variable_that_is_not_set_is_named() {
        assert_eq!(
            resolved("${UNSET}").unwrap_err().to_string(),
            "task.toml: verifier.env.KEY: the environment variable UNSET is not set; set it, or write ${UNSET:-default}"
        );
    }
}
