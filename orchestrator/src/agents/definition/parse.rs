//! Parses a definition, and rejects a definition that cannot work before anything is installed for it.

use std::collections::BTreeSet;

use regex::Regex;

use super::mcp::OF_SERVERS;
use super::template::{OF_OPTIONS, PLACES, Template, names};
use super::{AgentOption, Definition, Install, Mcp, OptionType};
use crate::common::suggest::nearest;

/// The option that every installed agent has. A definition must not declare it.
pub(crate) const VERSION_OPTION: &str = "version";

/// The place for the instruction. Only a shell command has it, as a shell variable, because an environment variable of
/// that length would be refused.
const OF_COMMANDS: &str = "instruction";

/// Why a definition cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DefinitionError(String);

impl Definition {
    /// Parses the text of a definition.
    ///
    /// # Errors
    /// Fails if the text is not TOML, has an unknown key, or declares something that cannot work in any trial.
    pub fn parse(text: &str) -> Result<Self, DefinitionError> {
        let definition: Self = toml::from_str(text).map_err(|error| explain(&error))?;
        definition.check().map_err(DefinitionError)?;
        Ok(definition)
    }

    fn check(&self) -> Result<(), String> {
        check_name(&self.name)?;
        for (place, template, known) in self.templates() {
            check_places(&place, &template.names(), known)?;
        }
        for file in &self.files {
            for text in file.content.strings() {
                check_places(&format!("file {:?}", file.path.0), &names(text), &[])?;
            }
        }
        if let Some(Mcp::InFile(mcp)) = &self.mcp {
            for text in mcp.strings() {
                let unknown = names(text).into_iter().find(|name| !OF_SERVERS.contains(name));
                if let Some(unknown) = unknown {
                    return Err(unknown_place("[mcp]", unknown, OF_SERVERS));
                }
            }
        }
        self.options.iter().try_for_each(|(name, option)| check_option(name, option))?;
        for rule in &self.outcome {
            // This rejects an invalid pattern early. A trial compiles the pattern again.
            Regex::new(&rule.pattern)
                .map_err(|error| format!("outcome pattern {:?}: {error}", rule.pattern))?;
        }
        self.install.check()
    }

    /// Returns every template with its location and the additional places that are valid there.
    fn templates(&self) -> Vec<(String, &Template, &'static [&'static str])> {
        let mut all = vec![("run.command".to_owned(), &self.run.command, &[OF_COMMANDS][..])];
        all.extend(self.setup.check.iter().map(|check| ("setup.check".to_owned(), check, &[][..])));
        all.extend(self.env.iter().map(|(name, value)| (format!("env.{name}"), value, &[][..])));
        all.extend(self.files.iter().map(|file| (format!("file {:?}", file.path.0), &file.path, &[][..])));
        all.extend(self.skills.iter().map(|skills| ("skills".to_owned(), skills, &[][..])));
        if let Some(Mcp::InFile(mcp)) = &self.mcp {
            all.push(("mcp.path".to_owned(), &mcp.path, &[]));
            all.extend(mcp.arguments.iter().map(|argument| ("mcp.arguments".to_owned(), argument, &[][..])));
        }
        for (name, option) in &self.options {
            let arguments = option.arguments.iter();
            all.extend(arguments.map(|argument| (format!("options.{name}"), argument, &[OF_OPTIONS][..])));
        }
        all
    }
}

impl Install {
    fn check(&self) -> Result<(), String> {
        let (package, version) = match self {
            Self::Image => return Ok(()),
            Self::Script { script, .. } if script.trim().is_empty() => {
                return Err(
                    "install.script is empty: give the shell commands that install the agent".to_owned()
                );
            }
            Self::Script { version, .. } => ("script", version.as_str()),
            Self::Npm { package, version, .. } | Self::Pypi { package, version, .. } => {
                (package.as_str(), version.as_str())
            }
        };
        if matches!(self, Self::Pypi { python, .. } if python.is_empty()) {
            return Err("install.python names no version".to_owned());
        }
        check_package(package)?;
        check_version(version)
    }
}

/// Accepts only names that no package manager takes for an option, a path or a URL.
fn check_package(package: &str) -> Result<(), String> {
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.@/".contains(c);
    let named = package.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '@');
    if named && package.chars().all(fine) && !package.contains("..") {
        Ok(())
    } else {
        Err(format!("install.package = {package:?} is no package's name"))
    }
}

/// Accepts only exact versions that are safe in paths and for every package manager.
pub(crate) fn check_version(version: &str) -> Result<(), String> {
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
    if version.len() <= 64
        && version.starts_with(|c: char| c.is_ascii_alphanumeric())
        && version.chars().all(fine)
    {
        Ok(())
    } else {
        Err(format!("version {version:?} is not usable: letters, digits and '.', '-', '_', '+', no range"))
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if (1..=64).contains(&name.len()) && name.chars().all(fine) && !name.starts_with('-') {
        Ok(())
    } else {
        Err(format!("name = {name:?} is not usable: 1 to 64 lower-case letters, digits or '-'"))
    }
}

fn check_places(place: &str, found: &[&str], also: &[&str]) -> Result<(), String> {
    let everywhere = || PLACES.iter().map(|(name, _)| *name).filter(|name| *name != OF_COMMANDS);
    match found.iter().find(|name| !also.contains(name) && !everywhere().any(|known| known == **name)) {
        None => Ok(()),
        Some(unknown) => Err(unknown_place(place, unknown, everywhere().chain(also.iter().copied()))),
    }
}

fn unknown_place<'k>(place: &str, unknown: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    let known: Vec<_> = known.into_iter().collect();
    match nearest(unknown, known.iter().copied()) {
        Some(near) => format!("{place}: unknown ${{{unknown}}}; did you mean ${{{near}}}?"),
        None => format!("{place}: unknown ${{{unknown}}}; known: {}", known.join(", ")),
    }
}

fn check_option(name: &str, option: &AgentOption) -> Result<(), String> {
    if name == VERSION_OPTION {
        return Err(format!("options.{VERSION_OPTION}: every agent has that one already"));
    }
    if option.arguments.is_empty() && option.env.is_none() {
        return Err(format!("options.{name} does nothing: give it arguments or env"));
    }
    if !option.choices.is_empty() && option.kind != OptionType::String {
        return Err(format!("options.{name}: only a string has choices"));
    }
    match &option.default {
        None => Ok(()),
        Some(default) => {
            option.value_of(default).map(drop).map_err(|why| format!("options.{name}.default: {why}"))
        }
    }
}

/// Adds the most similar known key to the error for an unknown key. The deserializer's message lists the known keys.
fn explain(error: &toml::de::Error) -> DefinitionError {
    let message = error.message();
    let Some(listed) =
        message.strip_prefix("unknown field ").or_else(|| message.strip_prefix("unknown variant "))
    else {
        return DefinitionError(error.to_string().trim_end().to_owned());
    };
    // The deserializer quotes the unknown key first, and then the known keys.
    let mut quoted = listed.split('`').skip(1).step_by(2);
    let unknown = quoted.next().unwrap_or_default();
    let known: BTreeSet<_> = quoted.collect();
    let near = nearest(unknown, known.iter().copied()).map(|near| format!("; did you mean {near:?}?"));
    let text = error.to_string();
    DefinitionError(format!("{}{}", text.trim_end(), near.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "name = 'x'\ndescription = 'an agent'\ndialect = 'chat'\n[run]\ncommand = 'true'\n";

    fn refused(text: &str) -> String {
        Definition::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn little_is_needed() {
        let definition = Definition::parse(LEAST).unwrap();
        assert_eq!((definition.install, definition.mcp), (Install::Image, None));
    }

    #[test]
    fn an_unknown_key_is_told_with_its_line_and_the_nearest_known() {
        let error = refused(&LEAST.replace("description", "descripton"));
        assert!(error.contains("line 2") && error.contains("did you mean \"description\"?"), "{error}");
        let error = refused(&format!("{LEAST}[install]\nkind = 'npm'\npackge = 'p'\nversion = '1'"));
        assert!(error.contains("did you mean \"package\"?"), "{error}");
        let error = refused(&format!("{LEAST}[install]\nkind = 'nmp'\npackage = 'p'\nversion = '1'"));
        assert!(error.contains("did you mean \"npm\"?"), "{error}");
    }

    #[test]
    fn what_could_not_work_is_refused() {
        for (more, why) in [
            (
                "[env]\nURL = '${openai_base_ur}'",
                "env.URL: unknown ${openai_base_ur}; did you mean ${openai_base_url}?",
            ),
            (
                "[env]\nTASK = '${instruction}'",
                "env.TASK: unknown ${instruction}; did you mean ${instruction_file}?",
            ),
            ("[[files]]\npath = '${state}/x'", "needs one of text, json and toml"),
            ("[[files]]\npath = '/x'\ntext = '${modle}'", "did you mean ${model}?"),
            ("[[files]]\npath = '/x'\njson = { a = [{ b = { '${modle}' = 1 } }] }", "did you mean ${model}?"),
            ("[mcp]\nkey = 'k'", "[mcp] needs either"),
            ("[mcp]\nkey = 'k'\npath = '/p'\nsse = { url = '${model}' }", "[mcp]: unknown ${model}"),
            ("[options.version]\nhelp = ''\nenv = 'V'", "every agent has that one"),
            ("[options.turns]\nhelp = ''", "does nothing"),
            (
                "[options.turns]\nhelp = ''\nenv = 'T'\ntype = 'integer'\ndefault = 'many'",
                "options.turns.default",
            ),
            ("[[outcome]]\npattern = '('\ncause = 'model_api'", "outcome pattern"),
            ("[install]\nkind = 'script'\nscript = ' '\nversion = '1'", "install.script is empty"),
            ("[install]\nkind = 'npm'\npackage = '--global'\nversion = '1'", "no package's name"),
            ("[install]\nkind = 'pypi'\npackage = 'p'\nversion = '>=1'\npython = [12]", "no range"),
            ("[install]\nkind = 'pypi'\npackage = 'p'\nversion = '1'\npython = []", "names no version"),
        ] {
            let error = refused(&format!("{LEAST}{more}"));
            assert!(error.contains(why), "{more}: {error}");
        }
        assert!(refused(&LEAST.replace("'x'", "'../x'")).contains("not usable"));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_definition_or_an_error(text in "\\PC{0,200}") {
            let _ = Definition::parse(&text);
        }

        #[test]
        fn any_value_anywhere_is_a_definition_or_an_error(key in "[a-z_.\\[\\]]{1,20}", value in "\\PC{0,40}") {
            let _ = Definition::parse(&format!("{key} = '''{value}'''\n{LEAST}{key} = '''{value}'''"));
        }

        #[test]
        fn a_version_that_is_taken_is_one_path_component(version in "\\PC{0,20}") {
            if check_version(&version).is_ok() {
                proptest::prop_assert_eq!(std::path::Path::new("/a").join(&version).components().count(), 3);
            }
        }
    }

    #[test]
    fn fuzz_agent_definition() {
        rolltap_testing::fuzz!("agent_definition", |text| {
            let Ok(text) = std::str::from_utf8(text) else { return };
            drop(Definition::parse(text).map_err(|error| error.to_string()));
        });
    }
}
