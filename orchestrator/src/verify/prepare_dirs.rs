//! Prepares directories of an environment between the agent's time and the tests.

use crate::common::shell::quoted;
use crate::environment::{Environment, EnvironmentError, Paths};
use crate::failure::{Phase, TrialFailure, environment_failure};

/// A directory to empty.
pub(crate) struct Emptied<'a> {
    /// The path as Harbor or the environment writes it.
    pub(crate) dir: &'a str,
    /// Whether anyone may write to the directory.
    pub(crate) is_open: bool,
}

/// Makes each directory exist and be empty. All are in one command, because each command costs about 50 ms.
pub(crate) async fn make_empty(
    environment: &Environment,
    dirs: &[Emptied<'_>],
) -> Result<(), EnvironmentError> {
    if dirs.is_empty() {
        return Ok(());
    }
    let commands = dirs.iter().map(|Emptied { dir, is_open }| {
        let dir = environment.instruction(&quoted(dir));
        // An agent may have replaced the directory by a link or a file.
        let replace = format!("if [ -L {dir} ] || [ ! -d {dir} ]; then rm -rf {dir} && mkdir -p {dir}; fi");
        let empty = format!("(cd {dir} && rm -rf -- * .[!.]* ..?*)");
        let open = if *is_open { format!(" && chmod 777 {dir}") } else { String::new() };
        format!("{replace} && {empty}{open}")
    });
    environment.arrange(commands.collect::<Vec<_>>().join(" && ")).await
}

/// Returns the directories that the tests fill.
pub(crate) fn of_tests(paths: &Paths) -> [Emptied<'_>; 2] {
    [Emptied { dir: &paths.verifier_logs, is_open: true }, Emptied { dir: &paths.tests, is_open: false }]
}

/// Empties the directories that the tests fill.
pub(crate) async fn empty_for_tests(environment: &Environment) -> Result<(), TrialFailure> {
    let emptied = make_empty(environment, &of_tests(environment.paths())).await;
    emptied.map_err(|error| environment_failure(Phase::Verifier, &error))
}
