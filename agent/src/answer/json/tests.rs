use proptest::prelude::*;
use serde_json::json;

use super::super::{AnswerError, AnswerFormat, ModelAnswer};
use super::*;

fn parse(text: &str) -> Result<ModelAnswer, AnswerError> {
    AnswerFormat::Json.parse(text)
}

fn command(keystrokes: &str, seconds: f64) -> Command {
    Command::new(keystrokes, seconds)
}

/// Returns an answer with these commands, as JSON text.
fn answer(commands: &serde_json::Value) -> String {
    json!({"analysis": "a", "plan": "p", "commands": commands}).to_string()
}

fn problem(text: &str) -> String {
    parse(text).expect_err("a broken answer").problem
}

#[test]
fn a_clean_answer_has_no_warnings() {
    let text = r#"{"analysis": "a", "plan": "p", "commands": [
        {"keystrokes": "ls\n", "duration": 0.5}, {"keystrokes": "C-c", "duration": 2},
        {"keystrokes": "", "duration": 9}, {"keystrokes": "q", "duration": 0}], "task_complete": true}"#;
    let answer = parse(text).unwrap();
    let commands = [command("ls\n", 0.5), command("C-c", 2.0), command("", 9.0), command("q", 0.0)];
    assert_eq!(answer.commands, commands);
    assert!(answer.task_complete);
    assert_eq!(answer.warnings, Vec::<String>::new());
}

#[test]
fn text_around_the_object_is_a_warning() {
    let answer = parse(&format!("Sure {{ok}}:\n```json\n{}\n```", answer(&json!([])))).unwrap();
    assert_eq!(answer.warnings.len(), 2);
    assert!(answer.warnings[0].contains("before") && answer.warnings[1].contains("after"));
}

#[test]
fn an_unclosed_object_is_closed_with_a_warning() {
    let whole = answer(&json!([{"keystrokes": "ls\n", "duration": 1.0}]));
    let answer = parse(whole.strip_suffix("]}").unwrap()).unwrap();
    assert_eq!(answer.commands, [command("ls\n", 1.0)]);
    assert!(answer.warnings[0].contains("\"]}\" was added"), "{:?}", answer.warnings);
}

#[test]
fn durations_are_bounded_and_doubtful_ones_are_one_second() {
    for (duration, seconds, warned) in [
        (json!(-3), 0.0, false),
        (json!(61), 60.0, false),
        (json!(1e300), 60.0, false),
        (json!("2"), 1.0, true),
        (json!(null), 1.0, true),
        (json!(true), 1.0, true),
    ] {
        let answer = parse(&answer(&json!([{"keystrokes": "x", "duration": duration}]))).unwrap();
        assert_eq!(answer.commands, [command("x", seconds)], "{duration}");
        assert_eq!(answer.warnings.len(), usize::from(warned), "{duration}: {:?}", answer.warnings);
    }
    let missing = parse(&answer(&json!([{"keystrokes": "x"}]))).unwrap();
    assert_eq!(missing.commands, [command("x", 1.0)]);
    assert!(missing.warnings[0].contains("no \"duration\""));
}

#[test]
fn smaller_faults_are_warnings() {
    let text = r#"{"plan": "p", "analysis": 7, "commands": [
        {"keystrokes": "cd /tmp", "duration": 1, "timeout": 3}, {"keystrokes": "ls\n", "duration": 1}]}"#;
    let warnings = parse(text).unwrap().warnings.join("\n");
    for part in
        ["\"analysis\" should be a string", "in this order", "unknown fields", "timeout", "line break"]
    {
        assert!(warnings.contains(part), "{part} in {warnings}");
    }
}

#[test]
fn what_cannot_be_carried_out_is_an_error() {
    assert!(problem("I am done.").contains("no JSON object"));
    assert!(problem(r#"{"analysis": "a" "plan": "p"}"#).contains("line 1, column 18"));
    assert!(problem(r#"{"analysis": "a"}"#).contains("plan, commands"));
    assert!(problem(r#"{"analysis": "a", "plan": "p", "commands": "ls"}"#).contains("must be an array"));
    assert!(problem(&answer(&json!(["ls\n"]))).contains("Command 1 must be an object"));
    assert!(problem(&answer(&json!([{"keystrokes": "a"}, {"duration": 1}]))).contains("Command 2 has no"));
    assert!(problem(&answer(&json!([{"keystrokes": 1}]))).contains("must be a string"));
}

#[test]
fn an_error_keeps_the_warnings_found_before_it() {
    let error = parse(&format!("Hm. {}", answer(&json!(5)))).unwrap_err();
    assert_eq!(error.warnings.len(), 1);
}

#[test]
fn broken_commands_do_not_keep_a_complete_task_open() {
    let answer =
        parse(r#"{"analysis": "", "plan": "", "commands": [{"key": 1}], "task_complete": true}"#).unwrap();
    assert!(answer.task_complete && answer.commands.is_empty());
    assert!(answer.warnings[0].contains("not run"));
}

#[test]
fn several_spellings_of_completion_are_understood() {
    for (value, complete) in [
        (json!(true), true),
        (json!("True"), true),
        (json!("yes"), true),
        (json!("1"), true),
        (json!(1), true),
        (json!(false), false),
        (json!("no"), false),
        (json!(0), false),
        (json!(null), false),
        (json!([true]), false),
    ] {
        let text = json!({"analysis": "", "plan": "", "commands": [], "task_complete": value}).to_string();
        assert_eq!(parse(&text).unwrap().task_complete, complete, "{value}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_without_panic(text in any::<String>()) {
        let _read = parse(&text);
    }

    #[test]
    fn any_text_that_resembles_an_answer_is_read_without_panic(
        text in r#"([{}\[\]",: \n\\]|"(analysis|plan|commands|keystrokes|duration|task_complete)"|[0-9.e-]|true|null){0,80}"#
    ) {
        let _read = parse(&text);
    }

    #[test]
    fn a_cut_answer_never_runs_keystrokes_that_are_not_whole(
        keystrokes in prop::collection::vec(any::<String>(), 1..4), cut in any::<prop::sample::Index>()
    ) {
        let commands: Vec<_> = keystrokes.iter().map(|keys| json!({"keystrokes": keys, "duration": 1})).collect();
        let text = answer(&json!(commands));
        let end = text.floor_char_boundary(cut.index(text.len()));
        if let Ok(answer) = parse(&text[..end]) {
            prop_assert!(answer.commands.iter().zip(&keystrokes).all(|(read, written)| read.keystrokes == *written));
        }
    }

    #[test]
    fn prose_around_a_good_answer_changes_no_command(
        before in any::<String>(), after in any::<String>(), ascii in "[ -~\n]{0,40}",
        commands in prop::collection::vec((any::<String>(), 0.0f64..60.0), 0..4), task_complete: bool
    ) {
        let list: Vec<_> = commands.iter().map(|(keys, wait)| json!({"keystrokes": keys, "duration": wait})).collect();
        let object = json!({"analysis": "{", "plan": "\"}", "commands": list, "task_complete": task_complete});
        for text in [object.to_string(), serde_json::to_string_pretty(&object).unwrap()] {
            let read = parse(&format!("{before}{ascii}{text}{ascii}{after}")).unwrap();
            let expected: Vec<_> = commands.iter().map(|(keys, wait)| command(keys, *wait)).collect();
            prop_assert_eq!(read.commands, expected);
            prop_assert_eq!(read.task_complete, task_complete);
        }
    }
}

#[test]
fn fuzz_json_answer() {
    rolltap_testing::fuzz!("json_answer", |text| {
        let Ok(text) = std::str::from_utf8(text) else { return };
        drop((parse(text), AnswerFormat::Json.salvage(text)));
    });
}
