//! How S3 is reached: the conventional environment variables.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The variables that are read. The first of each pair takes precedence: a variable of S3 alone, or the more specific region.
const VARIABLES: [(&str, &str); 13] = [
    ("AWS_ACCESS_KEY_ID", "aws_access_key_id"),
    ("AWS_SECRET_ACCESS_KEY", "aws_secret_access_key"),
    ("AWS_SESSION_TOKEN", "aws_session_token"),
    ("AWS_REGION", "aws_region"),
    ("AWS_DEFAULT_REGION", "aws_region"),
    ("AWS_ENDPOINT_URL_S3", "aws_endpoint"),
    ("AWS_ENDPOINT_URL", "aws_endpoint"),
    ("AWS_WEB_IDENTITY_TOKEN_FILE", "aws_web_identity_token_file"),
    ("AWS_ROLE_ARN", "aws_role_arn"),
    ("AWS_ROLE_SESSION_NAME", "aws_role_session_name"),
    ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "aws_container_credentials_relative_uri"),
    ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "aws_container_credentials_full_uri"),
    ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "aws_container_authorization_token_file"),
];

/// The time in which S3 must begin to answer a request. A request with a large body has more.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How S3 is reached. A place that is a directory needs none of this.
#[derive(Clone, PartialEq, Eq)]
pub struct S3Settings {
    /// The keys of the client library with their values.
    values: BTreeMap<&'static str, String>,
    pub(super) timeout: Duration,
}

/// A variable that S3 requires is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the environment variable {0} is not set: S3 requires AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and a server other \
     than that of AWS also AWS_ENDPOINT_URL"
)]
pub struct MissingVariable(&'static str);

/// A debug text could contain the keys.
impl fmt::Debug for S3Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Settings").field("endpoint", &self.endpoint()).finish_non_exhaustive()
    }
}

impl S3Settings {
    /// Reads the environment variables of this process: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`,
    /// `AWS_REGION` or `AWS_DEFAULT_REGION`, `AWS_ENDPOINT_URL_S3` or `AWS_ENDPOINT_URL`, and those of the identity of a pod
    /// or container.
    pub fn from_env() -> Self {
        Self::of_variables(VARIABLES.iter().filter_map(|(name, _)| Some((*name, std::env::var(name).ok()?))))
    }

    /// Takes the variables from `variables` instead of the environment. Other variables are ignored.
    pub fn of_variables<'a>(variables: impl IntoIterator<Item = (&'a str, String)>) -> Self {
        let given: BTreeMap<&str, String> =
            variables.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        let mut values = BTreeMap::new();
        for (name, key) in VARIABLES {
            if let Some(value) = given.get(name) {
                values.entry(key).or_insert_with(|| value.clone());
            }
        }
        Self { values, timeout: TIMEOUT }
    }

    /// Sets the time in which S3 must begin to answer a request, instead of ten seconds.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The URL of the server. `None` for that of AWS.
    pub(super) fn endpoint(&self) -> Option<&str> {
        self.values.get("aws_endpoint").map(String::as_str)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.values.iter().map(|(key, value)| (*key, value.as_str()))
    }

    /// Fails if no source of credentials is set. Without this check, the client asks the metadata service of AWS, which
    /// elsewhere takes long to fail.
    pub(super) fn require_credentials(&self) -> Result<(), MissingVariable> {
        let has = |key| self.values.contains_key(key);
        match (has("aws_access_key_id"), has("aws_secret_access_key")) {
            (true, true) => Ok(()),
            (true, false) => Err(MissingVariable("AWS_SECRET_ACCESS_KEY")),
            (false, true) => Err(MissingVariable("AWS_ACCESS_KEY_ID")),
            (false, false) => {
                let of_pod = has("aws_web_identity_token_file") && has("aws_role_arn");
                let of_container = has("aws_container_credentials_relative_uri")
                    || has("aws_container_credentials_full_uri")
                        && has("aws_container_authorization_token_file");
                if of_pod || of_container { Ok(()) } else { Err(MissingVariable("AWS_ACCESS_KEY_ID")) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> S3Settings {
        S3Settings::of_variables(variables.iter().map(|(name, value)| (*name, (*value).to_owned())))
    }

    #[test]
    fn specific_variables_take_precedence_and_empty_ones_are_unset() {
        let both = settings(&[
            ("AWS_ENDPOINT_URL", "http://general"),
            ("AWS_ENDPOINT_URL_S3", "http://s3"),
            ("AWS_REGION", ""),
            ("AWS_DEFAULT_REGION", "eu-west-1"),
            ("AWS_SKIP_SIGNATURE", "true"),
        ]);
        let values: Vec<_> = both.values().collect();
        assert_eq!(values, [("aws_endpoint", "http://s3"), ("aws_region", "eu-west-1")]);
    }

    #[test]
    fn missing_credentials_are_named_and_no_secret_is_shown() {
        let missing = |variables: &[_]| settings(variables).require_credentials().unwrap_err().0;
        assert_eq!(missing(&[]), "AWS_ACCESS_KEY_ID");
        assert_eq!(missing(&[("AWS_ACCESS_KEY_ID", "a")]), "AWS_SECRET_ACCESS_KEY");
        assert_eq!(missing(&[("AWS_SECRET_ACCESS_KEY", "a")]), "AWS_ACCESS_KEY_ID");
        let whole = settings(&[("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "hidden")]);
        assert_eq!(whole.require_credentials(), Ok(()));
        assert!(!format!("{whole:?}").contains("hidden"));
        let of_pod = settings(&[("AWS_WEB_IDENTITY_TOKEN_FILE", "/t"), ("AWS_ROLE_ARN", "arn")]);
        assert_eq!(of_pod.require_credentials(), Ok(()));
    }
}
