//! What a call is for, as far as its request tells: rules on what agents say, those that users add and those that are
//! known. What no rule tells, the trial's structure may ([`rolltap_rollout::roles`]).

mod built_in;
mod texts;

use rolltap_rollout::call::{CallRole, Dialect};
use serde::Deserialize;

use self::texts::{Needle, Texts};
use crate::recorder::CallFacts;

/// One rule: calls that fit all of its conditions have the role.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoleRule {
    /// What such calls are for. `main` keeps later rules from saying otherwise.
    pub role: CallRole,
    /// The agent speaks this dialect.
    pub dialect: Option<Dialect>,
    /// The agent names this model; a name that ends in `*` stands for all that begin so.
    pub model: Option<String>,
    /// At most so many tokens are asked for. A call that names no limit does not fit.
    pub max_tokens_at_most: Option<u64>,
    /// Whether the call offers tools.
    pub has_tools: Option<bool>,
    /// The instructions (system or developer messages) contain this text.
    pub system_contains: Option<String>,
    /// The first user message contains this text.
    pub first_user_contains: Option<String>,
    /// The last user message contains this text.
    pub last_user_contains: Option<String>,
}

/// Why a rule cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRule {
    /// It would fit every call.
    #[error("rule {0} of roles has no condition: give one, such as system_contains")]
    NoCondition(usize),
    /// Every text contains it.
    #[error("rule {0} of roles looks for an empty text")]
    EmptyText(usize),
}

/// Rules in the order in which they are asked; the first that fits speaks.
#[derive(Clone, Debug)]
pub struct RoleRules(Vec<Rule>);

/// What a request says, as it goes upstream: in the form of a chat request, whatever dialect it came in.
#[derive(Clone, Copy, Debug)]
pub struct RoleRequest<'a> {
    /// The dialect that the agent speaks.
    pub dialect: Dialect,
    /// The model as the agent names it.
    pub model: &'a str,
    /// How many tokens it wants at most, if it says.
    pub max_tokens: Option<u64>,
    /// The request, as JSON text.
    pub request: &'a str,
}

impl<'a> RoleRequest<'a> {
    /// By what was read of the request, and the chat request that goes upstream. Where that is none (completions), no
    /// rule finds a text in it.
    pub(crate) fn of(facts: &'a CallFacts, request: &'a [u8]) -> Self {
        let params = &facts.sampling.params;
        // vLLM asks in this order.
        let limits = ["max_completion_tokens", "max_tokens"].into_iter().filter_map(|key| params.get(key));
        Self {
            dialect: facts.dialect,
            model: &facts.model,
            max_tokens: limits.filter_map(serde_json::Value::as_u64).next(),
            request: std::str::from_utf8(request).unwrap_or_default(),
        }
    }
}

/// A rule that is ready to be asked.
#[derive(Clone, Debug)]
struct Rule {
    rule: RoleRule,
    system: Option<Needle>,
    first_user: Option<Needle>,
    last_user: Option<Needle>,
}

impl Default for RoleRules {
    /// Those that are known.
    fn default() -> Self {
        Self(built_in::rules().map(Rule::new).collect())
    }
}

impl RoleRules {
    /// A user's rules, before those that are known.
    ///
    /// # Errors
    /// A rule that fits every call, or whose text does.
    pub fn with(rules: Vec<RoleRule>) -> Result<Self, InvalidRule> {
        for (place, rule) in (1..).zip(&rules) {
            if rule.texts().into_iter().flatten().any(String::is_empty) {
                return Err(InvalidRule::EmptyText(place));
            }
            if !rule.has_condition() {
                return Err(InvalidRule::NoCondition(place));
            }
        }
        Ok(Self(rules.into_iter().chain(built_in::rules()).map(Rule::new).collect()))
    }

    /// What the call is for. Its text is looked at only where a rule depends on it, and fits in all else.
    pub fn role_of(&self, asked: RoleRequest<'_>) -> CallRole {
        let mut texts = None;
        let mut fits = |rule: &&Rule| {
            let mut read = || *texts.get_or_insert_with(|| Texts::of(asked.request));
            rule.fits_head(&asked)
                && (!rule.needs_text() || read().is_some_and(|texts| rule.fits_text(&texts)))
        };
        self.0.iter().find(&mut fits).map_or(CallRole::Main, |rule| rule.rule.role)
    }
}

impl RoleRule {
    /// A rule without conditions, to be filled in.
    fn of(role: CallRole) -> Self {
        Self {
            role,
            dialect: None,
            model: None,
            max_tokens_at_most: None,
            has_tools: None,
            system_contains: None,
            first_user_contains: None,
            last_user_contains: None,
        }
    }

    fn texts(&self) -> [Option<&String>; 4] {
        let Self { model, system_contains, first_user_contains, last_user_contains, .. } = self;
        [model.as_ref(), system_contains.as_ref(), first_user_contains.as_ref(), last_user_contains.as_ref()]
    }

    fn has_condition(&self) -> bool {
        *self != Self::of(self.role)
    }
}

impl Rule {
    fn new(rule: RoleRule) -> Self {
        let needle = |text: &Option<String>| text.as_deref().map(Needle::new);
        Self {
            system: needle(&rule.system_contains),
            first_user: needle(&rule.first_user_contains),
            last_user: needle(&rule.last_user_contains),
            rule,
        }
    }

    /// Whether all fits that can be told without reading the request.
    fn fits_head(&self, asked: &RoleRequest<'_>) -> bool {
        let RoleRule { dialect, model, max_tokens_at_most, .. } = &self.rule;
        dialect.is_none_or(|dialect| dialect == asked.dialect)
            && model.as_deref().is_none_or(|model| is_named(asked.model, model))
            && max_tokens_at_most.is_none_or(|most| asked.max_tokens.is_some_and(|asked| asked <= most))
    }

    fn needs_text(&self) -> bool {
        self.rule.has_tools.is_some()
            || [&self.system, &self.first_user, &self.last_user].into_iter().any(Option::is_some)
    }

    fn fits_text(&self, texts: &Texts<'_>) -> bool {
        let holds = |needle: &Option<Needle>, text: Option<&str>| {
            needle.as_ref().is_none_or(|needle| text.is_some_and(|text| needle.is_in(text)))
        };
        self.rule.has_tools.is_none_or(|has_tools| has_tools == texts.has_tools)
            && holds(&self.system, texts.system)
            && holds(&self.first_user, texts.first_user)
            && holds(&self.last_user, texts.last_user)
    }
}

fn is_named(name: &str, pattern: &str) -> bool {
    pattern.strip_suffix('*').map_or(name == pattern, |beginning| name.starts_with(beginning))
}

#[cfg(test)]
mod tests;
