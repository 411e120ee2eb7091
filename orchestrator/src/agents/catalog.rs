//! The agents that are known by name.

/// The text of each agent's definition, sorted by name.
pub const CATALOG: [(&str, &str); 6] = [
    ("claude-code", include_str!("catalog/claude-code.toml")),
    ("codex", include_str!("catalog/codex.toml")),
    ("gemini-cli", include_str!("catalog/gemini-cli.toml")),
    ("mini-swe-agent", include_str!("catalog/mini-swe-agent.toml")),
    ("opencode", include_str!("catalog/opencode.toml")),
    ("qwen-code", include_str!("catalog/qwen-code.toml")),
];

/// Other names of the same agents: Harbor's, if they differ.
const ALIASES: [(&str, &str); 1] = [("qwen-coder", "qwen-code")];

/// Returns the text of the definition with this name.
pub fn find(name: &str) -> Option<&'static str> {
    let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| *name);
    CATALOG.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::definition::Definition;

    #[test]
    fn every_definition_is_sound_and_of_its_name() {
        for (name, text) in CATALOG {
            let definition = Definition::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(definition.name, name);
            definition.choose(&serde_json::Map::new()).unwrap();
        }
        for (_, name) in ALIASES {
            assert!(find(name).is_some());
        }
    }
}
