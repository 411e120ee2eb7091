//! From the configuration to the settings of the proxy crate.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use rolltap_proxy::roles::RoleRules;
use rolltap_proxy::store::{Retention, StoreSettings};
use rolltap_proxy::{
    Address, AllowedOrigins, ImplicitTrials, NodeSettings, PlaneTls, PoolSettings, Redaction, Settings,
};

use super::config::ProxyConfig;
use super::options::ProxyOptions;
use crate::token_file::read_token;

impl ProxyConfig {
    /// Parses the values that are text, and reads the token file. The settings of a node are `None` without a cluster.
    pub(super) fn settings(self) -> anyhow::Result<(Settings, Option<NodeSettings>)> {
        let Self { options, prompts, upstream_connections, plane_tls, traces, cluster, node, tables } = self;
        let node = node.node(&cluster)?;
        let agent_tls = plane_tls.files()?;
        let admin_tls = options.admin_tls(agent_tls.as_ref())?;
        let settings = Settings {
            upstreams: options.upstreams()?,
            store: options.store()?,
            logprobs_mode: options.logprobs_mode()?,
            implicit_trials: options.implicit_trials()?,
            tool_strict_level: parsed("tool_strict_level", &options.tool_strict_level)?,
            // An empty list in the file is the default too: without an address nothing can call.
            listen: match options.listen.is_empty() {
                true => ProxyOptions::default().listen,
                false => options.listen,
            },
            admin: options.admin,
            agent_tls,
            admin_tls,
            public_url: options.public_url.map(|url| url.parse()).transpose()?,
            data_dir: options.data,
            admin_token: options.admin_token_file.as_deref().map(read_token).transpose()?,
            admin_tokens: options.admin_tokens,
            audit_log: options.audit_log,
            model_aliases: options.model_aliases.into_iter().collect(),
            upstream_idle_timeout: Duration::from_secs(options.upstream_idle_timeout.get()),
            memory: u64::from(options.memory_mib) << 20,
            max_connections: options.max_connections,
            max_connections_per_address: options.max_connections_per_address,
            allow_media_urls: options.allow_media_urls,
            allowed_origins: AllowedOrigins::new(&options.allowed_origins).context("allowed_origins")?,
            pool: PoolSettings {
                generation_defaults: options.generation_defaults.map(Into::into).unwrap_or_default(),
                http_proxy: upstream_connections.http_proxy()?,
                session_headers: upstream_connections.session_headers()?,
                tls: upstream_connections.files()?,
                ..PoolSettings::default()
            },
            history: prompts.history.unwrap_or_default(),
            render: prompts.render_settings()?,
            roles: RoleRules::with(tables.roles)?,
            training: tables.training,
            limits: tables.limits.or(Settings::DEFAULT_LIMITS),
            traces: traces.settings()?,
            pages: None,
            submissions: None,
            redaction: Arc::new(Redaction::new(&tables.redact.headers, &tables.redact.patterns)?),
            reader_patience: Settings::DEFAULT_READER_PATIENCE,
        };
        Ok((settings, node))
    }
}

impl ProxyOptions {
    fn upstreams(&self) -> anyhow::Result<Vec<Address>> {
        if self.upstream.is_empty() {
            bail!("no upstream is given: name a vLLM server, like --upstream http://127.0.0.1:8000");
        }
        let addresses: Vec<Address> =
            self.upstream.iter().map(|url| url.parse()).collect::<Result<_, _>>()?;
        let mut own: Vec<(Address, &str)> = Vec::new();
        for (url, key) in &self.upstream_api_keys {
            let address: Address = url.parse().context("upstream_api_keys")?;
            if !addresses.contains(&address) {
                bail!("upstream_api_keys has a key for {address}, which is no upstream");
            }
            own.push((address, key));
        }
        let authorized = |address: Address| {
            let own = own.iter().find(|(of, _)| *of == address).map(|(_, key)| *key);
            match own.or(self.upstream_api_key.as_deref()) {
                Some(key) => address.with_api_key(key),
                None => Ok(address),
            }
        };
        Ok(addresses.into_iter().map(authorized).collect::<Result<_, _>>()?)
    }

    /// Returns the TLS of the admin plane: that of the agent plane, and the authorities of clients.
    fn admin_tls(&self, agent_tls: Option<&PlaneTls>) -> anyhow::Result<Option<PlaneTls>> {
        match (agent_tls, &self.admin_client_ca) {
            (None, Some(_)) => {
                bail!(
                    "admin_client_ca is given without tls_cert: certificates of clients need TLS on the admin plane"
                )
            }
            (None, None) => Ok(None),
            (Some(tls), authorities) => {
                Ok(Some(PlaneTls { client_authorities: authorities.clone(), ..tls.clone() }))
            }
        }
    }

    fn store(&self) -> anyhow::Result<StoreSettings> {
        Ok(StoreSettings {
            sync: parsed("sync", &self.sync)?,
            retention: Retention {
                max_age: self.retain_days.map(|days| Duration::from_hours(24 * u64::from(days))),
                max_bytes: self.retain_gib.map(|gib| u64::from(gib) << 30),
            },
        })
    }

    /// Checks the mode. clap rejects a wrong flag earlier, but the value of a file comes here unchecked.
    fn logprobs_mode(&self) -> anyhow::Result<String> {
        match self.logprobs_mode.as_str() {
            mode if Settings::LOGPROBS_MODES.contains(&mode) => Ok(mode.to_owned()),
            mode => bail!("logprobs_mode is {mode:?}; it may be {}", Settings::LOGPROBS_MODES.join(" or ")),
        }
    }

    fn implicit_trials(&self) -> anyhow::Result<ImplicitTrials> {
        let Some(place) = &self.implicit_trials else { return Ok(ImplicitTrials::Never) };
        ImplicitTrials::named(place).ok_or_else(|| {
            anyhow!("implicit_trials is {place:?}; it may be {}", ImplicitTrials::NAMES.join(" or "))
        })
    }
}

/// Parses a value of the proxy crate. An error names the key.
fn parsed<T: std::str::FromStr<Err = String>>(key: &str, text: &str) -> anyhow::Result<T> {
    text.parse().map_err(|error| anyhow!("{key}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_proxy_crate() {
        let mut config = ProxyConfig::default();
        config.options.upstream = vec!["http://127.0.0.1:8000".to_owned()];
        let upstreams = config.options.upstreams().unwrap();
        let ports = (config.options.listen.clone(), config.options.admin);
        let of_crate = Settings {
            listen: ports.0,
            admin: ports.1,
            ..Settings::on_loopback(upstreams, config.options.data.clone())
        };
        // Both debug texts have all fields. The compiled rules of roles and redaction compare by their text.
        assert_eq!(format!("{:?}", config.settings().unwrap().0), format!("{of_crate:?}"));
    }

    #[test]
    fn an_upstream_has_its_own_key_or_the_common_one() {
        let keyed = |more: &str| {
            let text =
                format!("upstream = [\"http://a\", \"http://b/v1\"]\nupstream_api_key = \"common\"\n{more}");
            ProxyConfig::parse(&text).unwrap().options.upstreams()
        };
        let with = |url: &str, key: &str| url.parse::<Address>().unwrap().with_api_key(key).unwrap();
        let own = keyed("upstream_api_keys = { \"http://b\" = \"own\" }").unwrap();
        assert_eq!(own, [with("http://a", "common"), with("http://b", "own")]);
        let error = keyed("upstream_api_keys = { \"http://c\" = \"k\" }").unwrap_err().to_string();
        assert!(error.contains("http://c, which is no upstream"), "{error}");
    }

    #[test]
    fn an_empty_list_of_addresses_is_the_default() {
        let config = ProxyConfig::parse("upstream = [\"http://127.0.0.1:8000\"]\nlisten = []").unwrap();
        assert_eq!(config.settings().unwrap().0.listen, ["127.0.0.1:7070".parse().unwrap()]);
    }

    #[test]
    fn wrong_names_in_the_file_are_errors_with_the_right_names() {
        for (wrong, right) in [
            ("sync = \"never\"", "always, interval, off"),
            ("logprobs_mode = \"raw_logits\"", "raw_logprobs or processed_logprobs"),
            ("tool_strict_level = \"all\"", "auto, function, parameter"),
            ("implicit_trials = \"here\"", "loopback or anywhere"),
            ("chat_template_content_format = \"json\"", "auto, string, openai"),
        ] {
            let config = ProxyConfig::parse(&format!("upstream = [\"http://h:8000\"]\n{wrong}")).unwrap();
            let error = config.settings().unwrap_err().to_string();
            let key = wrong.split(' ').next().unwrap_or_default();
            assert!(error.contains(key) && error.contains(right), "{error}");
        }
    }
}
