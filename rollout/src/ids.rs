//! Names as validated text, with a type for each kind.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The error for a text that is not a name of the requested kind.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{kind} {text:?} is not usable: {rule}")]
pub struct InvalidId {
    kind: &'static str,
    text: String,
    rule: &'static str,
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $valid:path, $rule:expr, $pattern:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(try_from = "String", into = "String")]
        #[schemars(extend("pattern" = $pattern))]
        pub struct $name(String);

        impl $name {
            /// Accepts the text if it fits the rule of this kind of name.
            pub fn new(text: impl Into<String>) -> Result<Self, InvalidId> {
                let text = text.into();
                if $valid(&text) {
                    Ok(Self(text))
                } else {
                    Err(InvalidId { kind: stringify!($name), text, rule: $rule })
                }
            }

            /// Returns the name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(text: String) -> Result<Self, InvalidId> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

const NAME_RULE: &str = "1 to 128 letters, digits, '.', '_' or '-', the first a letter or digit";
const VERSION_RULE: &str = "1 to 128 letters, digits, '.', '_' or '-', the first a letter or digit; `original` is the \
                            reward of the trial itself, which has no version";
const LABEL_RULE: &str = "1 to 512 characters without control characters";
/// The rules as patterns of JSON Schema, whose regular expressions are those of ECMA-262.
const NAME_PATTERN: &str = "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$";
const LABEL_PATTERN: &str = r"^[^\u0000-\u001f\u007f-\u009f]{1,512}$";

text_id!(
    /// A trial's public name. It is part of URL paths and names a directory, so it has no separators.
    TrialId, is_name, NAME_RULE, NAME_PATTERN
);
text_id!(
    /// A call's name. It is unique, and names sort by time (UUID version 7).
    CallId, is_name, NAME_RULE, NAME_PATTERN
);
text_id!(
    /// The group of samples that a trainer compares.
    GroupId, is_label, LABEL_RULE, LABEL_PATTERN
);
text_id!(
    /// A task's name, as Harbor writes it: `org/name`, or the name of the directory.
    TaskId, is_label, LABEL_RULE, LABEL_PATTERN
);

text_id!(
    /// The name of a submission to the service. Names sort by time (UUID version 7).
    SubmissionId, is_name, NAME_RULE, NAME_PATTERN
);

text_id!(
    /// The name of one verification of trials after their own: each trial may have a reward in each version.
    RewardVersion, is_version, VERSION_RULE, NAME_PATTERN
);

impl CallId {
    /// Returns a new name that sorts after every earlier name of this process.
    pub fn generate() -> Self {
        Self(uuid::Uuid::now_v7().to_string())
    }

    /// Returns the bytes of a generated name, or `None` for another name.
    pub fn as_bytes(&self) -> Option<[u8; 16]> {
        let uuid = uuid::Uuid::try_parse(&self.0).ok()?;
        // A UUID has several spellings. Only the generated one can be restored from the bytes.
        (*uuid.hyphenated().encode_lower(&mut uuid::Uuid::encode_buffer()) == *self.0)
            .then_some(uuid.into_bytes())
    }

    /// Returns the generated name with these bytes. It is the inverse of `as_bytes`.
    pub fn of_bytes(bytes: [u8; 16]) -> Self {
        Self(uuid::Uuid::from_bytes(bytes).to_string())
    }
}

impl SubmissionId {
    /// Returns a new name that sorts after every earlier name of this process.
    pub fn generate() -> Self {
        Self(uuid::Uuid::now_v7().to_string())
    }
}

impl TrialId {
    /// Returns a new name for a trial whose opener named none.
    pub fn generate() -> Self {
        Self(uuid::Uuid::now_v7().to_string())
    }
}

fn is_name(text: &str) -> bool {
    // A first character other than a letter or digit could make the name `..`, a hidden file or an option.
    let starts_well = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    starts_well && text.len() <= 128 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

fn is_version(text: &str) -> bool {
    is_name(text) && text != "original"
}

fn is_label(text: &str) -> bool {
    // A control character could forge a line in reports and logs.
    !text.is_empty() && text.chars().count() <= 512 && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_id_cannot_escape_a_folder_or_a_path() {
        for bad in ["", "..", "../x", "a/b", ".hidden", "a b", "a\n", &"x".repeat(129)] {
            assert!(TrialId::new(bad).is_err(), "{bad:?}");
        }
        assert!(TrialId::new("hello-world__aB3_x.1").is_ok());
    }

    #[test]
    fn a_reward_version_names_a_folder_and_not_the_original() {
        for bad in ["", "..", "a/b", "original"] {
            assert!(RewardVersion::new(bad).is_err(), "{bad:?}");
        }
        assert!(RewardVersion::new("regrade-1").is_ok());
    }

    #[test]
    fn a_task_id_may_name_an_organisation() {
        assert!(TaskId::new("org/name").is_ok());
        assert!(TaskId::new("line\nbreak").is_err());
    }

    #[test]
    fn generated_call_ids_are_in_order_of_time() {
        let ids: Vec<_> = (0..100).map(|_| CallId::generate()).collect();
        assert!(ids.is_sorted());
    }

    #[test]
    fn a_generated_call_id_is_its_bytes_and_no_other_is() {
        let id = CallId::generate();
        assert_eq!(CallId::of_bytes(id.as_bytes().unwrap()), id);
        for other in [id.as_str().to_uppercase(), id.as_str().replace('-', ""), "call-1".to_owned()] {
            assert_eq!(CallId::new(other).unwrap().as_bytes(), None);
        }
    }
}
