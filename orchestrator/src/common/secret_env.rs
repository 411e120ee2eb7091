//! Removes the values of secrets from environment variables before they are recorded.

use std::collections::BTreeMap;

/// Whether a variable of this name probably holds a secret.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    ["KEY", "SECRET", "TOKEN", "PASSWORD", "CREDENTIAL", "AUTH"].iter().any(|part| name.contains(part))
}

/// Returns the variables for a record. The value of a probable secret becomes a reference `${NAME}`.
pub(crate) fn without_secrets(table: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let said = |(name, value): (&String, &String)| {
        let value =
            // A value that begins with `${` already is a reference, possibly to a variable of another name.
            if is_secret(name) && !value.starts_with("${") { format!("${{{name}}}") } else { value.clone() };
        (name.clone(), value)
    };
    table.iter().map(said).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_name_secrets_and_do_not_tell_them() {
        let table = BTreeMap::from([
            ("API_KEY".to_owned(), "sk-1".to_owned()),
            ("OTHER_TOKEN".to_owned(), "${HOME_TOKEN:-x}".to_owned()),
            ("MODE".to_owned(), "fast".to_owned()),
        ]);
        let said = without_secrets(&table);
        assert_eq!(said["API_KEY"], "${API_KEY}");
        assert_eq!(said["OTHER_TOKEN"], "${HOME_TOKEN:-x}");
        assert_eq!(said["MODE"], "fast");
    }
}
