//! The part of a Dockerfile that the local environment supports: `WORKDIR`, `ENV`, and `COPY` and `ADD` of files of the
//! context. Instructions that need an image are skipped and reported.

use std::collections::BTreeMap;

use crate::environment::dockerfile::{logical_lines, split, substituted};

/// The last stage of a Dockerfile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dockerfile {
    /// The final working directory, absolute.
    pub(super) workdir: String,
    /// Every `WORKDIR` of the stage, since scripts may use each one.
    pub(super) workdirs: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) copies: Vec<CopyFiles>,
    /// Instructions that have an effect and are not supported.
    pub(super) ignored: Vec<String>,
}

/// `COPY source… target`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CopyFiles {
    /// Patterns relative to the build context.
    pub(super) sources: Vec<String>,
    /// An absolute path. A directory if it ends with a slash.
    pub(super) target: String,
}

impl Default for Dockerfile {
    fn default() -> Self {
        Self {
            workdir: "/".to_owned(),
            workdirs: Vec::new(),
            env: BTreeMap::new(),
            copies: Vec::new(),
            ignored: Vec::new(),
        }
    }
}

impl Dockerfile {
    pub(super) fn parse(text: &str) -> Self {
        let mut dockerfile = Self::default();
        for line in logical_lines(text) {
            let (name, arguments) = split(&line);
            if !dockerfile.follow(&name, arguments) {
                dockerfile.ignored.push(line.chars().take(100).collect());
            }
        }
        dockerfile
    }

    /// Applies an instruction. Returns false if it has an effect and is not supported.
    fn follow(&mut self, name: &str, arguments: &str) -> bool {
        match name {
            // Only the last stage becomes the image.
            "FROM" => *self = Self::default(),
            "WORKDIR" => {
                let Some(dir) = self.expand(arguments.trim_matches('"')) else { return false };
                self.workdir = self.absolute(&dir);
                self.workdirs.push(self.workdir.clone());
            }
            "ENV" => {
                let pairs =
                    environment(arguments).into_iter().map(|(key, value)| Some((key, self.expand(&value)?)));
                let Some(pairs) = pairs.collect::<Option<Vec<_>>>() else { return false };
                self.env.extend(pairs);
            }
            "COPY" | "ADD" => {
                let Some(copy) = self.copy_files(arguments) else { return false };
                self.copies.push(copy);
            }
            "RUN" | "ONBUILD" => return false,
            // The one user of the local environment takes the place of root.
            "USER" => return matches!(arguments, "root" | "0"),
            // The other instructions describe how a container starts, and build nothing.
            _ => {}
        }
        true
    }

    fn copy_files(&self, arguments: &str) -> Option<CopyFiles> {
        let mut arguments = arguments;
        while let Some(rest) = arguments.strip_prefix("--") {
            let (flag, rest) = rest.split_once(char::is_whitespace)?;
            if flag.starts_with("from") {
                return None;
            }
            arguments = rest.trim_start();
        }
        let words: Vec<String> = if arguments.starts_with('[') {
            serde_json::from_str(arguments).ok()?
        } else {
            arguments.split_whitespace().map(str::to_owned).collect()
        };
        let words = words.iter().map(|word| self.expand(word)).collect::<Option<Vec<_>>>()?;
        let (target, sources) = words.split_last()?;
        // A URL, a here-document or a path outside the context would need a builder.
        let from_context =
            |source: &String| !(source.contains("://") || source.contains("..") || source.contains("<<"));
        if sources.is_empty() || !sources.iter().all(from_context) || target.contains("..") {
            return None;
        }
        let is_directory = target.ends_with('/') || target == "." || sources.len() > 1;
        let slash = if is_directory { "/" } else { "" };
        let target = format!("{}{slash}", self.absolute(target).trim_end_matches('/'));
        Some(CopyFiles { sources: sources.to_vec(), target })
    }

    /// Resolves a path against the current workdir. The result has no `.` components and no final slash.
    fn absolute(&self, path: &str) -> String {
        let base = if path.starts_with('/') { "" } else { self.workdir.as_str() };
        let mut parts: Vec<&str> = Vec::new();
        for part in base.split('/').chain(path.split('/')) {
            match part {
                "" | "." => {}
                ".." => {
                    parts.pop();
                }
                part => parts.push(part),
            }
        }
        format!("/{}", parts.join("/"))
    }

    /// Replaces `$NAME` and `${NAME}`. `None` if a variable is unknown.
    fn expand(&self, text: &str) -> Option<String> {
        substituted(text, |name| self.env.get(name).map(String::as_str))
    }
}

/// Parses `KEY=value KEY="a value"`, or the old `KEY a value`.
fn environment(arguments: &str) -> Vec<(String, String)> {
    let first = arguments.split_whitespace().next().unwrap_or_default();
    if !first.contains('=') {
        let value = arguments.strip_prefix(first).unwrap_or_default().trim();
        return vec![(first.to_owned(), value.to_owned())];
    }
    let mut words = vec![String::new()];
    let mut quote = None;
    let mut characters = arguments.chars();
    while let Some(character) = characters.next() {
        let Some(word) = words.last_mut() else { break };
        match (character, quote) {
            ('\\', None | Some('"')) => word.extend(characters.next()),
            (character, Some(open)) if character == open => quote = None,
            ('"' | '\'', None) => quote = Some(character),
            (character, None) if character.is_whitespace() => words.push(String::new()),
            (character, _) => word.push(character),
        }
    }
    words
        .iter()
        .filter_map(|word| word.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(sources: &[&str], target: &str) -> CopyFiles {
        CopyFiles {
            sources: sources.iter().map(|source| (*source).to_owned()).collect(),
            target: target.to_owned(),
        }
    }

    #[test]
    fn simple_instructions_are_followed_and_others_named() {
        let dockerfile = Dockerfile::parse(
            r#"
# syntax=docker/dockerfile:1
FROM debian:bookworm AS build
COPY lost.txt /lost
FROM debian:bookworm
ENV ROOT=/srv NAME="two words" PLAIN=a\ b
ENV OLD style value
RUN apt-get update \
    # a comment between
    && apt-get install -y curl
WORKDIR /app
workdir sub
COPY a.txt b.txt ./
COPY --chown=1:1 --chmod=755 *.sh ${ROOT}/bin/
COPY ["with space.txt", "named"]
COPY --from=build /lost /found
COPY . .
ADD https://example.com/x /x
RUN <<EOF
WORKDIR /not-this
EOF
USER agent
CMD ["bash"]
"#,
        );
        assert_eq!(dockerfile.workdir, "/app/sub");
        assert_eq!(dockerfile.workdirs, ["/app", "/app/sub"]);
        let env: Vec<_> = dockerfile.env.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(env, [("NAME", "two words"), ("OLD", "style value"), ("PLAIN", "a b"), ("ROOT", "/srv")]);
        assert_eq!(
            dockerfile.copies,
            [
                copy(&["a.txt", "b.txt"], "/app/sub/"),
                copy(&["*.sh"], "/srv/bin/"),
                copy(&["with space.txt"], "/app/sub/named"),
                copy(&["."], "/app/sub/"),
            ]
        );
        assert_eq!(
            dockerfile.ignored,
            [
                "RUN apt-get update && apt-get install -y curl",
                "COPY --from=build /lost /found",
                "ADD https://example.com/x /x",
                "RUN <<EOF",
                "USER agent",
            ]
        );
    }

    #[test]
    fn paths_never_lead_out_of_the_root() {
        let dockerfile =
            Dockerfile::parse("FROM x\nWORKDIR /../../etc/../app\nCOPY ../secret /x\nCOPY x ../../y\n");
        assert_eq!(dockerfile.workdir, "/app");
        assert_eq!((dockerfile.copies.len(), dockerfile.ignored.len()), (0, 2));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(
            text in "((FROM|COPY|ADD|ENV|WORKDIR|RUN|USER) ?[a-z$\\{\\}\\[\\]\"'=\\\\/. <#-]{0,30}\n){0,8}"
        ) {
            let dockerfile = Dockerfile::parse(&text);
            proptest::prop_assert!(dockerfile.workdir.starts_with('/'));
            proptest::prop_assert!(!dockerfile.workdir.split('/').any(|part| part == ".."));
            for copy in dockerfile.copies {
                proptest::prop_assert!(!copy.target.split('/').any(|part| part == ".."), "{}", copy.target);
            }
        }
    }

    #[test]
    fn fuzz_local_dockerfile() {
        rolltap_testing::fuzz!("local_dockerfile", |text| {
            let Ok(text) = std::str::from_utf8(text) else { return };
            let dockerfile = Dockerfile::parse(text);
            let is_inside = |path: &str| !path.split('/').any(|part| part == "..");
            assert!(dockerfile.workdir.starts_with('/') && is_inside(&dockerfile.workdir));
            assert!(dockerfile.copies.iter().all(|copy| is_inside(&copy.target)));
        });
    }
}
