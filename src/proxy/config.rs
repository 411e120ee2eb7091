//! The configuration of `rolltap proxy`: the file of `--config`, with flags and environment variables over it.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use rolltap_orchestrator::common::suggest::nearest;

use super::node_options::NodeOptions;
use super::options::ProxyOptions;
use super::tables::FileTables;
use crate::cluster_options::ClusterOptions;
use crate::connection_options::{PlaneTlsOptions, UpstreamConnectionOptions};
use crate::prompt_options::PromptOptions;
use crate::trace_options::TraceOptions;

/// The settings that the user gives on the command line or in the environment, without any default.
///
/// clap fills in the defaults before a file is read. This type drops them, so that the file comes before the defaults.
#[derive(Debug)]
pub(super) struct GivenOptions(ArgMatches);

impl Args for GivenOptions {
    fn augment_args(command: Command) -> Command {
        let with_prompts = PromptOptions::augment_args(ProxyOptions::augment_args(command));
        let with_tls = PlaneTlsOptions::augment_args(UpstreamConnectionOptions::augment_args(with_prompts));
        let with_cluster = ClusterOptions::augment_args(TraceOptions::augment_args(with_tls));
        NodeOptions::augment_args(with_cluster)
    }

    fn augment_args_for_update(command: Command) -> Command {
        let with_prompts =
            PromptOptions::augment_args_for_update(ProxyOptions::augment_args_for_update(command));
        let with_upstream_tls = UpstreamConnectionOptions::augment_args_for_update(with_prompts);
        let with_tls = PlaneTlsOptions::augment_args_for_update(with_upstream_tls);
        let with_traces = TraceOptions::augment_args_for_update(with_tls);
        NodeOptions::augment_args_for_update(ClusterOptions::augment_args_for_update(with_traces))
    }
}

impl FromArgMatches for GivenOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given = matches.clone();
        let is_default = |id: &&clap::Id| {
            matches!(matches.value_source(id.as_str()), Some(ValueSource::DefaultValue) | None)
        };
        for id in matches.ids().filter(is_default) {
            // The id comes from the matches, so the only error, an unknown id, is impossible.
            let _ = given.try_clear_id(id.as_str());
        }
        Ok(Self(given))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// All settings of `rolltap proxy`, as the user writes them. A setting without a value has its default.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProxyConfig {
    pub(super) options: ProxyOptions,
    pub(super) prompts: PromptOptions,
    pub(super) upstream_connections: UpstreamConnectionOptions,
    pub(super) plane_tls: PlaneTlsOptions,
    pub(super) traces: TraceOptions,
    pub(super) cluster: ClusterOptions,
    pub(super) node: NodeOptions,
    pub(super) tables: FileTables,
}

impl ProxyConfig {
    /// Merges all sources: a flag comes before its environment variable, the variable before the file, and the file
    /// before the default.
    pub(super) fn merged(file: Option<&Path>, given: GivenOptions) -> anyhow::Result<Self> {
        let mut config = file.map(Self::read).transpose()?.unwrap_or_default();
        let GivenOptions(mut given) = given;
        config.options.update_from_arg_matches_mut(&mut given)?;
        config.prompts.update_from_arg_matches_mut(&mut given)?;
        config.upstream_connections.update_from_arg_matches_mut(&mut given)?;
        config.plane_tls.update_from_arg_matches_mut(&mut given)?;
        config.traces.update_from_arg_matches_mut(&mut given)?;
        config.cluster.update_from_arg_matches_mut(&mut given)?;
        config.node.update_from_arg_matches_mut(&mut given)?;
        Ok(config)
    }

    /// Returns the address of the admin plane by this file, or the default if the file is `None` or has none.
    pub(crate) fn admin_address(file: Option<&Path>) -> anyhow::Result<SocketAddr> {
        Ok(file.map(Self::read).transpose()?.unwrap_or_default().options.admin)
    }

    /// Reads the file.
    ///
    /// # Errors
    /// The file cannot be read, or has an unknown key or a wrong value. The error names the nearest known key, or the
    /// line of the value.
    fn read(path: &Path) -> anyhow::Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("configuration file {} cannot be used", path.display()))
    }

    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let table: toml::Table = toml::from_str(text)?;
        let keys = Self::keys();
        if let Some(unknown) = table.keys().find(|key| !keys.contains(key)) {
            match nearest(unknown, keys.iter().map(String::as_str)) {
                Some(near) => bail!("unknown key {unknown:?}; did you mean {near:?}?"),
                None => bail!("unknown key {unknown:?}; known keys: {}", keys.join(", ")),
            }
        }
        // Each part reads its own keys from the text. A flattened struct would lose the lines of wrong values.
        let wrong = |error: toml::de::Error| anyhow!(error);
        Ok(Self {
            options: toml::from_str(text).map_err(wrong)?,
            prompts: toml::from_str(text).map_err(wrong)?,
            upstream_connections: toml::from_str(text).map_err(wrong)?,
            plane_tls: toml::from_str(text).map_err(wrong)?,
            traces: toml::from_str(text).map_err(wrong)?,
            cluster: toml::from_str(text).map_err(wrong)?,
            node: toml::from_str(text).map_err(wrong)?,
            tables: toml::from_str(text).map_err(wrong)?,
        })
    }

    /// The keys of the file, in the order of the documentation.
    pub(crate) fn keys() -> Vec<String> {
        let options = Self::options();
        let options = options.get_arguments().map(|option| option.get_id().to_string());
        options.chain(FileTables::KEYS.iter().map(|(key, _)| (*key).to_owned())).collect()
    }

    /// The settings that have a flag. The id of each is its key.
    pub(crate) fn options() -> Command {
        GivenOptions::augment_args(Command::new("proxy"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(file: &str, flags: &[&str]) -> ProxyConfig {
        let command = ProxyConfig::options().mut_args(|option| option.env(None::<&str>));
        let matches = command.try_get_matches_from([&["proxy"], flags].concat()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("proxy.toml");
        std::fs::write(&path, file).unwrap();
        ProxyConfig::merged(Some(&path), GivenOptions::from_arg_matches(&matches).unwrap()).unwrap()
    }

    #[test]
    fn a_flag_comes_before_the_file_and_the_file_before_the_default() {
        let file = "memory_mib = 7\nlisten = [\"127.0.0.1:1\"]\nallow_media_urls = true\nhistory = \"off\"\n\
                    model_aliases = { a = \"b\" }\nexclude_tools_when_tool_choice_none = true";
        let ProxyConfig { options, prompts, .. } = merged(file, &[]);
        assert_eq!((options.memory_mib, options.listen.len(), options.allow_media_urls), (7, 1, true));
        assert_eq!(options.listen.first().map(std::net::SocketAddr::port), Some(1));
        assert_eq!(prompts.history, Some(rolltap_proxy::History::Off));
        assert!(prompts.render_settings().unwrap().exclude_tools_when_tool_choice_none);
        assert_eq!(options.max_connections, rolltap_proxy::Settings::DEFAULT_MAX_CONNECTIONS);

        let flags = ["--memory-mib", "160", "--history", "sampled", "--model-alias", "c=d"];
        let ProxyConfig { options, prompts, .. } = merged(file, &flags);
        assert_eq!(options.memory_mib, 160, "a flag with the value of the default is a flag");
        assert_eq!(options.listen.first().map(std::net::SocketAddr::port), Some(1));
        assert_eq!(options.model_aliases, [("c".to_owned(), "d".to_owned())]);
        assert_eq!(prompts.history, Some(rolltap_proxy::History::Sampled));
    }

    #[test]
    fn an_unknown_key_gets_the_nearest_key() {
        let error = ProxyConfig::parse("upstreams = []").unwrap_err();
        assert_eq!(error.to_string(), "unknown key \"upstreams\"; did you mean \"upstream\"?");
        let error = ProxyConfig::parse("colour = 1").unwrap_err();
        assert!(error.to_string().contains("known keys: upstream, "), "{error}");
    }

    #[test]
    fn a_wrong_value_is_shown_with_its_line() {
        for wrong in ["admin = \"nowhere\"", "history = \"on\"", "limits = { max_call = 1 }"] {
            let error = ProxyConfig::parse(&format!("data = \"d\"\n{wrong}")).unwrap_err();
            assert!(error.to_string().contains("line 2"), "{error}");
        }
    }

    #[test]
    fn roles_and_training_are_tables_whose_unknown_keys_are_errors() {
        let file =
            "[[roles]]\nrole = \"title\"\nsystem_contains = \"a title\"\n[training]\ntitle = \"train\"";
        assert_eq!(ProxyConfig::parse(file).unwrap().tables.roles.len(), 1);
        for (wrong, known) in [
            ("[training]\nheading = \"mask\"", "compaction"),
            ("[training]\ntitle = \"skip\"", "mask"),
            ("[[roles]]\nrole = \"title\"\nsystem = \"x\"", "system_contains"),
            ("[[roles]]\nrole = \"heading\"\nsystem_contains = \"x\"", "sub_agent"),
        ] {
            let error = ProxyConfig::parse(wrong).unwrap_err().to_string();
            assert!(error.contains(known) && error.contains("line "), "{error}");
        }
    }

    #[test]
    fn each_key_is_read() {
        for key in ProxyConfig::keys() {
            // No setting has a value of this type.
            let error = ProxyConfig::parse(&format!("{key} = [[1]]"));
            assert!(error.is_err(), "{key} is a key that no field reads");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text: String) {
            let _ = ProxyConfig::parse(&text);
        }
    }
}
