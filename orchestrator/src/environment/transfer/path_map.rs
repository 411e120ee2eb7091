//! Maps absolute paths in text. Harbor's scripts use absolute paths, and the local environment has those directories
//! elsewhere.

use std::collections::BTreeMap;

/// A map of absolute paths to absolute paths.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathMap {
    places: BTreeMap<String, String>,
}

impl PathMap {
    /// Maps `from` and everything below it to `to`; both are absolute. The root cannot be mapped and is ignored,
    /// because it could not be distinguished from a division sign.
    pub(crate) fn insert(&mut self, from: &str, to: &str) {
        let from = from.trim_end_matches('/');
        if from.starts_with('/') {
            self.places.insert(from.to_owned(), to.trim_end_matches('/').to_owned());
        }
    }

    /// Returns `text` with the paths changed, each occurrence once. If several mapped paths match, the longest one
    /// counts.
    ///
    /// An occurrence is a whole path. It is not the end of a longer path (`/usr/tests`, `$DIR/tests`, `//tests`), and
    /// not the beginning of a longer name (`/app.py`, `/apps`, `/app-data`). A full stop at the end of a sentence does
    /// not belong to the name.
    pub(crate) fn apply(&self, text: &str) -> String {
        let mut mapped = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(slash) = rest.find('/') {
            let (before, path) = rest.split_at(slash);
            mapped.push_str(before);
            // After one of these characters, the slash continues a longer path.
            let begins = !mapped.ends_with(ends_a_longer_path);
            match self.place_at(path).filter(|_| begins) {
                Some((from, to)) => {
                    mapped.push_str(to);
                    rest = path.get(from.len()..).unwrap_or_default();
                }
                None => {
                    mapped.push('/');
                    rest = path.get(1..).unwrap_or_default();
                }
            }
        }
        mapped.push_str(rest);
        mapped
    }

    fn place_at(&self, path: &str) -> Option<(&str, &str)> {
        let fits = |from: &str| path.strip_prefix(from).is_some_and(ends_name);
        let fitting = self.places.iter().filter(|(from, _)| fits(from));
        fitting.max_by_key(|(from, _)| from.len()).map(|(from, to)| (from.as_str(), to.as_str()))
    }
}

fn ends_a_longer_path(character: char) -> bool {
    // Some of these end a variable, a glob or a substitution of a longer path.
    character.is_alphanumeric() || "_-./~})*?".contains(character)
}

fn ends_name(rest: &str) -> bool {
    let mut characters = rest.chars();
    match characters.next() {
        Some('.') => !characters.next().is_some_and(|next| next.is_alphanumeric() || "_-.".contains(next)),
        Some(character) => !(character.is_alphanumeric() || "_-".contains(character)),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> PathMap {
        let mut map = PathMap::default();
        for (from, to) in
            [("/app", "/t/app"), ("/tests", "/t/tests"), ("/logs/", "/t/logs"), ("/app/sub", "/t/else")]
        {
            map.insert(from, to);
        }
        map
    }

    #[test]
    fn paths_are_changed_at_their_boundaries() {
        for (text, expected) in [
            ("cat /app/hello.txt", "cat /t/app/hello.txt"),
            ("cd /app", "cd /t/app"),
            (
                "cd /app && bash /tests/test.sh > /logs/verifier/out",
                "cd /t/app && bash /t/tests/test.sh > /t/logs/verifier/out",
            ),
            ("Put it in /app.", "Put it in /t/app."),
            ("in /app, or \"/tests\"; '/logs'", "in /t/app, or \"/t/tests\"; '/t/logs'"),
            ("PATH=/app/bin:/tests", "PATH=/t/app/bin:/t/tests"),
            ("ls /app/sub/x /app/subs", "ls /t/else/x /t/app/subs"),
            ("cat </app/x >/logs", "cat </t/app/x >/t/logs"),
            ("/app", "/t/app"),
            ("ls /app/*", "ls /t/app/*"),
        ] {
            assert_eq!(map().apply(text), expected);
        }
    }

    #[test]
    fn other_paths_stay_as_they_are() {
        for text in [
            "/usr/app/x",
            "$ROOT/app",
            "${ROOT}/tests",
            "$(pwd)/tests",
            "./tests/x",
            "../app",
            "~/app",
            "/app.py",
            "/apps",
            "/app-data",
            "/app_1",
            "https://host/app",
            "file:///app",
            "/",
            "1 / 2",
            "/apps/app",
            "no path at all",
            "",
            "/usr/*/tests",
            "größe/app",
        ] {
            assert_eq!(map().apply(text), text);
        }
    }

    #[test]
    fn the_root_is_not_mapped() {
        let mut map = PathMap::default();
        map.insert("/", "/t");
        map.insert("", "/t");
        assert_eq!(map.apply("ls / /x"), "ls / /x");
    }

    proptest::proptest! {
        #[test]
        fn without_places_any_text_stays_as_it_is(text in "\\PC*") {
            proptest::prop_assert_eq!(PathMap::default().apply(&text), text);
        }

        #[test]
        fn what_is_mapped_is_mapped_for_good(text in "[a-z /.\"$]{0,40}(/app|/tests|/logs)?[a-z /.]{0,10}") {
            let once = map().apply(&text);
            proptest::prop_assert_eq!(map().apply(&once), once);
        }
    }
}
