//! Rules that find the role of a call from its request. The user's rules come before the built-in rules for known
//! agents.
//!
//! If no rule fits, the structure of the trial can still determine the role ([`rolltap_rollout::roles`]).

mod built_in;
mod texts;

use rolltap_rollout::call::{CallRole, Dialect};
use serde::Deserialize;

use self::texts::{Needle, Texts};
use crate::recorder::CallFacts;
use crate::wire::chat_outline::ChatOutline;

/// One rule. A call that fulfils all of its conditions has the rule's role.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoleRule {
    /// The role of such calls. A rule with role `main` prevents later rules from assigning another role.
    pub role: CallRole,
    /// The call is in this dialect.
    pub dialect: Option<Dialect>,
    /// The agent requests this model. A name that ends in `*` fits every name with that prefix.
    pub model: Option<String>,
    /// The request asks for at most this number of tokens. A call without a limit does not fit.
    pub max_tokens_at_most: Option<u64>,
    /// Whether the call offers tools.
    pub has_tools: Option<bool>,
    /// The instructions (the first system or developer message) contain this text.
    pub system_contains: Option<String>,
    /// The first user message contains this text.
    pub first_user_contains: Option<String>,
    /// The last user message contains this text.
    pub last_user_contains: Option<String>,
}

/// Why a rule is invalid. The number is the rule's place in the user's list, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRule {
    /// The rule has no condition, so it would fit every call.
    #[error("rule {0} of roles has no condition: give one, such as system_contains")]
    NoCondition(usize),
    /// A text of the rule is empty, so every text would contain it.
    #[error("rule {0} of roles looks for an empty text")]
    EmptyText(usize),
}

/// Rules in their order of precedence. The first rule that fits determines the role.
#[derive(Clone, Debug)]
pub struct RoleRules(Vec<Rule>);

/// The parts of a request that rules examine. They are those of the translated chat request, in every dialect of an
/// agent.
#[derive(Clone, Copy)]
pub(crate) struct RoleRequest<'a> {
    /// The dialect of the agent.
    pub(crate) dialect: Dialect,
    /// The model name that the agent requests.
    pub(crate) model: &'a str,
    /// The maximum number of tokens of the answer, or `None` if the request has no limit.
    pub(crate) max_tokens: Option<u64>,
    /// The request that goes upstream. `None` if it is not a JSON object.
    pub(crate) request: Option<&'a ChatOutline<'a>>,
}

impl<'a> RoleRequest<'a> {
    /// Combines the facts of the agent's request with the request that goes upstream. For completions that request has
    /// no messages, so rules find no texts in it.
    pub(crate) fn of(facts: &'a CallFacts, request: Option<&'a ChatOutline<'a>>) -> Self {
        let params = &facts.sampling.params;
        // vLLM reads the limits in this order.
        let limits = ["max_completion_tokens", "max_tokens"].into_iter().filter_map(|key| params.get(key));
        Self {
            dialect: facts.dialect,
            model: &facts.model,
            max_tokens: limits.filter_map(serde_json::Value::as_u64).next(),
            request,
        }
    }
}

/// A rule with its texts prepared for the search.
#[derive(Clone, Debug)]
struct Rule {
    rule: RoleRule,
    system: Option<Needle>,
    first_user: Option<Needle>,
    last_user: Option<Needle>,
}

impl Default for RoleRules {
    /// Returns the built-in rules alone.
    fn default() -> Self {
        Self(built_in::rules().map(Rule::new).collect())
    }
}

impl RoleRules {
    /// Returns the user's rules, followed by the built-in rules.
    ///
    /// # Errors
    /// Returns an error for a rule without conditions, or with an empty text. Both would fit every call.
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

    /// Returns the role of a call: the role of the first rule that fits, or `main`. The texts are located at most once,
    /// and only if the other conditions of a rule that needs them fit.
    pub(crate) fn role_of(&self, asked: RoleRequest<'_>) -> CallRole {
        let mut texts = None;
        let mut fits = |rule: &&Rule| {
            // The cheap conditions come first, so that texts are located only if one can decide.
            let mut read = || *texts.get_or_insert_with(|| asked.request.map(Texts::of));
            rule.fits_head(&asked)
                && (!rule.needs_text() || read().is_some_and(|texts| rule.fits_text(&texts)))
        };
        self.0.iter().find(&mut fits).map_or(CallRole::Main, |rule| rule.rule.role)
    }
}

impl RoleRule {
    /// Returns a rule without conditions, to which the caller adds some.
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
        // The comparison covers every field, so a condition that is added later needs no change here.
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

    /// Whether all conditions fit that do not require the text of the request.
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
