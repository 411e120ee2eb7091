//! Collects the signs that an environment has, once between the agent's time and the tests, and removes what the agent
//! left where tests and rewards belong.

use std::time::Duration;

use jiff::Timestamp;

use super::{Reason, Rules, Suspicion};
use crate::common::shell::quoted;
use crate::environment::{Environment, EnvironmentError, EnvironmentKind, Exec};

/// The script that does it, in one command of the environment.
const SCRIPT: &str = include_str!("inspect.sh");
/// The limit for the script. It usually takes a tenth of a second.
const LIMIT: Duration = Duration::from_secs(60);
/// Prints the start of its own process in ticks since boot.
const OWN_START: &str = "line=; read -r line </proc/$$/stat; set -- ${line##*) }; echo ${20}";
/// A moment, in ticks of 10 ms since the boot of the environment's machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticks(u64);

/// Inspects an environment after the agent's time.
pub(crate) struct Inspector<'a> {
    /// The rules of the instruction.
    pub(crate) rules: &'a Rules,
    /// When the agent's time began.
    pub(crate) since: Timestamp,
    /// The same moment on the clock of processes. `None` if the script must derive it from `since`.
    pub(crate) ticks: Option<Ticks>,
    /// Whether the agent's processes are ended.
    pub(crate) kills: bool,
}

/// The result of an inspection.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Inspection {
    /// The signs.
    pub(crate) found: Vec<Suspicion>,
    /// The number of processes of the agent that ran after its time.
    pub(crate) processes: u64,
    /// The number of these that could not be ended.
    pub(crate) survivors: u64,
    /// Whether the script came to its end.
    pub(crate) is_complete: bool,
}

/// Returns the present moment on the clock of the environment's processes. `None` if it has no `/proc`.
pub(crate) async fn process_reference(environment: &Environment) -> Option<Ticks> {
    let exec = Exec { command: OWN_START.to_owned(), timeout: Some(LIMIT), ..Exec::default() };
    let output = environment.exec(exec).await.ok()?;
    std::str::from_utf8(&output.stdout).ok()?.trim().parse().ok().map(Ticks)
}

impl Inspector<'_> {
    /// Runs the script.
    ///
    /// # Errors
    /// The environment fails. A failure of the script is no error.
    pub(crate) async fn inspect(&self, environment: &Environment) -> Result<Inspection, EnvironmentError> {
        let exec = Exec {
            command: self.command(environment),
            // Only root sees every process and may remove every file. The id 0 is root in every image.
            user: (!environment.runs_as_root(None)).then(|| "0".to_owned()),
            timeout: Some(LIMIT),
            ..Exec::default()
        };
        let output = environment.exec(exec).await?;
        Ok(self.read(&String::from_utf8_lossy(&output.stdout)))
    }

    fn command(&self, environment: &Environment) -> String {
        let paths = environment.paths();
        // Files of this host change for other reasons than an agent.
        let scope = if environment.kind() == EnvironmentKind::Docker { "system" } else { "" };
        // The script converts the moment, because it may start late on a busy machine.
        let ticks = match self.ticks {
            Some(Ticks(ticks)) => ticks.to_string(),
            None => format!("since{}", self.since.as_millisecond()),
        };
        let since = self.since.as_second().to_string();
        let arguments: [&str; 8] = [
            &since,
            &paths.tests,
            &paths.logs,
            &paths.workdir,
            scope,
            if self.rules.tests_are_named() { "tests" } else { "" },
            // Without the exact moment, a service that started just before the agent could be taken for the agent's.
            if self.kills && self.ticks.is_some() { "kill" } else { "" },
            &ticks,
        ];
        format!("set -- {}\n{SCRIPT}", arguments.map(quoted).join(" "))
    }

    /// Reads the script's output. The agent's files may have any name, so any line is possible.
    fn read(&self, output: &str) -> Inspection {
        let mut inspection = Inspection::default();
        for line in output.lines() {
            let Some((name, rest)) = line.split_once('\t') else { continue };
            match (name, Reason::from_name(name)) {
                ("processes", _) => inspection.processes = rest.trim().parse().unwrap_or_default(),
                ("survivors", _) => inspection.survivors = rest.trim().parse().unwrap_or_default(),
                ("done", _) => inspection.is_complete = true,
                (_, Some(reason)) if !self.rules.excuse(reason) => {
                    inspection.found.push(Suspicion::new(reason, rest));
                }
                (_, _) => {}
            }
        }
        inspection
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::environment::Paths;

    fn read(instruction: &str, output: &str) -> Inspection {
        let rules = Rules::new(&Paths::in_container("/app"), instruction);
        let since = Timestamp::UNIX_EPOCH;
        Inspector { rules: &rules, since, ticks: None, kills: false }.read(output)
    }

    #[test]
    fn lines_of_the_script_are_signs_unless_the_instruction_names_their_subject() {
        let output = "processes\t3\nsurvivors\t1\nlibrary_preloaded\t/etc/ld.so.preload was made\nnoise\nx\ty\ndone\t\n";
        let found = vec![Suspicion::new(Reason::LibraryPreloaded, "/etc/ld.so.preload was made")];
        let whole = Inspection { found, processes: 3, survivors: 1, is_complete: true };
        assert_eq!(read("Fix the build.", output), whole);
        assert_eq!(read("Write a library for LD_PRELOAD.", output), Inspection { found: vec![], ..whole });
    }

    proptest! {
        #[test]
        fn any_output_is_read(output in "((processes|done|reward_daemon|[a-z_]{0,9})\t?\\PC{0,20}\n?){0,8}") {
            let inspection = read("", &output);
            prop_assert!(inspection.found.len() <= output.lines().count());
        }
    }
}
