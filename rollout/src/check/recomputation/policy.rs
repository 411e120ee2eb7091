//! Names of policy versions that hold across trials.

use std::fmt;

use crate::check::one_line;
use crate::row::RolloutRow;

/// The policy version that sampled a token. A version with a label is known by its label, because its ordinal differs
/// between proxies. Numbers are ordered as numbers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Policy {
    /// The ordinal of a version without a label.
    Unnamed(i32),
    /// A label that is a whole number, like a training step.
    Numbered(i64),
    /// Any other label.
    Named(String),
}

impl Policy {
    /// Returns the policy of an ordinal in the row's `token_version`.
    pub fn of(row: &RolloutRow, ordinal: i32) -> Self {
        let Some(label) = row.version_labels.get(&ordinal.to_string()) else { return Self::Unnamed(ordinal) };
        match label.parse::<i64>() {
            // A label like `007` differs from `7`.
            Ok(number) if number.to_string() == *label => Self::Numbered(number),
            _ => Self::Named(label.clone()),
        }
    }

    /// Returns the label, or `None` for a version without one.
    pub fn label(&self) -> Option<String> {
        (!matches!(self, Self::Unnamed(_))).then(|| self.name())
    }

    /// Returns the label, or the ordinal of a version without one.
    pub fn name(&self) -> String {
        match self {
            Self::Unnamed(ordinal) => ordinal.to_string(),
            Self::Numbered(number) => number.to_string(),
            Self::Named(label) => label.clone(),
        }
    }

    /// Returns whether a user means this version by `text`.
    pub fn is_called(&self, text: &str) -> bool {
        self.name() == text
    }
}

/// Writes one line, because labels are foreign text.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unnamed(ordinal) => write!(f, "{ordinal} (no label)"),
            Self::Numbered(number) => write!(f, "{number}"),
            Self::Named(label) => f.write_str(&one_line(label)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::check::recomputation::tests::sound_row;

    fn labelled(label: &str) -> Policy {
        let mut row = sound_row();
        row.version_labels.insert("3".to_owned(), label.to_owned());
        Policy::of(&row, 3)
    }

    #[test]
    fn a_label_names_the_version_and_an_ordinal_does_only_without_one() {
        assert_eq!(Policy::of(&sound_row(), 0), Policy::Unnamed(0));
        assert_eq!(labelled("17"), Policy::Numbered(17));
        assert_eq!(labelled("017"), Policy::Named("017".to_owned()));
        assert!(labelled("17").is_called("17") && !labelled("17").is_called("3"));
        assert!(Policy::Unnamed(3).is_called("3"));
        assert!(labelled("9") < labelled("10"), "steps are in the order of numbers");
    }

    proptest! {
        #[test]
        fn every_label_is_found_by_itself(label: String) {
            let policy = labelled(&label);
            prop_assert!(policy.is_called(&label));
            prop_assert_eq!(policy.label(), Some(label));
            let has_control = policy.to_string().chars().any(char::is_control);
            prop_assert!(!has_control);
        }
    }
}
