//! Suggestions for mistyped names.

/// Returns the name in `known` that is nearest to `given`, or `None` if none is near enough to be a typing error. At
/// most a third of the letters may differ. Case and the choice of `-` or `_` do not count. The beginning of a name
/// counts as near if it has at least three letters.
pub fn nearest<'k>(given: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let plain = |name: &str| name.to_lowercase().replace('_', "-");
    let given = plain(given);
    let known: Vec<_> = known.into_iter().collect();
    let near = known
        .iter()
        .map(|name| (strsim::damerau_levenshtein(&given, &plain(name)), *name))
        .filter(|(distance, name)| *distance * 3 <= name.len().max(given.len()))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name);
    near.or_else(|| known.into_iter().find(|name| given.len() >= 3 && plain(name).starts_with(&given)))
}

/// Returns a hint for the end of an error: `` (did you mean "listen"?)``, or an empty text if `near` is `None`.
pub fn did_you_mean(near: Option<&str>) -> String {
    near.map(|name| format!(" (did you mean {name:?}?)")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_found_and_a_stranger_is_not() {
        assert_eq!(nearest("upstreams", ["listen", "upstream", "data"]), Some("upstream"));
        assert_eq!(nearest("admin_token", ["admin-token-file", "admin"]), Some("admin-token-file"));
        assert_eq!(nearest("Listne", ["listen", "upstream"]), Some("listen"));
        assert_eq!(nearest("colour", ["listen", "upstream"]), None);
        assert_eq!(nearest("claude", ["codex", "claude-code"]), Some("claude-code"));
        assert_eq!(nearest("cl", ["codex", "claude-code"]), None);
    }
}
