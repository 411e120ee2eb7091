//! Names of models: as agents say them, and as upstream serves them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Names that agents insist on (`claude-haiku-4-5`, `openai/gpt-5`), each with the served model or LoRA adapter that is
/// meant. A name that ends in `*` stands for all that begin so; the longest that fits wins, an exact one before all. A
/// served name that ends in `*` gets what stood for the `*`: `openai/*` to `*` takes a prefix away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ModelAliases(BTreeMap<String, String>);

impl ModelAliases {
    /// The served name for what the agent says; none where nothing is said about it.
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

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(String, String)> for ModelAliases {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(aliases: T) -> Self {
        Self(aliases.into_iter().collect())
    }
}

/// The aliases that hold for one trial: its own before those of the proxy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names<'a> {
    pub(crate) of_trial: &'a ModelAliases,
    pub(crate) of_proxy: &'a ModelAliases,
}

impl<'a> Names<'a> {
    /// The served name, where it is another than the one that the agent says.
    pub(crate) fn served(&self, asked: &str) -> Option<Cow<'a, str>> {
        self.of_trial.served(asked).or_else(|| self.of_proxy.served(asked)).filter(|served| *served != asked)
    }
}

#[cfg(test)]
mod tests {
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
