//! Maps the model names that agents request to the names that upstream serves.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Model names that agents insist on (`claude-haiku-4-5`, `openai/gpt-5`), each with the served model or LoRA adapter.
///
/// A name that ends in `*` fits every name with that prefix. An exact name has precedence, and then the longest prefix.
/// If the served name ends in `*`, the `*` is replaced by the rest of the requested name: `openai/*` to `*` removes a
/// prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct ModelAliases(BTreeMap<String, String>);

impl ModelAliases {
    /// Returns the served name for the requested name, or `None` if no alias fits.
    pub fn served(&self, asked: &str) -> Option<Cow<'_, str>> {
        if let Some(served) = self.0.get(asked) {
            return Some(Cow::Borrowed(served));
        }
        let fitting = self.0.iter().filter_map(|(pattern, served)| {
            let rest = asked.strip_prefix(pattern.strip_suffix('*')?)?;
            Some((pattern.len(), rest, served))
        });
        let (_, rest, served) = fitting.max_by_key(|(length, ..)| *length)?;
        Some(match served.strip_suffix('*') {
            Some(start) => Cow::Owned(format!("{start}{rest}")),
            None => Cow::Borrowed(served),
        })
    }

    /// Returns the aliases without `*`, each with its served name as configured.
    fn exact(&self) -> impl Iterator<Item = (&str, &str)> {
        let pairs = self.0.iter().map(|(name, served)| (name.as_str(), served.as_str()));
        pairs.filter(|(name, _)| !name.ends_with('*'))
    }

    /// Whether there are no aliases.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(String, String)> for ModelAliases {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(aliases: T) -> Self {
        Self(aliases.into_iter().collect())
    }
}

/// The aliases of one trial. The trial's own aliases have precedence over those of the proxy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names<'a> {
    pub(crate) of_trial: &'a ModelAliases,
    pub(crate) of_proxy: &'a ModelAliases,
}

impl<'a> Names<'a> {
    /// Returns the served name if it differs from the requested name.
    pub(crate) fn served(&self, asked: &str) -> Option<Cow<'a, str>> {
        self.of_trial.served(asked).or_else(|| self.of_proxy.served(asked)).filter(|served| *served != asked)
    }

    /// Whether neither the trial nor the proxy has aliases.
    pub(crate) fn are_none(&self) -> bool {
        self.of_trial.is_empty() && self.of_proxy.is_empty()
    }

    /// Adds the exact aliases to a list of models (`GET /v1/models`). Each alias gets a copy of its served model's
    /// entry, with the alias as id. Returns `None` if there is nothing to add, or if the text is not such a list.
    pub(crate) fn listed(&self, models: &[u8]) -> Option<Vec<u8>> {
        // The trial's aliases come last, so they replace the proxy's aliases of the same name.
        let aliases: BTreeMap<_, _> = self.of_proxy.exact().chain(self.of_trial.exact()).collect();
        let mut list: Value = serde_json::from_slice(models).ok()?;
        let cards = list.get_mut("data")?.as_array_mut()?;
        // Only the server's own entries are copied: an alias of an alias is not resolved.
        let served = cards.len();
        for (alias, of) in aliases {
            let is_listed = cards.iter().any(|card| card["id"] == alias);
            let card = cards.iter().take(served).find(|card| card["id"] == of).cloned();
            if let (false, Some(Value::Object(mut card))) = (is_listed, card) {
                card.insert("id".to_owned(), alias.into());
                cards.push(card.into());
            }
        }
        if cards.len() == served { None } else { serde_json::to_vec(&list).ok() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn aliases(pairs: &[(&str, &str)]) -> ModelAliases {
        pairs.iter().map(|&(name, served)| (name.to_owned(), served.to_owned())).collect()
    }

    #[test]
    fn the_closest_name_wins() {
        let aliases = aliases(&[
            ("*", "any"),
            ("claude-*", "big"),
            ("claude-haiku-*", "small"),
            ("claude-haiku-4", "own"),
        ]);
        for (asked, served) in
            [("gpt-5", "any"), ("claude-opus", "big"), ("claude-haiku-3", "small"), ("claude-haiku-4", "own")]
        {
            assert_eq!(aliases.served(asked).as_deref(), Some(served), "{asked}");
        }
        assert_eq!(ModelAliases::default().served("m"), None);
    }

    #[test]
    fn aliases_are_listed_among_the_models() {
        let of_trial = aliases(&[("gpt-5", "m"), ("claude-*", "m"), ("gone", "not-served"), ("m", "m")]);
        let of_proxy = aliases(&[("gpt-5", "other"), ("o3", "m")]);
        let names = Names { of_trial: &of_trial, of_proxy: &of_proxy };
        let list = json!({"object": "list", "data": [{"id": "m", "max_model_len": 9}]}).to_string();
        let listed: Value = serde_json::from_slice(&names.listed(list.as_bytes()).unwrap()).unwrap();
        let card = |id: &str| json!({"id": id, "max_model_len": 9});
        assert_eq!(listed["data"], json!([card("m"), card("gpt-5"), card("o3")]));
        let none = aliases(&[]);
        assert_eq!(Names { of_trial: &none, of_proxy: &none }.listed(list.as_bytes()), None);
        for other in ["", "[]", "{\"data\": 1}", "{\"data\": [1]}"] {
            assert_eq!(names.listed(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn a_prefix_can_be_taken_away() {
        let aliases = aliases(&[("openai/*", "*"), ("old-*", "new-*")]);
        assert_eq!(aliases.served("openai/org/m").as_deref(), Some("org/m"));
        assert_eq!(aliases.served("old-1").as_deref(), Some("new-1"));
    }

    #[test]
    fn the_trial_wins_over_the_proxy_and_a_name_for_itself_is_none() {
        let (of_trial, of_proxy) = (aliases(&[("a", "lora"), ("base", "base")]), aliases(&[("*", "base")]));
        let names = Names { of_trial: &of_trial, of_proxy: &of_proxy };
        assert_eq!(names.served("a").as_deref(), Some("lora"));
        assert_eq!(names.served("b").as_deref(), Some("base"));
        assert_eq!(names.served("base"), None);
    }
}
