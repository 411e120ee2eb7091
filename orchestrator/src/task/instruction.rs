//! Removes the benchmark marker from an instruction before the agent sees it.

/// Removes the leading lines that mark a file as part of a benchmark, and the blank lines after them, by Harbor's rule.
/// Agents must not see these lines. Such a line is an HTML or shell comment with the word "canary".
pub(super) fn without_canary(text: &str) -> &str {
    let mut rest = text;
    while let Some((line, below)) = rest.split_once('\n').or((!rest.is_empty()).then_some((rest, ""))) {
        if !is_canary(line.trim()) {
            break;
        }
        rest = below;
    }
    while let Some((line, below)) = rest.split_once('\n') {
        if !line.trim().is_empty() {
            break;
        }
        rest = below;
    }
    if rest.trim().is_empty() { "" } else { rest }
}

fn is_canary(line: &str) -> bool {
    let is_comment = line.starts_with('#') || (line.starts_with("<!--") && line.ends_with("-->"));
    is_comment && line.to_lowercase().contains("canary")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_benchmarks_are_not_shown() {
        for (text, expected) in [
            ("Do it.\n", "Do it.\n"),
            ("<!-- Canary 123 -->\n\n\nDo it.\n", "Do it.\n"),
            ("# benchmark CANARY\n# canary too\nDo it.", "Do it."),
            ("\nDo it.", "Do it."),
            ("# A heading\nDo it.", "# A heading\nDo it."),
            ("Do it.\n# canary", "Do it.\n# canary"),
            ("# canary", ""),
            ("", ""),
        ] {
            assert_eq!(without_canary(text), expected, "{text:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_shown_is_the_end_of_what_is_there(text in "(#.{0,9}canary.{0,3}\n|\n|\\PC{0,9}\n){0,6}\\PC{0,9}") {
            proptest::prop_assert!(text.ends_with(without_canary(&text)));
        }
    }
}
