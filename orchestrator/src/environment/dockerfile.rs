//! Reads a Dockerfile before a builder does: its instructions, its base images, and whether it needs BuildKit.

use std::collections::{BTreeMap, BTreeSet};

/// Flags of `COPY` and `ADD` that the classic builder rejects.
const BUILDKIT_COPY_FLAGS: [&str; 6] =
    ["--chmod", "--link", "--parents", "--exclude", "--checksum", "--keep-git-dir"];
/// Arguments that BuildKit sets by itself, and that are empty in the classic builder.
const BUILDKIT_ARGUMENTS: [&str; 8] = [
    "TARGETPLATFORM",
    "TARGETOS",
    "TARGETARCH",
    "TARGETVARIANT",
    "BUILDPLATFORM",
    "BUILDOS",
    "BUILDARCH",
    "BUILDVARIANT",
];

/// Returns the first instruction that only BuildKit supports, truncated to fit a message.
pub(super) fn needs_buildkit(text: &str) -> Option<String> {
    let instructions = logical_lines(text);
    let found = instructions.iter().find(|line| {
        let (name, arguments) = split(line);
        let mut flags = arguments.split_whitespace().take_while(|word| word.starts_with("--"));
        let by_flag = match name.as_str() {
            // Every flag of `RUN` needs BuildKit.
            "RUN" => flags.next().is_some(),
            "COPY" | "ADD" => {
                flags.any(|flag| BUILDKIT_COPY_FLAGS.contains(&flag.split('=').next().unwrap_or_default()))
            }
            _ => false,
        };
        let by_here_document =
            matches!(name.as_str(), "RUN" | "COPY" | "ADD") && here_documents(line).next().is_some();
        let argument = |word: &str| {
            name == "ARG" && arguments.split('=').next().is_some_and(|argument| argument.trim() == word)
                || name == "FROM" && arguments.contains(&format!("${word}"))
                || name == "FROM" && arguments.contains(&format!("${{{word}}}"))
        };
        by_flag || by_here_document || BUILDKIT_ARGUMENTS.into_iter().any(argument)
    });
    found.map(|line| line.chars().take(100).collect())
}

/// Returns the images that a Dockerfile names in `FROM` and `COPY --from`, sorted. Skips names whose value only a
/// builder knows.
pub(super) fn base_images(text: &str) -> BTreeSet<String> {
    let mut defaults = BTreeMap::new();
    let mut stages = BTreeSet::new();
    let mut found = BTreeSet::new();
    for line in logical_lines(text) {
        let (name, arguments) = split(&line);
        match name.as_str() {
            // An ARG after the first FROM belongs to a stage. Only those before it are visible to the names of images.
            "ARG" if stages.is_empty() => {
                let words = arguments.split_whitespace().filter_map(|word| word.split_once('='));
                defaults.extend(
                    words.map(|(key, value)| (key.to_owned(), value.trim_matches(['"', '\'']).to_owned())),
                );
            }
            "FROM" => {
                let mut words = arguments.split_whitespace().skip_while(|word| word.starts_with("--"));
                let image = words.next().and_then(|image| expand(image, &defaults));
                found.extend(image.filter(|image| !stages.contains(&image.to_ascii_lowercase())));
                let stage = words.nth(1).unwrap_or_default();
                // An unnamed stage is inserted as an empty name, so that the set is not empty after a `FROM`.
                stages.insert(stage.to_ascii_lowercase());
            }
            "COPY" => {
                let flags = arguments.split_whitespace().take_while(|word| word.starts_with("--"));
                let from = flags.filter_map(|flag| flag.strip_prefix("--from="));
                let images = from.filter(|image| {
                    // A number or a name of `COPY --from` refers to an earlier stage.
                    !(image.is_empty()
                        || image.contains('$')
                        || image.parse::<u32>().is_ok()
                        || stages.contains(&image.to_ascii_lowercase()))
                });
                found.extend(images.map(str::to_owned));
            }
            _ => {}
        }
    }
    // `scratch` is the empty image, which cannot be pulled.
    found.remove("scratch");
    found
}

/// Replaces `$NAME`, `${NAME}` and `${NAME:-value}`. Returns `None` if a variable has no value, or if the result is
/// empty.
fn expand<'v>(text: &'v str, values: &'v BTreeMap<String, String>) -> Option<String> {
    let value = |name: &'v str| {
        let (name, fallback) =
            name.split_once(":-").map_or((name, None), |(name, fallback)| (name, Some(fallback)));
        values.get(name).map(String::as_str).filter(|value| !value.is_empty()).or(fallback)
    };
    substituted(text, value).filter(|expanded| !expanded.is_empty())
}

/// Replaces `$NAME` and `${NAME}` by their values. Returns `None` if a name has no value. In braces, a name may have
/// any characters.
pub(super) fn substituted<'v>(text: &'v str, value: impl Fn(&'v str) -> Option<&'v str>) -> Option<String> {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        let (name, behind) = match after.strip_prefix('{') {
            Some(braced) => braced.split_once('}')?,
            None => {
                let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
                after.split_at_checked(after.find(|c: char| !is_name(c)).unwrap_or(after.len()))?
            }
        };
        expanded.push_str(value(name)?);
        rest = behind;
    }
    expanded.push_str(rest);
    Some(expanded)
}

/// Splits a line into an instruction's name, in capitals, and its arguments.
pub(super) fn split(line: &str) -> (String, &str) {
    let (name, arguments) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    (name.to_ascii_uppercase(), arguments.trim())
}

/// Returns the instructions of a Dockerfile: drops comments and here-documents, and joins continued lines.
pub(super) fn logical_lines(text: &str) -> Vec<String> {
    let mut instructions = Vec::new();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    while let Some(first) = lines.next() {
        let mut instruction = first.to_owned();
        while let Some(open) = instruction.strip_suffix('\\') {
            instruction =
                format!("{} {}", open.trim_end(), lines.next().unwrap_or_default()).trim_end().to_owned();
        }
        let here_documents: Vec<_> = here_documents(&instruction).map(str::to_owned).collect();
        for end in here_documents {
            let _ = lines.by_ref().find(|line| *line == end);
        }
        instructions.push(instruction);
    }
    instructions
}

/// Returns the words that end the here-documents of an instruction.
fn here_documents(instruction: &str) -> impl Iterator<Item = &str> {
    let words = instruction.split_whitespace().filter_map(|word| word.strip_prefix("<<"));
    words.map(|word| word.trim_start_matches('-').trim_matches(['"', '\''])).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn images(text: &str) -> Vec<String> {
        base_images(text).into_iter().collect()
    }

    #[test]
    fn base_images_are_those_of_the_registry_and_not_stages() {
        let text = "ARG TAG=bookworm\nARG IMAGE\nFROM --platform=linux/amd64 debian:${TAG} AS Build\nARG TAG=other\n\
                    FROM build as second\nCOPY --from=0 /x /x\nCOPY --chown=1 --from=busybox:1 /bin/sh /sh\n\
                    COPY --from=second / /\nFROM $IMAGE\nFROM scratch\nFROM ${IMAGE:-alpine}:3\nFROM python:$TAG\n";
        assert_eq!(images(text), ["alpine:3", "busybox:1", "debian:bookworm", "python:bookworm"]);
    }

    #[test]
    fn what_only_buildkit_follows_is_found() {
        for plain in [
            "# syntax=docker/dockerfile:1\nFROM x\nRUN apt-get --mount\nCOPY --chown=1:1 --from=x a b\n",
            "FROM x\n# RUN --mount=type=cache true\nRUN echo $((1<<2)) && cat < x\nARG TARGET\n",
        ] {
            assert_eq!(needs_buildkit(plain), None, "{plain}");
        }
        for (line, text) in [
            ("RUN --mount=type=cache,target=/x true", "FROM x\nRUN --mount=type=cache,target=/x true\n"),
            ("run cat <<EOF >/x", "FROM x\nrun cat <<EOF >/x\nhello\nEOF\n"),
            ("COPY --from=a --chmod=755 x y", "FROM x\nCOPY --from=a --chmod=755 x y\n"),
            ("FROM --platform=$BUILDPLATFORM x", "FROM --platform=$BUILDPLATFORM x\n"),
            ("ARG TARGETARCH", "FROM x\nARG TARGETARCH\n"),
        ] {
            assert_eq!(needs_buildkit(text).as_deref(), Some(line));
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(
            text in "((ARG|FROM|COPY|RUN) ?[a-zA-Z$\\{\\}:=<\" \\\\-]{0,40}\n){0,8}"
        ) {
            needs_buildkit(&text);
            for image in base_images(&text) {
                proptest::prop_assert!(!image.is_empty() && !image.contains(char::is_whitespace), "{image}");
            }
        }
    }

    #[test]
    fn fuzz_dockerfile_images() {
        rolltap_testing::fuzz!("dockerfile_images", |text| {
            let Ok(text) = std::str::from_utf8(text) else { return };
            needs_buildkit(text);
            for image in base_images(text) {
                assert!(!image.is_empty() && !image.contains(char::is_whitespace), "{image}");
            }
        });
    }
}
