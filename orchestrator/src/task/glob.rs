//! File name patterns of `.dockerignore` and of `COPY`: `*`, `?`, `[a-z]`, `\x`, and `**` for any number of
//! directories.

/// A pattern for paths relative to the build context.
#[derive(Clone, Debug)]
pub(crate) struct Pattern(Vec<String>);

impl Pattern {
    /// Parses a pattern. Slashes at either end and `.` components have no meaning.
    pub(crate) fn new(pattern: &str) -> Self {
        Self(components(pattern).map(str::to_owned).collect())
    }

    /// Whether the whole path matches.
    pub(crate) fn matches(&self, path: &str) -> bool {
        matches_components(&self.0, &components(path).collect::<Vec<_>>())
    }

    /// Whether the path or a directory above it matches.
    fn covers(&self, path: &str) -> bool {
        let path: Vec<_> = components(path).collect();
        (1..=path.len()).any(|length| matches_components(&self.0, path.get(..length).unwrap_or_default()))
    }
}

fn components(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|component| !component.is_empty() && *component != ".")
}

/// Matches the components of a path. Backtracks only to the last `**`, as [`matches_name`] does to the last `*`.
fn matches_components(pattern: &[String], path: &[&str]) -> bool {
    let (mut pattern, mut path) = (pattern, path);
    let mut any: Option<(&[String], &[&str])> = None;
    loop {
        match (pattern, path) {
            ([first, rest @ ..], _) if first == "**" => {
                any = Some((rest, path));
                pattern = rest;
            }
            ([], []) => return true,
            ([first, rest @ ..], [name, below @ ..]) if matches_text(first, name) => {
                (pattern, path) = (rest, below);
            }
            // After a mismatch, the last `**` matches one more directory.
            _ => {
                let Some((rest, [_, below @ ..])) = any else { return false };
                any = Some((rest, below));
                (pattern, path) = (rest, below);
            }
        }
    }
}

/// Whether a text matches a pattern in which `*` matches any characters, also slashes.
pub(crate) fn matches_text(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<_>, Vec<_>) = (pattern.chars().collect(), text.chars().collect());
    matches_name(&pattern, &text)
}

/// Matches one name in linear time, except for `*`. Backtracks only to the last `*`, so that no pattern takes
/// exponential time.
fn matches_name(pattern: &[char], name: &[char]) -> bool {
    let (mut pattern, mut name) = (pattern, name);
    let mut star: Option<(&[char], &[char])> = None;
    loop {
        let step = match (pattern, name) {
            (['*', rest @ ..], _) => {
                star = Some((rest, name));
                pattern = rest;
                continue;
            }
            ([], []) => return true,
            (_, [character, below @ ..]) => after_match(pattern, *character).map(|rest| (rest, below)),
            (_, []) => return false,
        };
        match (step, star) {
            (Some(next), _) => (pattern, name) = next,
            // After a mismatch, the last `*` matches one more character.
            (None, Some((rest, [_, below @ ..]))) => {
                star = Some((rest, below));
                (pattern, name) = (rest, below);
            }
            (None, _) => return false,
        }
    }
}

/// Returns the pattern after its first element, or `None` if that element does not match the character.
fn after_match(pattern: &[char], character: char) -> Option<&[char]> {
    match pattern {
        ['?', rest @ ..] => Some(rest),
        ['[', rest @ ..] => {
            let end = rest.iter().position(|c| *c == ']')?;
            let (class, rest) = (rest.get(..end)?, rest.get(end + 1..)?);
            let (class, wanted) = match class {
                ['^' | '!', class @ ..] => (class, false),
                class => (class, true),
            };
            (in_class(class, character) == wanted).then_some(rest)
        }
        ['\\', literal, rest @ ..] | [literal, rest @ ..] => (*literal == character).then_some(rest),
        [] => None,
    }
}

fn in_class(class: &[char], character: char) -> bool {
    match class {
        [low, '-', high, rest @ ..] => (*low..=*high).contains(&character) || in_class(rest, character),
        [single, rest @ ..] => *single == character || in_class(rest, character),
        [] => false,
    }
}

/// A parsed `.dockerignore` file.
#[derive(Debug, Default)]
pub(crate) struct Ignore(Vec<(Pattern, bool)>);

impl Ignore {
    /// Parses a file: one pattern per line, `#` for comments, `!` for exceptions. The last line that matches a path
    /// decides.
    pub(crate) fn parse(text: &str) -> Self {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self(
            lines
                .map(|line| match line.strip_prefix('!') {
                    Some(exception) => (Pattern::new(exception.trim()), false),
                    None => (Pattern::new(line), true),
                })
                .collect(),
        )
    }

    /// Whether a path relative to the build context is excluded.
    pub(crate) fn ignores(&self, path: &str) -> bool {
        self.0.iter().rev().find(|(pattern, _)| pattern.covers(path)).is_some_and(|(_, ignored)| *ignored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_as_in_docker() {
        for (pattern, path, fits) in [
            ("a.txt", "a.txt", true),
            ("/a.txt", "a.txt", true),
            ("./a/", "a", true),
            ("a.txt", "b/a.txt", false),
            ("*.txt", "a.txt", true),
            ("*.txt", "b/a.txt", false),
            ("**/*.txt", "b/c/a.txt", true),
            ("**/*.txt", "a.txt", true),
            ("b/**", "b/c/a.txt", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[a-c]x", "bx", true),
            ("[^a-c]x", "bx", false),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("*", "", false),
        ] {
            assert_eq!(Pattern::new(pattern).matches(path), fits, "{pattern} {path}");
        }
    }

    #[test]
    fn the_last_line_that_fits_decides() {
        let ignore = Ignore::parse("# comment\n\nbuild\n*.log\n!keep.log\n");
        for (path, ignored) in [
            ("build/deep/x", true),
            ("build", true),
            ("x.log", true),
            ("keep.log", false),
            ("src/x.log", false),
        ] {
            assert_eq!(ignore.ignores(path), ignored, "{path}");
        }
    }

    #[test]
    fn many_wildcards_take_no_exponential_time() {
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let pattern = Pattern::new(&format!("{}b", "**/a/".repeat(20)));
            tell.send([pattern.matches(&"a/".repeat(60)), pattern.matches(&format!("{}b", "a/".repeat(60)))])
        });
        assert_eq!(told.recv_timeout(rolltap_testing::limit(5)), Ok([false, true]));
    }

    /// Docker's rule word for word: `**` stands for no directory or for one more.
    fn matches_by_trying(pattern: &[String], path: &[&str]) -> bool {
        match (pattern, path) {
            ([], []) => true,
            ([any, rest @ ..], _) if any == "**" => {
                matches_by_trying(rest, path)
                    || path.split_first().is_some_and(|(_, below)| matches_by_trying(pattern, below))
            }
            ([first, rest @ ..], [name, below @ ..]) => {
                matches_text(first, name) && matches_by_trying(rest, below)
            }
            _ => false,
        }
    }

    proptest::proptest! {
        #[test]
        fn wildcards_match_as_if_all_ways_were_tried(
            pattern in "(\\*\\*|a|b|\\*)(/(\\*\\*|a|b|a\\*)){0,6}",
            path in "[ab](/[ab]{1,2}){0,8}",
        ) {
            let (components, names) = (Pattern::new(&pattern).0, components(&path).collect::<Vec<_>>());
            let expected = matches_by_trying(&components, &names);
            proptest::prop_assert_eq!(Pattern::new(&pattern).matches(&path), expected);
        }

        #[test]
        fn no_pattern_panics_or_runs_away(pattern in "[a*?\\[\\]\\\\^!/-]{0,24}", path in "[a/*-]{0,24}") {
            let _ = Ignore::parse(&pattern).ignores(&path);
            let _ = Pattern::new(&pattern).matches(&path);
        }

        #[test]
        fn a_plain_path_fits_itself_alone(path in "[a-z]{1,5}(/[a-z]{1,5}){0,3}", other in "[a-z]{1,5}") {
            let pattern = Pattern::new(&path);
            proptest::prop_assert!(pattern.matches(&path));
            proptest::prop_assert_eq!(pattern.matches(&other), path == other);
        }
    }

    #[test]
    fn fuzz_dockerignore() {
        rolltap_testing::fuzz!("dockerignore", |text| {
            let Ok(text) = std::str::from_utf8(text) else { return };
            let (path, patterns) = text.split_once('\n').unwrap_or((text, text));
            let _ = Ignore::parse(patterns).ignores(path);
            // The last line decides, and a plain path fits itself.
            if path.bytes().all(|byte| byte.is_ascii_alphanumeric()) && !path.is_empty() {
                assert!(Ignore::parse(&format!("{patterns}\n{path}")).ignores(path));
                assert!(!Ignore::parse(&format!("{patterns}\n!{path}")).ignores(path));
            }
            // Trying all ways is exponential, so the paths are short.
            if patterns.len() < 16 && path.len() < 24 {
                let pattern = Pattern::new(patterns);
                let names: Vec<_> = components(path).collect();
                assert_eq!(pattern.matches(path), matches_by_trying(&pattern.0, &names));
            }
        });
    }
}
