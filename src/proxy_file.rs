//! The file of `rolltap proxy --config`: what it may hold, and what is said of a wrong one.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use rolltap_orchestrator::common::suggest::nearest;
use rolltap_proxy::api::Limits;
use rolltap_proxy::roles::RoleRule;
use rolltap_proxy::{History, SamplingDefaults, TrainingPolicy};
use serde::Deserialize;

/// `rolltap proxy --config FILE`: the flags' names with `_` for `-`, all optional.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProxyFile {
    #[serde(default)]
    pub(crate) upstream: Vec<String>,
    pub(crate) upstream_api_key: Option<String>,
    #[serde(default)]
    pub(crate) listen: Vec<SocketAddr>,
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) public_url: Option<String>,
    pub(crate) data: Option<PathBuf>,
    pub(crate) sync: Option<String>,
    pub(crate) retain_days: Option<u32>,
    pub(crate) retain_gib: Option<u32>,
    pub(crate) admin_token_file: Option<PathBuf>,
    pub(crate) logprobs_mode: Option<String>,
    pub(crate) tool_strict_level: Option<String>,
    pub(crate) implicit_trials: Option<String>,
    pub(crate) generation_defaults: Option<GenerationDefaults>,
    /// In seconds.
    pub(crate) upstream_idle_timeout: Option<NonZeroU64>,
    #[serde(default)]
    pub(crate) model_aliases: BTreeMap<String, String>,
    pub(crate) history: Option<History>,
    pub(crate) tokenizer: Option<PathBuf>,
    pub(crate) chat_template: Option<PathBuf>,
    pub(crate) default_chat_template_kwargs: Option<serde_json::Map<String, serde_json::Value>>,
    pub(crate) chat_template_content_format: Option<String>,
    #[serde(default)]
    pub(crate) roles: Vec<RoleRule>,
    #[serde(default)]
    pub(crate) training: TrainingPolicy,
    #[serde(default)]
    pub(crate) limits: Limits,
    pub(crate) memory_mib: Option<u32>,
    pub(crate) max_connections: Option<NonZeroUsize>,
    #[serde(default)]
    pub(crate) allow_media_urls: bool,
    #[serde(default)]
    pub(crate) allowed_origins: Vec<String>,
    #[serde(default)]
    pub(crate) redact: Redact,
}

/// What is a secret besides what is one always.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Redact {
    /// Names of headers.
    pub(crate) headers: Vec<String>,
    /// Regular expressions.
    pub(crate) patterns: Vec<String>,
}

/// Keys of vLLM's `generation_config.json` that are recorded.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GenerationDefaults {
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<i64>,
}

impl From<GenerationDefaults> for SamplingDefaults {
    fn from(given: GenerationDefaults) -> Self {
        let GenerationDefaults { temperature, top_p, top_k } = given;
        Self { temperature, top_p, top_k }
    }
}

const KEYS: [&str; 29] = [
    "upstream",
    "upstream_api_key",
    "listen",
    "admin",
    "public_url",
    "data",
    "sync",
    "retain_days",
    "retain_gib",
    "admin_token_file",
    "logprobs_mode",
    "tool_strict_level",
    "implicit_trials",
    "generation_defaults",
    "upstream_idle_timeout",
    "model_aliases",
    "history",
    "tokenizer",
    "chat_template",
    "default_chat_template_kwargs",
    "chat_template_content_format",
    "roles",
    "training",
    "limits",
    "memory_mib",
    "max_connections",
    "allow_media_urls",
    "allowed_origins",
    "redact",
];

impl ProxyFile {
    /// Reads the file. Unknown keys are errors that name the nearest known one.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("configuration file {} cannot be used", path.display()))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let table: toml::Table = toml::from_str(text)?;
        if let Some(unknown) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
            match nearest(unknown, KEYS) {
                Some(near) => bail!("unknown key {unknown:?}; did you mean {near:?}?"),
                None => bail!("unknown key {unknown:?}; known keys: {}", KEYS.join(", ")),
            }
        }
        toml::from_str(text).map_err(|error| anyhow!(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_told_the_nearest_key() {
        let error = ProxyFile::parse("upstreams = []").unwrap_err();
        assert_eq!(error.to_string(), "unknown key \"upstreams\"; did you mean \"upstream\"?");
        let error = ProxyFile::parse("colour = 1").unwrap_err();
        assert!(error.to_string().contains("known keys: upstream, "), "{error}");
    }

    #[test]
    fn a_wrong_value_is_shown_where_it_stands() {
        let error = ProxyFile::parse("data = \"d\"\nadmin = \"nowhere\"").unwrap_err();
        assert!(error.to_string().contains("line 2"), "{error}");
    }

    #[test]
    fn roles_and_training_are_tables_whose_unknown_keys_are_errors() {
        let file =
            "[[roles]]\nrole = \"title\"\nsystem_contains = \"a title\"\n[training]\ntitle = \"train\"";
        assert_eq!(ProxyFile::parse(file).unwrap().roles.len(), 1);
        for (wrong, known) in [
            ("[training]\nheading = \"mask\"", "compaction"),
            ("[training]\ntitle = \"skip\"", "mask"),
            ("[[roles]]\nrole = \"title\"\nsystem = \"x\"", "system_contains"),
            ("[[roles]]\nrole = \"heading\"\nsystem_contains = \"x\"", "sub_agent"),
        ] {
            let error = ProxyFile::parse(wrong).unwrap_err().to_string();
            assert!(error.contains(known) && error.contains("line "), "{error}");
        }
    }

    #[test]
    fn every_known_key_is_one_of_the_file() {
        let text = "upstream = [\"http://h:8000\"]\nupstream_api_key = \"k\"\nlisten = [\"127.0.0.1:1\"]\n\
                    admin = \"127.0.0.1:2\"\npublic_url = \"http://h\"\ndata = \"d\"\nsync = \"off\"\nretain_days = 30\nretain_gib = 500\nadmin_token_file = \"t\"\n\
                    logprobs_mode = \"processed_logprobs\"\ntool_strict_level = \"function\"\nimplicit_trials = \"loopback\"\ngeneration_defaults = { top_k = 20 }\n\
                    upstream_idle_timeout = 60\nmodel_aliases = { a = \"b\" }\nhistory = \"sampled\"\ntokenizer = \"m\"\nchat_template = \"t\"\n\
                    default_chat_template_kwargs = { x = 1 }\nchat_template_content_format = \"auto\"\n\
                    roles = [{ role = \"title\", has_tools = false }]\ntraining = { compaction = \"mask\" }\n\
                    limits = { max_calls = 5 }\nmemory_mib = 7\nmax_connections = 9\nallow_media_urls = true\nallowed_origins = [\"*\"]\nredact = { headers = [\"x-s\"] }";
        assert_eq!(text.lines().count(), KEYS.len());
        let file = ProxyFile::parse(text).unwrap();
        assert_eq!(file.logprobs_mode.as_deref(), Some("processed_logprobs"));
    }

    #[test]
    fn the_example_names_every_key_and_holds_with_all_of_them() {
        let example = include_str!("../configs/proxy.toml");
        let is_setting = |line: &str| KEYS.iter().any(|key| line.starts_with(&format!("{key} = ")));
        let lines = example
            .lines()
            .map(|line| line.strip_prefix("# ").filter(|rest| is_setting(rest)).unwrap_or(line));
        let text = lines.collect::<Vec<_>>().join("\n");
        assert_eq!(text.lines().filter(|line| is_setting(line)).count(), KEYS.len());
        ProxyFile::parse(&text).unwrap();
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text: String) {
            let _ = ProxyFile::parse(&text);
        }
    }
}
