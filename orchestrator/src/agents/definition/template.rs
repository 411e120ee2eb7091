//! Text with `${places}` for values that differ between trials.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;
use serde::Deserialize;

/// The names of the places, each with its meaning.
pub const PLACES: [(&str, &str); 14] = [
    ("openai_base_url", "the trial's address for chat completions and responses; ends in /v1"),
    ("anthropic_base_url", "the trial's address for messages; without /v1"),
    ("gemini_base_url", "the trial's address for generateContent; without a version"),
    ("key", "the trial's API key"),
    ("model", "the model's name"),
    ("instruction", "the task, in run.command alone"),
    ("instruction_file", "the file that the task is in"),
    ("layer", "where the agent is installed, read-only"),
    ("state", "a directory of this trial for the agent's own files, stored with its logs"),
    ("logs", "Harbor's /logs/agent"),
    ("workdir", "where the agent works"),
    ("version", "the agent's version"),
    ("arch", "the machine, as Node.js names it: x64, arm64"),
    ("machine", "the machine, as uname names it: x86_64, aarch64"),
];

/// An additional place that is valid only in the arguments of an option.
pub(super) const OF_OPTIONS: &str = "value";

/// The values of the places.
pub(crate) type Values = BTreeMap<&'static str, String>;

static PLACE: LazyLock<Result<Regex, regex::Error>> = LazyLock::new(|| Regex::new(r"\$\{([a-z_]+)\}"));

/// Text with places. In a shell command the places are shell variables, so nothing is replaced there.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Template(pub(crate) String);

impl Template {
    /// Returns the names of the template's places in order.
    pub(super) fn names(&self) -> Vec<&str> {
        names(&self.0)
    }

    /// Returns the text with the values in their places. A place without a value stays, but parsing has rejected such
    /// places.
    pub(crate) fn fill(&self, values: &Values) -> String {
        fill(&self.0, |name| values.get(name).cloned())
    }
}

pub(super) fn names(text: &str) -> Vec<&str> {
    let Ok(place) = &*PLACE else { return Vec::new() };
    place.captures_iter(text).filter_map(|found| found.get(1)).map(|name| name.as_str()).collect()
}

/// Replaces the places by their values. The values themselves are not searched for places.
pub(super) fn fill(text: &str, value: impl Fn(&str) -> Option<String>) -> String {
    let Ok(place) = &*PLACE else { return text.to_owned() };
    let put = |found: &regex::Captures<'_>| {
        let whole = found.get(0).map_or("", |whole| whole.as_str());
        found.get(1).and_then(|name| value(name.as_str())).unwrap_or_else(|| whole.to_owned())
    };
    place.replace_all(text, put).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_in_their_places_once() {
        let values = Values::from([("model", "${key}".to_owned()), ("key", "secret".to_owned())]);
        let template = Template("${model} and ${key} and ${nothing} and $HOME ${HOME}".to_owned());
        assert_eq!(template.names(), ["model", "key", "nothing"]);
        assert_eq!(template.fill(&values), "${key} and secret and ${nothing} and $HOME ${HOME}");
    }

    proptest::proptest! {
        #[test]
        fn text_without_places_stays(text in "[^$]{0,60}") {
            proptest::prop_assert_eq!(Template(text.clone()).fill(&Values::new()), text);
        }

        #[test]
        fn any_text_is_filled(text in "\\PC{0,60}", value in "\\PC{0,20}") {
            let filled = Template(format!("{text}${{model}}")).fill(&Values::from([("model", value.clone())]));
            proptest::prop_assert!(filled.ends_with(&value));
        }
    }
}
