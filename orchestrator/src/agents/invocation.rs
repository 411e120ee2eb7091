//! The shell scripts that set up and run an installed agent. All values of a trial are quoted shell variables, so that
//! a model's name or an instruction cannot inject shell code.

use std::fmt::Write;

use super::definition::{Definition, FileText, Libc, Values};
use super::layer::MARK;
use crate::common::shell::quoted;

/// The exit code of a setup script that does not find the agent's programs.
pub(super) const LAYER_MISSING: i64 = 98;
/// The exit code of a setup script that has written why the agent cannot work here.
pub(super) const NOT_READY: i64 = 97;
/// The prefix of the environment variables with the contents of files.
const FILE_VARIABLE: &str = "ROLLTAP_FILE_";

/// Ensures a writable home directory. A user without one gets a directory of the trial.
const HOME: &str = r#"if [ ! -d "${HOME:-}" ] || [ ! -w "$HOME" ]; then HOME=$state/home; mkdir -p "$HOME"; export HOME; fi
"#;

/// Finds GNU's dynamic loader in the directories that distributions use.
const GLIBC: &str = r#"loader=; for file in /lib64/ld-linux-* /lib/ld-linux-* /lib/*/ld-linux-*; do [ -e "$file" ] && loader=$file; done
[ "$loader" ] || give_up "the image has no GNU C library (is it Alpine, with musl?), which this agent's programs need"
"#;

/// The setup before an agent's time begins.
pub(super) struct Setup<'a> {
    pub(super) definition: &'a Definition,
    pub(super) values: &'a Values,
    pub(super) files: &'a [FileText],
    /// The directory of the task's skills inside the environment.
    pub(super) skills_dir: Option<&'a str>,
    /// Whether the agent has a layer.
    pub(super) installed: bool,
}

impl Setup<'_> {
    /// Returns the script. It exits with 0 when the agent is ready, and its last output is the version.
    pub(super) fn script(&self) -> String {
        let mut script = places(self.values);
        script.push_str("give_up() { printf '%s\\n' \"$*\" >&2; exit 97; }\n");
        if self.installed {
            let _ = writeln!(script, "[ -e \"$layer/{MARK}\" ] || exit {LAYER_MISSING}");
        }
        if self.definition.install.libc() == Libc::Glibc {
            script.push_str(GLIBC);
        }
        script.push_str("mkdir -p \"$state\" || give_up \"$state cannot be written\"\n");
        script.push_str(HOME);
        script.push_str("lacks=\n");
        for program in &self.definition.setup.requires {
            let program = quoted(program);
            let _ = writeln!(script, "command -v {program} >/dev/null 2>&1 || lacks=\"$lacks \"{program}");
        }
        script.push_str("[ -z \"$lacks\" ] || give_up \"the image lacks what this agent needs:$lacks\"\n");
        for (number, file) in self.files.iter().enumerate() {
            let path = quoted(&file.path);
            let variable = file_variable(number);
            let _ = writeln!(
                script,
                "mkdir -p \"$(dirname {path})\" && printf %s \"${variable}\" > {path} || give_up {path} cannot be written\nunset {variable}"
            );
        }
        if let (Some(from), Some(to)) = (self.skills_dir, &self.definition.skills) {
            let (from, to) = (quoted(&format!("{from}/.")), quoted(&to.fill(self.values)));
            let _ = writeln!(
                script,
                "mkdir -p {to} && cp -r {from} {to} || give_up the skills could not be copied to {to}"
            );
        }
        if let Some(check) = &self.definition.setup.check {
            let _ =
                writeln!(script, "(\n{}\n) || give_up \"the agent does not start (exit code $?)\"", check.0);
        }
        script
    }

    /// Returns the contents of the files by environment variable.
    pub(super) fn variables(&self) -> impl Iterator<Item = (String, String)> {
        self.files.iter().enumerate().map(|(number, file)| (file_variable(number), file.text.clone()))
    }
}

/// Returns the script that runs the agent. `set --` passes the arguments from the options.
pub(super) fn work(definition: &Definition, values: &Values, arguments: &[String]) -> String {
    let mut script = places(values);
    script.push_str(HOME);
    // A command substitution drops trailing newlines, so a dot is appended and removed again.
    script
        .push_str("instruction=$(cat \"$instruction_file\"; printf .); instruction=${instruction%.}\nset --");
    for argument in arguments {
        let _ = write!(script, " {}", quoted(argument));
    }
    let _ = write!(script, "\n{}\n", definition.run.command.0.trim_end());
    script
}

fn places(values: &Values) -> String {
    values.iter().map(|(name, value)| format!("{name}={}\n", quoted(value))).collect()
}

fn file_variable(number: usize) -> String {
    format!("{FILE_VARIABLE}{number}")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn agent(command: &str) -> Definition {
        let text = format!("name='x'\ndescription=''\ndialect='chat'\n[run]\ncommand='''{command}'''\n");
        Definition::parse(&text).unwrap()
    }

    fn said(script: &str) -> String {
        let output = Command::new("sh").args(["-c", script]).output().unwrap();
        assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn an_agent_is_told_everything_to_the_letter() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("instruction.md");
        for instruction in ["plain", "two\nlines\n\n", "'; rm -rf / #$(false)`false`\"\\"] {
            std::fs::write(&file, instruction).unwrap();
            let values = Values::from([
                ("instruction_file", file.display().to_string()),
                ("state", dir.path().display().to_string()),
                ("model", "it's; $HOME".to_owned()),
            ]);
            let arguments = ["--a b".to_owned(), "'".to_owned()];
            let script = work(&agent(r#"printf '%s|' "$model" "$instruction" "$@""#), &values, &arguments);
            assert_eq!(said(&script), format!("it's; $HOME|{instruction}|--a b|'|"));
        }
    }

    #[test]
    fn set_up_writes_files_and_says_what_is_lacking() {
        let dir = tempfile::tempdir().unwrap();
        let values = Values::from([("state", dir.path().join("state").display().to_string())]);
        let files =
            [FileText { path: dir.path().join("a'b/c").display().to_string(), text: "x\n".to_owned() }];
        let mut definition = agent("true");
        let run = |definition: &Definition| {
            let setup =
                Setup { definition, values: &values, files: &files, skills_dir: None, installed: false };
            Command::new("sh").args(["-c", &setup.script()]).envs(setup.variables()).output().unwrap()
        };
        assert!(run(&definition).status.success());
        assert_eq!(std::fs::read_to_string(&files[0].path).unwrap(), "x\n");
        definition.setup.requires = vec!["sh".to_owned(), "no-such-program".to_owned()];
        let output = run(&definition);
        assert_eq!(output.status.code(), Some(97));
        assert_eq!(
            String::from_utf8_lossy(&output.stderr),
            "the image lacks what this agent needs: no-such-program\n"
        );
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(rolltap_testing::sample(32, 320)))]
        #[test]
        fn a_quoted_text_is_one_word(text in "[^\\x00]{0,40}") {
            proptest::prop_assert_eq!(said(&format!("printf %s {}", quoted(&text))), text);
        }
    }
}
