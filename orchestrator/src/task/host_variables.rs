//! The variables of this host that a task refers to. They are resolved when a task is about to run, as in Harbor, so a
//! task can be loaded and checked on a host that lacks them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use super::config::TaskConfig;
use super::env_template::{self, Table};
use super::{CONFIG, Task};

/// The tables of a task that a run uses. The references of other tables are left as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedTables {
    /// `[solution.env]`, which only the oracle reads.
    pub solution: bool,
    /// `[verifier.env]` and the environment of separate tests.
    pub verifier: bool,
    /// The headers of MCP servers, which the oracle and nop do not read.
    pub mcp_servers: bool,
}

impl UsedTables {
    /// Every table.
    pub const ALL: Self = Self { solution: true, verifier: true, mcp_servers: true };
}

/// A variable of this host that is not set, and has no default.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MissingVariable {
    /// The variable.
    pub variable: String,
    /// The `task.toml` that refers to it.
    pub path: PathBuf,
    /// The first key that refers to it, with its section.
    pub key: String,
}

/// The variables that tasks need and that this host lacks. There is at least one.
#[derive(Debug, thiserror::Error)]
pub struct MissingVariables(Vec<MissingVariable>);

/// The most places that an error lists for one variable.
const PLACES: usize = 3;

impl MissingVariables {
    /// Returns an error if any variable is missing.
    ///
    /// # Errors
    /// Returns all missing variables.
    pub(crate) fn check(missing: Vec<MissingVariable>) -> Result<(), Self> {
        if missing.is_empty() { Ok(()) } else { Err(Self(missing)) }
    }
}

impl fmt::Display for MissingVariables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut places: BTreeMap<&str, Vec<&MissingVariable>> = BTreeMap::new();
        for missing in &self.0 {
            places.entry(&missing.variable).or_default().push(missing);
        }
        let count = places.len();
        let (variables, are) = if count == 1 { ("variable", "is") } else { ("variables", "are") };
        writeln!(f, "{count} environment {variables} of this host {are} not set:")?;
        for (variable, places) in places {
            let listed = places.iter().take(PLACES);
            let listed: Vec<_> =
                listed.map(|place| format!("{}: {}", place.path.display(), place.key)).collect();
            let more = places.len().saturating_sub(PLACES);
            let more = if more == 0 { String::new() } else { format!(" and {more} more tasks") };
            writeln!(f, "  {variable} ({}{more})", listed.join(", "))?;
        }
        write!(f, "set them, or write ${{NAME:-default}} in task.toml")
    }
}

impl Task {
    /// Replaces the references to variables of this host in the tables that a run uses.
    ///
    /// # Errors
    /// Returns the missing variables, each once.
    pub(crate) fn resolve(&mut self, used: UsedTables) -> Result<(), Vec<MissingVariable>> {
        self.resolve_with(used, &|name| std::env::var(name).ok())
    }

    fn resolve_with(
        &mut self,
        used: UsedTables,
        host: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(), Vec<MissingVariable>> {
        let path = self.dir.join(CONFIG);
        let mut missing: BTreeMap<String, MissingVariable> = BTreeMap::new();
        self.each_table(used, "", &mut |table, section| {
            for (variable, key) in env_template::resolve_all(table, host) {
                let key = format!("{section}.{key}");
                let found = MissingVariable { variable: variable.clone(), path: path.clone(), key };
                missing.entry(variable).or_insert(found);
            }
        });
        if missing.is_empty() { Ok(()) } else { Err(missing.into_values().collect()) }
    }

    /// Calls `act` for each used table of the task, of its steps and of its separate tests, with the name of its
    /// section. The tables of a step repeat those of the task.
    fn each_table(&mut self, used: UsedTables, prefix: &str, act: &mut dyn FnMut(Table<'_>, &str)) {
        let TaskConfig { environment, solution, verifier, .. } = &mut self.config;
        act(Table::Env(&mut environment.env), "environment.env");
        if used.solution {
            act(Table::Env(&mut solution.env), "solution.env");
        }
        if used.mcp_servers {
            for server in &mut environment.mcp_servers {
                let section = format!("environment.mcp_servers.{}.headers", server.name);
                if let Some(headers) = server.headers_mut() {
                    act(Table::Headers(headers), &section);
                }
            }
        }
        if used.verifier {
            act(Table::Env(&mut verifier.env), &format!("{prefix}verifier.env"));
            if let Some(own) = &mut verifier.environment {
                act(Table::Env(&mut own.env), &format!("{prefix}verifier.environment.env"));
            }
            if let Some(separate) = &mut self.separate_verifier {
                let environment = &mut separate.environment.config.environment;
                act(Table::Env(&mut environment.env), &format!("{prefix}verifier.environment.env"));
            }
        }
        for step in &mut self.steps {
            let prefix = format!("steps.{}.", step.name);
            step.task.each_table(used, &prefix, act);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(variable: &str, task: &str) -> MissingVariable {
        MissingVariable {
            variable: variable.to_owned(),
            path: PathBuf::from(task).join(CONFIG),
            key: format!("verifier.env.{variable}"),
        }
    }

    #[test]
    fn all_missing_variables_are_one_error() {
        let one = MissingVariables(vec![missing("KEY", "a")]).to_string();
        assert_eq!(
            one,
            "1 environment variable of this host is not set:\n  KEY (a/task.toml: verifier.env.KEY)\n\
             set them, or write ${NAME:-default} in task.toml"
        );
        let tasks = ["a", "b", "c", "d", "e"].map(|task| missing("KEY", task));
        let all = MissingVariables([&tasks[..], &[missing("OTHER", "a")]].concat()).to_string();
        assert!(all.starts_with("2 environment variables of this host are not set:\n"), "{all}");
        assert!(
            all.contains("c/task.toml: verifier.env.KEY and 2 more tasks)\n  OTHER (a/task.toml"),
            "{all}"
        );
    }
}
