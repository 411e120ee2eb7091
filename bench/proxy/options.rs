//! The options of a measurement.

use std::collections::HashMap;

/// Options with a number each.
#[derive(Debug)]
pub(crate) struct Options(HashMap<String, usize>);

impl Options {
    /// Parses `--name number` pairs. Fails on a name that is not among `known`, and on a value that is no positive
    /// number.
    pub(crate) fn parse(arguments: &[&str], known: &[&str]) -> Result<Self, String> {
        let (mut options, mut arguments) = (HashMap::new(), arguments.iter());
        while let Some(&name) = arguments.next() {
            if !known.contains(&name) {
                return Err(format!("unknown option: {name}"));
            }
            let value = arguments.next().and_then(|value| value.parse().ok()).filter(|&value| value > 0);
            options.insert(name.to_owned(), value.ok_or_else(|| format!("{name} needs a number from 1 on"))?);
        }
        Ok(Self(options))
    }

    /// Returns the value of an option, or `default` if it is absent.
    pub(crate) fn number(&self, name: &str, default: usize) -> usize {
        self.0.get(name).copied().unwrap_or(default)
    }
}
