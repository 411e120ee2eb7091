//! Checks the options that a user gave, and converts them to arguments and environment variables.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::template::{OF_OPTIONS, fill};
use super::{AgentOption, Definition, OptionType, Template, VERSION_OPTION, Values};
use crate::common::suggest::{did_you_mean, nearest};

/// The arguments and variables from the options.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Chosen {
    /// The arguments, each with the option's value. The other places are filled for each trial.
    arguments: Vec<(Template, String)>,
    /// Environment variables.
    pub(crate) env: BTreeMap<String, String>,
}

impl Chosen {
    /// Returns the arguments of one trial.
    pub(crate) fn arguments(&self, values: &Values) -> Vec<String> {
        let put = |(template, value): &(Template, String)| {
            fill(&template.0, |name| {
                if name == OF_OPTIONS { Some(value.clone()) } else { values.get(name).cloned() }
            })
        };
        self.arguments.iter().map(put).collect()
    }
}

impl AgentOption {
    /// Returns the value as text, or `None` for a boolean that is false.
    ///
    /// # Errors
    /// Fails if the type is wrong or the value is not one of the choices.
    pub(super) fn value_of(&self, value: &Value) -> Result<Option<String>, String> {
        let wrong = |wanted: &str| Err(format!("{value} is not {wanted}"));
        let text = match (self.kind, value) {
            (OptionType::Boolean, Value::Bool(flag)) => return Ok(flag.then(|| "true".to_owned())),
            (OptionType::Boolean, _) => return wrong("true or false"),
            (OptionType::Integer, Value::Number(number)) if number.is_i64() || number.is_u64() => {
                number.to_string()
            }
            (OptionType::Integer, _) => return wrong("a whole number"),
            (OptionType::Number, Value::Number(number)) => number.to_string(),
            (OptionType::Number, _) => return wrong("a number"),
            (OptionType::String, Value::String(text)) => text.clone(),
            // On a command line, text that looks like a number or a boolean is parsed as such.
            (OptionType::String, Value::Number(_) | Value::Bool(_)) => value.to_string(),
            (OptionType::String, _) => return wrong("text"),
        };
        if self.choices.is_empty() || self.choices.contains(&text) {
            Ok(Some(text))
        } else {
            wrong(&format!("one of {}", self.choices.join(", ")))
        }
    }
}

/// Checks that all given options exist. `aliases` are other names of some options.
///
/// # Errors
/// Returns a message about the first unknown option.
pub(in crate::agents) fn must_be_known(
    given: &Map<String, Value>,
    options: &[&str],
    aliases: &[&str],
) -> Result<(), String> {
    let known = || options.iter().chain(aliases).copied();
    let Some(unknown) = given.keys().find(|name| !known().any(|known| known == name.as_str())) else {
        return Ok(());
    };
    let hint = did_you_mean(nearest(unknown, known()));
    Err(format!("unknown option {unknown:?}{hint}; it has: {}", options.join(", ")))
}

impl Definition {
    /// Checks the given options, and adds the defaults.
    ///
    /// # Errors
    /// Returns a message about an unknown option or an invalid value.
    pub(crate) fn choose(&self, given: &Map<String, Value>) -> Result<Chosen, String> {
        let options: Vec<_> = self.options.keys().map(String::as_str).chain([VERSION_OPTION]).collect();
        must_be_known(given, &options, &[])?;
        let mut chosen = Chosen::default();
        for (name, option) in &self.options {
            let Some(value) = given.get(name).filter(|value| !value.is_null()).or(option.default.as_ref())
            else {
                continue;
            };
            let Some(text) = option.value_of(value).map_err(|why| format!("option {name:?}: {why}"))? else {
                continue;
            };
            chosen.arguments.extend(option.arguments.iter().map(|argument| (argument.clone(), text.clone())));
            chosen.env.extend(option.env.iter().map(|variable| (variable.clone(), text.clone())));
        }
        Ok(chosen)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn agent() -> Definition {
        Definition::parse(
            "name = 'x'\ndescription = ''\ndialect = 'chat'\n[run]\ncommand = 'true'\n[options]\n\
             max_turns = { help = '', type = 'integer', arguments = ['--turns', '${value}'] }\n\
             think = { help = '', type = 'boolean', arguments = ['--think'] }\n\
             effort = { help = '', choices = ['low', 'high'], env = 'EFFORT', default = 'low' }\n\
             note = { help = '', arguments = ['--note=${value} of ${model}'] }\n",
        )
        .unwrap()
    }

    fn chosen(given: Value) -> Result<(Vec<String>, BTreeMap<String, String>), String> {
        let Value::Object(given) = given else { panic!("no object") };
        let chosen = agent().choose(&given)?;
        let values = Values::from([("model", "m".to_owned())]);
        Ok((chosen.arguments(&values), chosen.env))
    }

    #[test]
    fn options_become_arguments_and_variables() {
        let (arguments, env) = chosen(json!({"max_turns": 3, "think": true, "note": "${model}"})).unwrap();
        assert_eq!(arguments, ["--turns", "3", "--note=${model} of m", "--think"]);
        assert_eq!(env, BTreeMap::from([("EFFORT".to_owned(), "low".to_owned())]));
        let (arguments, env) = chosen(json!({"think": false, "effort": "high", "max_turns": null})).unwrap();
        assert_eq!((arguments.len(), env["EFFORT"].as_str()), (0, "high"));
    }

    #[test]
    fn a_wrong_option_is_told_what_would_be_right() {
        for (given, why) in [
            (
                json!({"max_turn": 3}),
                "unknown option \"max_turn\" (did you mean \"max_turns\"?); it has: effort, max_turns, ",
            ),
            (json!({"max_turns": "three"}), "option \"max_turns\": \"three\" is not a whole number"),
            (json!({"max_turns": 1.5}), "option \"max_turns\": 1.5 is not a whole number"),
            (json!({"think": 1}), "option \"think\": 1 is not true or false"),
            (json!({"effort": "most"}), "option \"effort\": \"most\" is not one of low, high"),
            (json!({"note": []}), "option \"note\": [] is not text"),
        ] {
            let error = chosen(given).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
    }
}
