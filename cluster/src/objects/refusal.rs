//! Why a place for objects cannot be used, with the remedy.

use super::location::ObjectsUrl;
use super::settings::MissingVariable;

/// Why a place for objects cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// A variable is missing.
    #[error("cannot use {url}: {source}")]
    Settings {
        /// The place.
        url: ObjectsUrl,
        /// The variable.
        source: MissingVariable,
    },
    /// The request was refused or not answered.
    #[error("cannot {action}: {reason}{remedy}")]
    Refused {
        /// The request, as a verb with its object.
        action: String,
        /// The error of the server, the client or the system.
        reason: String,
        /// The remedy, after `; `, or nothing.
        remedy: &'static str,
        /// Whether the same request may succeed later without a change of the settings.
        is_transient: bool,
    },
}

const NO_BUCKET: &str = "; create the bucket, or correct its name";
const NO_PERMISSION: &str = "; check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the policy of the bucket, which must allow \
                             s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket";
const REGION: &str = "; check AWS_REGION, which must be the region of the bucket, and AWS_ENDPOINT_URL";
const NO_ANSWER: &str = "; check that the server runs, and AWS_ENDPOINT_URL";

impl StorageError {
    /// Whether the same request may succeed later without a change of the settings.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Refused { is_transient: true, .. })
    }

    pub(super) fn of_system(action: String, error: &std::io::Error) -> Self {
        use std::io::ErrorKind;
        let is_lasting = matches!(
            error.kind(),
            ErrorKind::NotFound | ErrorKind::PermissionDenied | ErrorKind::NotADirectory
        );
        Self::Refused { action, reason: error.to_string(), remedy: "", is_transient: !is_lasting }
    }

    pub(super) fn of_content(action: String, reason: String) -> Self {
        Self::Refused { action, reason, remedy: "", is_transient: false }
    }

    pub(super) fn silent(action: String) -> Self {
        let reason = "the server stopped sending".to_owned();
        Self::Refused { action, reason, remedy: NO_ANSWER, is_transient: true }
    }

    pub(super) fn of_s3(action: String, error: &object_store::Error) -> Self {
        use object_store::Error;
        let (remedy, is_transient) = match error {
            _ if is_missing_bucket(error) => (NO_BUCKET, false),
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => (NO_PERMISSION, false),
            Error::Generic { .. } if is_unanswered(error) => (NO_ANSWER, true),
            Error::Generic { .. } if is_refused_as_it_is(error) => (REGION, false),
            // Such as an answer with status 503.
            Error::Generic { .. } => ("", true),
            _ => ("", false),
        };
        Self::Refused { action, reason: reason(error), remedy, is_transient }
    }
}

/// Whether the object does not exist. A bucket that does not exist is another problem with the same status.
pub(super) fn is_missing_object(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::NotFound { .. }) && !is_missing_bucket(error)
}

/// Whether the bucket does not exist. Only the code in the body of the answer has this.
pub(super) fn is_missing_bucket(error: &object_store::Error) -> bool {
    error.to_string().contains("<Code>NoSuchBucket</Code>")
}

/// Whether the server refuses the request as it is: with a redirect, as S3 does for a bucket of another region, or with a status
/// of the client's errors. The client library has both in its text alone.
fn is_refused_as_it_is(error: &object_store::Error) -> bool {
    let text = error.to_string();
    let status = text.split_once("status code: ").and_then(|(_, rest)| rest.get(..3));
    let status: Option<u16> = status.and_then(|digits| digits.parse().ok());
    text.contains("Received redirect") || matches!(status, Some(300..=407 | 409..=428 | 430..=499))
}

fn is_unanswered(error: &object_store::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<object_store::client::HttpError>().is_some() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Returns the text of the innermost error, or the code and message in the XML of an answer. The errors around it repeat the
/// action and have details of the client.
fn reason(error: &object_store::Error) -> String {
    let mut innermost: &(dyn std::error::Error + 'static) = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    let text = innermost.to_string();
    let element = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        rest.split_once(&format!("</{name}>")).map(|(content, _)| content)
    };
    match (element("Code"), element("Message")) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(code), None) => code.to_owned(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use object_store::Error;

    use super::*;

    fn answer(body: &str) -> Error {
        let source = format!("Server returned non-2xx status code: 404 Not Found: {body}").into();
        Error::NotFound { path: "a/b".to_owned(), source }
    }

    #[test]
    fn each_cause_has_its_remedy() {
        let bucket = answer("<Error><Code>NoSuchBucket</Code><Message>There is none</Message></Error>");
        assert!(is_missing_bucket(&bucket) && !is_missing_object(&bucket));
        assert_eq!(
            StorageError::of_s3("read s3://captures/a".to_owned(), &bucket).to_string(),
            "cannot read s3://captures/a: NoSuchBucket: There is none; create the bucket, or correct its name"
        );
        let malformed =
            "status code: 400 Bad Request: <Error><Code>AuthorizationHeaderMalformed</Code></Error>";
        let region = Error::Generic { store: "S3", source: malformed.into() };
        let refused = StorageError::of_s3("list s3://captures".to_owned(), &region);
        assert!(!refused.is_transient());
        assert!(
            refused
                .to_string()
                .starts_with("cannot list s3://captures: AuthorizationHeaderMalformed; check AWS_REGION")
        );
        let busy = Error::Generic { store: "S3", source: "status code: 503 Slow Down: ".into() };
        assert!(StorageError::of_s3("list s3://captures".to_owned(), &busy).is_transient());
        let object = answer("<Error><Code>NoSuchKey</Code></Error>");
        assert!(is_missing_object(&object) && !is_missing_bucket(&object));
    }
}
