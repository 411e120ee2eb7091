//! The known name that a mistyped one was probably meant to be.

/// The nearest of `known` to `given`, if it is near enough to be a slip of the hand: at most a third of the letters
/// differ. Case and the choice of `-` or `_` do not count.
pub fn nearest<'k>(given: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let plain = |name: &str| name.to_lowercase().replace('_', "-");
    let given = plain(given);
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&given, &plain(name)), name))
        .filter(|(distance, name)| *distance * 3 <= name.len().max(given.len()))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// A hint for the end of an error: `` (did you mean "listen"?)``, or nothing where no known name is near.
pub(crate) fn did_you_mean(near: Option<&str>) -> String {
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
    }
}
