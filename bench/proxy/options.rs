//! The options of a measurement.

use std::collections::HashMap;

/// Options with a value each.
#[derive(Debug)]
pub(crate) struct Options<'a>(HashMap<&'a str, &'a str>);

impl<'a> Options<'a> {
    /// Parses pairs of a name and a value. Fails on a name that is not among `known`, and on a name without a value.
    pub(crate) fn parse(arguments: &[&'a str], known: &[&str]) -> Result<Self, String> {
        let (mut options, mut arguments) = (HashMap::new(), arguments.iter());
        while let Some(&name) = arguments.next() {
            if !known.contains(&name) {
                return Err(format!("unknown option: {name}"));
            }
            options.insert(name, *arguments.next().ok_or_else(|| format!("{name} needs a value"))?);
        }
        Ok(Self(options))
    }

    pub(crate) fn text(&self, name: &str) -> Option<&'a str> {
        self.0.get(name).copied()
    }

    /// Returns the value of an option, or `default` if it is absent. Fails if the value is not a positive number.
    pub(crate) fn number(&self, name: &str, default: usize) -> Result<usize, String> {
        let Some(value) = self.text(name) else { return Ok(default) };
        let number = value.parse().ok().filter(|&number| number > 0);
        number.ok_or_else(|| format!("{name} needs a number from 1 on, not {value}"))
    }
}
