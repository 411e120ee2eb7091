//! Matches names with shell patterns by Python's `fnmatch` rules, which Harbor uses: `*`, `?`, `[abc]`, `[a-z]` and
//! `[!abc]`. There are no escapes, and a `[` that is never closed matches itself.

/// Returns whether the whole name matches.
pub(in crate::job) fn matches(pattern: &str, name: &str) -> bool {
    let tokens = tokens(pattern);
    let name: Vec<char> = name.chars().collect();
    // `reachable[n]` holds if the tokens so far match the first `n` characters. This takes no backtracking, so the time
    // is at most pattern times name.
    let mut reachable: Vec<bool> = vec![false; name.len() + 1];
    reachable.iter_mut().take(1).for_each(|at| *at = true);
    for token in &tokens {
        reachable = step(token, &name, &reachable);
    }
    reachable.last() == Some(&true)
}

enum Token {
    Any,
    One,
    Is(char),
    In { ranges: Vec<(char, char)>, negated: bool },
}

impl Token {
    fn takes(&self, letter: char) -> bool {
        match self {
            Self::Any | Self::One => true,
            Self::Is(expected) => *expected == letter,
            Self::In { ranges, negated } => {
                ranges.iter().any(|(from, to)| (*from..=*to).contains(&letter)) != *negated
            }
        }
    }
}

fn step(token: &Token, name: &[char], before: &[bool]) -> Vec<bool> {
    let mut after = Vec::with_capacity(before.len());
    let is_any = matches!(token, Token::Any);
    let mut previous = false;
    for (at, reached) in before.iter().enumerate() {
        let letter = at.checked_sub(1).and_then(|at| name.get(at));
        let from_before = at.checked_sub(1).and_then(|at| before.get(at)).copied().unwrap_or(false);
        let here = if is_any {
            *reached || previous
        } else {
            from_before && letter.is_some_and(|letter| token.takes(*letter))
        };
        previous = here;
        after.push(here);
    }
    after
}

fn tokens(pattern: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = pattern;
    while let Some(letter) = rest.chars().next() {
        let (token, left) = match letter {
            '*' => (Token::Any, &rest[1..]),
            '?' => (Token::One, &rest[1..]),
            '[' => set(&rest[1..]).unwrap_or((Token::Is('['), &rest[1..])),
            other => (Token::Is(other), &rest[other.len_utf8()..]),
        };
        tokens.push(token);
        rest = left;
    }
    tokens
}

/// Parses a set after its `[`. Returns the set and the text after its `]`.
fn set(text: &str) -> Option<(Token, &str)> {
    let (inside, negated) = text.strip_prefix('!').map_or((text, false), |inside| (inside, true));
    // A `]` at the start belongs to the set.
    let first = inside.chars().next()?;
    let end = inside.get(first.len_utf8()..)?.find(']')? + first.len_utf8();
    let letters: Vec<char> = inside.get(..end)?.chars().collect();
    let mut ranges = Vec::new();
    let mut left = letters.as_slice();
    while let [from, tail @ ..] = left {
        match tail {
            ['-', to, tail @ ..] => {
                ranges.push((*from, *to));
                left = tail;
            }
            _ => {
                ranges.push((*from, *from));
                left = tail;
            }
        }
    }
    Some((Token::In { ranges, negated }, inside.get(end + 1..)?))
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_are_read_as_python_reads_them() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("add-*", "add-1", true),
            ("add-*", "xadd-1", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("a[bc]d", "acd", true),
            ("a[!bc]d", "acd", false),
            ("a[0-9]", "a7", true),
            ("a[", "a[", true),
            ("[]]", "]", true),
            ("*[0-9]*", "task-12x", true),
            ("Add", "add", false),
            ("é*", "éa", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_pattern_is_one(pattern in "\\PC{0,40}", name in "\\PC{0,40}") {
            matches(&pattern, &name);
            let literal: String = name.chars().filter(|letter| !"*?[".contains(*letter)).collect();
            proptest::prop_assert!(matches(&literal, &literal));
        }
    }

    #[test]
    fn fuzz_fnmatch() {
        rolltap_testing::fuzz!("fnmatch", |text| {
            let Ok(text) = std::str::from_utf8(text) else { return };
            let (pattern, name) = text.split_once('\n').unwrap_or((text, text));
            matches(pattern, name);
            let literal = name.replace(['*', '?', '['], "");
            assert!(matches(&literal, &literal));
        });
    }
}
