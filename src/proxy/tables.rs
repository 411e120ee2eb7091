//! The settings of `rolltap proxy` that only the file has, because their values are tables.

use rolltap_proxy::api::Limits;
use rolltap_proxy::roles::RoleRule;
use rolltap_proxy::{Settings, TrainingPolicy};
use serde::Deserialize;

/// Declares the keys, their types, defaults and documentation, and a list of them for [`super::config`] and `just
/// docs`.
macro_rules! tables {
    ($($(#[doc = $doc:literal])+ $key:ident: $type:ty = $default:expr,)+) => {
        /// Settings that are a key of the file, and neither a flag nor a variable.
        #[derive(Clone, Debug, Deserialize)]
        #[serde(default)]
        pub(crate) struct FileTables {
            $($(#[doc = $doc])+ pub(super) $key: $type,)+
        }

        impl Default for FileTables {
            fn default() -> Self {
                Self { $($key: $default,)+ }
            }
        }

        impl FileTables {
            /// Each key with the lines of its documentation.
            pub(crate) const KEYS: &[(&str, &[&str])] = &[$((stringify!($key), &[$($doc),+])),+];
        }
    };
}

tables! {
    /// Give calls their roles by these rules: main, sub_agent, compaction, title or probe.
    ///
    /// The first rule whose conditions all hold decides. These rules come before the built-in rules. The built-in rules
    /// recognise the auxiliary calls of Claude Code, Codex, Gemini CLI, OpenCode and Terminus-2 by their prompts. They
    /// recognise probes by their limit of one token. A rule has at least one condition:
    ///
    /// - `dialect` is chat_completions, completions, responses, messages or generate_content.
    /// - `model` is the name that the agent uses; it may end in `*`.
    /// - `max_tokens_at_most` is the largest token limit of the request.
    /// - `has_tools` is true or false.
    /// - `system_contains`, `first_user_contains` and `last_user_contains` are texts in the instructions, in the first
    ///   and in the last user message.
    ///
    /// Tables at the end of the file are an alternative: `[[roles]]`.
    roles: Vec<RoleRule> = Vec::new(),
    /// Train the tokens of a role (`train`), or include them in rows without training them (`mask`).
    ///
    /// A trial may override it.
    training: TrainingPolicy = TrainingPolicy::default(),
    /// Limit the trials that set no limits when they are opened.
    ///
    /// The keys are `max_calls`, `max_completion_tokens`, `max_calls_in_flight`, `max_calls_per_minute` and
    /// `max_body_bytes`. Only `max_calls_in_flight` has a default.
    limits: Limits = Settings::DEFAULT_LIMITS,
    /// Remove these secrets from logs, recorded errors, and errors of the upstreams.
    ///
    /// `headers` names headers whose values are secret, and `patterns` are regular expressions. The proxy always
    /// removes trial keys, its own API keys and tokens, and the values of authorization, x-api-key, api-key,
    /// x-goog-api-key, proxy-authorization, cookie and set-cookie.
    redact: Redact = Redact::default(),
}

/// Secrets beyond those that the proxy always removes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Redact {
    /// Names of headers.
    pub(super) headers: Vec<String>,
    /// Regular expressions.
    pub(super) patterns: Vec<String>,
}
