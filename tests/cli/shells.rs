//! `rolltap completions` and `rolltap man`.

use std::process::Command;

use super::program::run;

#[test]
fn each_shell_gets_a_script_with_all_commands() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let ended = run(dir.path(), &["completions", shell]);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{shell}");
        for word in ["completions", "doctor", "agent-command"] {
            assert!(ended.stdout.contains(word), "{shell}: {word}");
        }
    }
    let ended = run(dir.path(), &["completions", "csh"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("possible values: bash"), "{}", ended.stderr);
}

#[test]
fn bash_completes_a_command_and_an_option() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("rolltap.bash"), run(dir.path(), &["completions", "bash"]).stdout)
        .unwrap();
    let complete = |words: &str, last: usize| {
        let script = format!(
            "source ./rolltap.bash; COMP_WORDS=({words}); COMP_CWORD={last}; \
             _rolltap rolltap \"${{COMP_WORDS[{last}]}}\" \"${{COMP_WORDS[{last}-1]}}\"; echo \"${{COMPREPLY[*]}}\""
        );
        let mut bash = Command::new("bash");
        let output = bash.args(["--norc", "-c", &script]).current_dir(dir.path()).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(complete("rolltap compl", 1), "completions");
    assert_eq!(complete("rolltap run --max-emp", 2), "--max-empty-trials");
}

#[test]
fn each_command_has_a_manual_page() {
    let dir = tempfile::tempdir().unwrap();
    let ended = run(dir.path(), &["man"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended.stdout.contains(".TH rolltap 1") && ended.stdout.contains("rolltap\\-run(1)"),
        "{}",
        ended.stdout
    );
    let page = run(dir.path(), &["man", "run"]).stdout;
    assert!(page.contains(".TH rolltap-run 1") && page.contains("\\-\\-concurrency"), "{page}");
    let ended = run(dir.path(), &["man", "--dir", "."]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for name in ["rolltap.1", "rolltap-run.1", "rolltap-export.1", "rolltap-completions.1"] {
        assert!(dir.path().join(name).is_file(), "{name}");
    }
}

#[test]
fn an_unknown_page_or_directory_is_refused_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let ended = run(dir.path(), &["man", "rnu"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("did you mean \"run\""), "{}", ended.stderr);
    let ended = run(dir.path(), &["man", "--dir", "nowhere"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("cannot write manual pages to nowhere"), "{}", ended.stderr);
}
