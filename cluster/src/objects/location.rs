//! The place of objects, as the user writes it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use percent_encoding::percent_decode_str;

/// A place for objects: `s3://BUCKET[/PREFIX]`, or a directory as `file:///DIR`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectsUrl(pub(super) Location);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Location {
    S3 {
        bucket: String,
        /// Names that are separated by `/`, or empty.
        prefix: String,
    },
    /// An absolute path.
    Directory(PathBuf),
}

/// A text that is no place for objects.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected s3://BUCKET[/PREFIX] or file:///DIR, found {found:?}: {problem}")]
pub struct InvalidObjectsUrl {
    found: String,
    problem: &'static str,
}

impl ObjectsUrl {
    /// Whether a text is meant as the place of objects, and not as a path.
    pub fn is_meant_by(text: &str) -> bool {
        text.split_once("://").is_some_and(|(scheme, _)| {
            !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric())
        })
    }

    /// Splits the place of a single shard, `PLACE/shard-N`, into the place of all shards and the number. `None` if the place is
    /// that of all shards.
    pub fn split_shard(&self) -> Option<(Self, u32)> {
        match &self.0 {
            Location::S3 { bucket, prefix } => {
                let (before, last) = prefix.rsplit_once('/').unwrap_or(("", prefix));
                let location = Location::S3 { bucket: bucket.clone(), prefix: before.to_owned() };
                Some((Self(location), shard_of(last)?))
            }
            Location::Directory(dir) => {
                let shard = shard_of(dir.file_name()?.to_str()?)?;
                Some((Self(Location::Directory(dir.parent()?.to_owned())), shard))
            }
        }
    }

    /// The directory, if the place is one.
    pub fn directory(&self) -> Option<&Path> {
        match &self.0 {
            Location::S3 { .. } => None,
            Location::Directory(dir) => Some(dir),
        }
    }
}

/// Returns the name of the folder of a shard.
pub(super) fn folder_of(shard: u32) -> String {
    format!("shard-{shard}")
}

/// Returns the shard whose folder has this name.
pub(super) fn shard_of(folder: &str) -> Option<u32> {
    let shard = folder.strip_prefix("shard-")?.parse().ok()?;
    // Only the spelling that `folder_of` makes.
    (folder_of(shard) == folder).then_some(shard)
}

impl FromStr for ObjectsUrl {
    type Err = InvalidObjectsUrl;

    fn from_str(text: &str) -> Result<Self, InvalidObjectsUrl> {
        let parsed = match text.split_once("://") {
            Some(("s3", rest)) => s3(rest),
            Some(("file", rest)) => directory(rest),
            Some(_) => Err("the scheme is neither s3 nor file"),
            None => Err("it has no scheme"),
        };
        parsed.map(Self).map_err(|problem| InvalidObjectsUrl { found: text.to_owned(), problem })
    }
}

fn s3(rest: &str) -> Result<Location, &'static str> {
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    // The rules of S3: https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html
    let of_bucket = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if !(3..=63).contains(&bucket.len()) || !bucket.bytes().all(of_bucket) {
        return Err("the name of a bucket has 3 to 63 letters, digits, '.' and '-'");
    }
    let prefix = prefix.trim_end_matches('/');
    let of_prefix = |byte: u8| byte.is_ascii_alphanumeric() || b"!-_.*'()=+@,:".contains(&byte);
    let is_name = |name: &str| !matches!(name, "" | "." | "..") && name.bytes().all(of_prefix);
    if !prefix.is_empty() && !prefix.split('/').all(is_name) {
        return Err(
            "a prefix has names of letters, digits, '-', '_', '.' and few other characters, with '/' between",
        );
    }
    Ok(Location::S3 { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
}

fn directory(rest: &str) -> Result<Location, &'static str> {
    if !rest.starts_with('/') {
        return Err("a directory is an absolute path, with three slashes after file:");
    }
    let path = percent_decode_str(rest).decode_utf8().map_err(|_| "the path is not UTF-8")?;
    if path.contains('\0') {
        return Err("a path has no null character");
    }
    Ok(Location::Directory(PathBuf::from(path.into_owned())))
}

impl fmt::Display for ObjectsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Location::S3 { bucket, prefix } if prefix.is_empty() => write!(f, "s3://{bucket}"),
            Location::S3 { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
            Location::Directory(dir) => write!(f, "file://{}", dir.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_bucket_and_a_directory_are_places() {
        for (text, shown) in [
            ("s3://captures", "s3://captures"),
            ("s3://captures/", "s3://captures"),
            ("s3://my.captures-1/runs/2026/", "s3://my.captures-1/runs/2026"),
            ("file:///srv/captures", "file:///srv/captures"),
            ("file:///srv/two%20words", "file:///srv/two words"),
        ] {
            assert_eq!(text.parse::<ObjectsUrl>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn an_error_says_what_was_expected_and_what_was_found() {
        for (bad, problem) in [
            ("captures", "it has no scheme"),
            ("gs://captures", "the scheme is neither s3 nor file"),
            ("s3://", "the name of a bucket has 3 to 63 letters, digits, '.' and '-'"),
            ("s3://a/b", "the name of a bucket has 3 to 63 letters, digits, '.' and '-'"),
            ("file://srv", "a directory is an absolute path, with three slashes after file:"),
        ] {
            let error = bad.parse::<ObjectsUrl>().unwrap_err().to_string();
            let expected = "expected s3://BUCKET[/PREFIX] or file:///DIR";
            assert_eq!(error, format!("{expected}, found {bad:?}: {problem}"));
        }
        for bad in ["s3://captures//a", "s3://captures/../a", "s3://captures/a b", "s3://captures/a?b"] {
            assert!(bad.parse::<ObjectsUrl>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_path_is_not_meant_as_a_place_of_objects() {
        for meant in ["s3://captures", "file:///srv", "gs://other", "S3://x"] {
            assert!(ObjectsUrl::is_meant_by(meant), "{meant}");
        }
        for path in ["jobs/name", "/srv", "s3:/captures", "://x", "a/b://c", ""] {
            assert!(!ObjectsUrl::is_meant_by(path), "{path}");
        }
    }

    #[test]
    fn a_place_can_be_that_of_one_shard() {
        let split = |text: &str| {
            let split = text.parse::<ObjectsUrl>().unwrap().split_shard();
            split.map(|(place, shard)| (place.to_string(), shard))
        };
        assert_eq!(split("s3://captures/runs/shard-3"), Some(("s3://captures/runs".to_owned(), 3)));
        assert_eq!(split("s3://captures/shard-0/"), Some(("s3://captures".to_owned(), 0)));
        assert_eq!(split("file:///srv/shard-12"), Some(("file:///srv".to_owned(), 12)));
        for all in
            ["s3://shard-0", "s3://captures/shard-03", "s3://captures/runs", "file:///", "file:///shard-"]
        {
            assert_eq!(split(all), None, "{all}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text: String) {
            let _ = text.parse::<ObjectsUrl>();
            let _ = format!("s3://{text}").parse::<ObjectsUrl>();
            let _ = format!("file://{text}").parse::<ObjectsUrl>();
        }
    }
}
