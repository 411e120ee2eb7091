use std::path::Path;

use proptest::prelude::*;
use serde_json::json;

use super::super::files::TrialFiles;
use super::*;

const HEADER: &str = r#"{"version": 2, "width": 20, "height": 4, "timestamp": 1000}"#;

/// Returns the screens of a trial whose directory has these files.
fn screens(files: &[(&str, &str)]) -> Option<Screens> {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new(""))).unwrap();
        std::fs::write(path, content).unwrap();
    }
    Screens::read(&TrialFiles::at(dir.path()).list())
}

/// Returns the trajectory of an agent of this name. Its steps were written in these minutes, and observed their number.
fn trajectory(agent: &str, times: &[u32]) -> String {
    let steps = times.iter().enumerate().map(|(index, minute)| {
        let at = jiff::Timestamp::from_second(i64::from(*minute) * 60).unwrap();
        json!({
            "step_id": index + 1, "timestamp": at.to_string(), "source": "agent",
            "message": format!("Analysis: {index}"),
            "tool_calls": [{"function_name": "bash_command", "arguments": {"keystrokes": "ls\n", "duration": 0.1}}],
            "observation": {"results": [{"content": format!("screen {index}")}]},
            "metrics": {"completion_tokens": 7},
        })
    });
    let asked = json!({"step_id": 0, "source": "user", "message": "Do it."});
    let steps: Vec<_> = std::iter::once(asked).chain(steps).collect();
    json!({"schema_version": "ATIF-v1.8", "agent": {"name": agent}, "steps": steps}).to_string()
}

fn texts(screens: &Screens) -> Vec<&str> {
    screens.screens.iter().map(|screen| screen.text.as_str()).collect()
}

#[test]
fn a_recording_is_played_by_the_emulator() {
    let cast = [
        HEADER,
        r#"[0.5, "o", "$ ls\r\n"]"#,
        r#"[0.55, "o", "\u001b[31mred\u001b[0m"]"#,
        r#"[1.0, "i", "x"]"#,
        r#"[2.0, "o", "\u001b[2J\u001b[Hcleared"]"#,
        r#"[3.0, "r", "30x5"]"#,
        r#"[3.5, "o", "resized"]"#,
        r#"[4.0, "m", "a marker"]"#,
    ];
    let screens = screens(&[("agent/recording.cast", &cast.join("\n"))]).unwrap();
    assert_eq!(texts(&screens), ["$ ls\nred", "cleared", "", "resized"]);
    let times: Vec<f64> = screens.screens.iter().map(|screen| screen.at).collect();
    assert_eq!(times, [1000.55, 1002.0, 1003.0, 1003.5]);
    assert_eq!(screens.problems, [""; 0]);
}

#[test]
fn times_of_version_3_count_from_the_event_before() {
    let cast = "{\"version\": 3, \"term\": {\"cols\": 20, \"rows\": 4}}\n# comment\n[1, \"o\", \"a\"]\n[1, \"o\", \"b\"]\n";
    let screens = screens(&[("agent/recording.cast", cast)]).unwrap();
    let shown: Vec<_> = screens.screens.iter().map(|screen| (screen.at, screen.text.as_str())).collect();
    assert_eq!(shown, [(1.0, "a"), (2.0, "ab")]);
}

#[test]
fn of_a_damaged_recording_the_rest_is_shown_and_the_damage_is_named() {
    let cast =
        format!("{HEADER}\n[1.0, \"o\", \"one\"]\nnonsense\n[2.0, \"o\", \" two\"]\n[3.0, \"o\", \" th");
    let screens = screens(&[("agent/recording.cast", &cast)]).unwrap();
    assert_eq!(texts(&screens), ["one", "one two"]);
    assert!(
        matches!(&*screens.problems, [first, last] if first.contains("line 3") && last.contains("line 5")),
        "{:?}",
        screens.problems
    );
    let empty = self::screens(&[("agent/recording.cast", "{\"version\": 9}")]).unwrap();
    assert!(empty.screens.is_empty() && empty.problems[0].contains("version 9"), "{empty:?}");
}

#[test]
fn steps_of_a_terminal_agent_have_the_observed_text() {
    let screens = screens(&[("agent/trajectory.json", &trajectory("terminal", &[1, 2]))]).unwrap();
    assert_eq!(texts(&screens), ["screen 0", "screen 1"]);
    let step = &screens.steps[1];
    assert_eq!((step.number, step.at, step.sampled), (2, Some(120.0), Some(7)));
    assert_eq!((step.message.as_str(), &*step.keystrokes), ("Analysis: 1", &["ls\n".to_owned()][..]));
    assert_eq!(screens.screens[1].step, Some(1));
    assert_eq!(screens.problems, [""; 0]);
}

#[test]
fn of_a_half_written_trajectory_the_whole_steps_are_shown() {
    let whole = trajectory("terminal", &[1, 2]);
    let cut = whole.rfind("screen 1").unwrap();
    let screens = screens(&[("agent/trajectory.json", &whole[..cut])]).unwrap();
    assert_eq!(texts(&screens), ["screen 0"]);
    assert!(screens.problems[0].contains("the rest cannot be read"), "{:?}", screens.problems);
}

#[test]
fn trajectories_of_other_agents_have_no_screens() {
    assert!(screens(&[("agent/trajectory.json", &trajectory("claude-code", &[1]))]).is_none());
    assert!(screens(&[("agent/log.txt", ""), ("artifacts/game.cast", HEADER)]).is_none());
}

#[test]
fn a_recorded_screen_belongs_to_the_step_of_its_time() {
    let cast = format!("{HEADER}\n[0, \"o\", \"a\"]\n[100, \"o\", \"b\"]\n[300, \"o\", \"c\"]\n");
    let steps_of = |agent| {
        let screens = screens(&[
            ("agent/trajectory.json", &trajectory(agent, &[17, 20])),
            ("agent/recording.cast", &cast),
        ])
        .unwrap();
        screens.screens.iter().map(|screen| screen.step).collect::<Vec<_>>()
    };
    // The recording is from second 1000 to 1300, the steps are of the seconds 1020 and 1200.
    assert_eq!(steps_of("terminal"), [None, Some(0), Some(1)]);
    assert_eq!(steps_of("terminus-2"), [Some(0), Some(1), None]);
}

#[test]
fn a_step_without_output_has_the_screen_of_its_time() {
    let cast = format!("{HEADER}\n[0, \"o\", \"a\"]\n[100, \"o\", \"b\"]\n");
    let files =
        [("agent/trajectory.json", &*trajectory("terminal", &[17, 18, 20])), ("agent/recording.cast", &cast)];
    let screens = screens(&files).unwrap();
    let shown: Vec<_> =
        screens.screens.iter().map(|screen| (screen.at, screen.text.as_str(), screen.step)).collect();
    // The steps are of the seconds 1020, 1080 and 1200, and the output is of 1000 and 1100.
    let expected =
        [(1000.0, "a", None), (1020.0, "a", Some(0)), (1100.0, "ab", Some(1)), (1200.0, "ab", Some(2))];
    assert_eq!(shown, expected);
}

#[test]
fn a_recording_without_a_date_has_no_steps() {
    let cast = "{\"version\": 2}\n[0, \"o\", \"a\"]\n[100, \"o\", \"b\"]\n";
    let files = [("agent/trajectory.json", &*trajectory("terminal", &[17])), ("agent/recording.cast", cast)];
    let shown: Vec<_> =
        screens(&files).unwrap().screens.iter().map(|screen| (screen.at, screen.step)).collect();
    assert_eq!(shown, [(0.0, None), (100.0, None)]);
}

#[test]
fn the_marker_of_a_recording_that_ended_early_is_a_problem() {
    let cast =
        format!("{HEADER}\n[0, \"o\", \"a\"]\n[1, \"m\", \"rolltap: it ends\"]\n[1, \"m\", \"other\"]\n");
    let screens = screens(&[("agent/recording.cast", &cast)]).unwrap();
    assert_eq!(screens.problems, ["agent/recording.cast: rolltap: it ends"]);
}

#[test]
fn a_long_recording_has_screens_less_often() {
    let events = (0..5_000).map(|event| format!("[{event}, \"o\", \"{event} \"]\n"));
    let cast: String = std::iter::once(format!("{HEADER}\n")).chain(events).collect();
    let screens = screens(&[("agent/recording.cast", &cast)]).unwrap();
    assert!((1_500..=MOST).contains(&screens.screens.len()), "{}", screens.screens.len());
    assert!(screens.screens.last().unwrap().text.contains("4999"));
    assert_eq!(screens.problems, [""; 0]);
}

#[test]
fn problems_quote_at_most_some_text_of_the_agent() {
    let long = "x".repeat(100_000);
    let cast = format!("{HEADER}\n[0, \"m\", \"rolltap: {long}\"]\n[\"{long}\", \"o\", \"\"]\n");
    let trajectory =
        format!("{{\"agent\": {{\"name\": \"terminal\"}}, \"steps\": [{{\"step_id\": \"{long}\"}}]}}");
    let screens =
        screens(&[("agent/recording.cast", &cast), ("agent/trajectory.json", &trajectory)]).unwrap();
    assert_eq!(screens.problems.len(), 3);
    for problem in screens.problems {
        assert!(problem.len() < PROBLEM + 40 && problem.ends_with('…'), "{problem}");
    }
}

#[test]
fn a_recording_with_countless_changes_of_the_size_is_played_up_to_a_limit() {
    let changes =
        (0..100_000).map(|at| format!("[{at}, \"r\", \"{}x100\"]\n[{at}, \"o\", \"\\ra\"]\n", 299 + at % 2));
    let cast: String = std::iter::once(format!("{HEADER}\n")).chain(changes).collect();
    let screens = screens(&[("agent/recording.cast", &cast)]).unwrap();
    let expected =
        "agent/recording.cast: the size changes 100000 times, and only the first 1000 changes are played";
    assert_eq!(screens.problems, [expected]);
}

#[test]
fn a_terminal_above_the_maximum_is_a_problem() {
    for cast in ["{\"version\": 2, \"width\": 400}", "{\"version\": 2}\n[0, \"r\", \"20x101\"]\n"] {
        let screens = screens(&[("agent/recording.cast", cast)]).unwrap();
        assert!(
            matches!(&*screens.problems, [problem] if problem.contains("larger than 300 columns and 100 rows")),
            "{:?}",
            screens.problems
        );
    }
}

#[test]
fn several_recordings_share_the_limits_of_a_trial() {
    let events = (0..5_000).map(|event| format!("[{event}, \"o\", \"{event} \"]\n"));
    let long: String = std::iter::once(format!("{HEADER}\n")).chain(events).collect();
    let cast = format!("{HEADER}\n[0, \"o\", \"short\"]\n");
    let both = screens(&[("agent/a.cast", &long), ("agent/b.cast", &cast)]).unwrap();
    assert!((700..=MOST).contains(&both.screens.len()) && texts(&both).contains(&"short"));
    assert_eq!(both.problems, [""; 0]);

    let large = " ".repeat(usize::try_from(MOST_READ).unwrap() + 1);
    let both = screens(&[("agent/a.cast", &large), ("agent/b.cast", &cast)]).unwrap();
    assert_eq!((both.screens.len(), both.sources), (0, vec!["agent/a.cast".to_owned()]));
    let limits = both.problems.iter().filter(|problem| problem.ends_with("are read up to 16 MB"));
    assert_eq!(limits.count(), 2, "{:?}", both.problems);
}

#[test]
fn only_the_logs_of_the_agent_are_played() {
    for name in ["agent/a.cast", "steps/one/agent/a.cast"] {
        assert_eq!(in_agent_logs(name), Some("a.cast"));
        assert!(screens(&[(name, HEADER)]).is_some(), "{name}");
    }
    for name in ["artifacts/app/agent/a.cast", "agent/logs/a.cast", "my-agent/a.cast", "steps/agent/a.cast"] {
        assert!(screens(&[(name, HEADER)]).is_none(), "{name}");
    }
    let trajectory = trajectory("terminal", &[1]);
    assert!(screens(&[("steps/one/agent/trajectory.json", &trajectory)]).is_some());
    assert!(screens(&[("artifacts/agent/trajectory.json", &trajectory)]).is_none());
}

#[test]
fn steps_of_several_trajectories_are_in_order_of_time() {
    let files = [
        ("steps/a/agent/trajectory.json", &*trajectory("terminal", &[3, 4])),
        ("steps/b/agent/trajectory.json", &*trajectory("terminal", &[1, 2])),
        ("steps/b/agent/recording.cast", "{\"version\": 2, \"timestamp\": 60}\n[1, \"o\", \"a\"]\n"),
    ];
    let observed = screens(&files[..2]).unwrap();
    let times =
        |screens: &Screens| screens.screens.iter().map(|screen| (screen.at, screen.step)).collect::<Vec<_>>();
    assert_eq!(times(&observed), [(60.0, Some(0)), (120.0, Some(1)), (180.0, Some(2)), (240.0, Some(3))]);
    assert!(observed.steps.is_sorted_by_key(|step| step.at.map(f64::to_bits)));
    let recorded = screens(&files).unwrap();
    assert_eq!(times(&recorded)[..2], [(61.0, Some(0)), (120.0, Some(1))]);
}

#[test]
fn screens_after_the_last_read_step_have_no_step() {
    // The first of 1 000 records is that of the task.
    let trajectory = trajectory("terminal", &(0..1_100).collect::<Vec<_>>());
    let cast = "{\"version\": 2, \"timestamp\": 60}\n[59850, \"o\", \"a\"]\n[59940, \"o\", \"b\"]\n";
    let screens = screens(&[("agent/trajectory.json", &trajectory), ("agent/recording.cast", cast)]).unwrap();
    assert_eq!(screens.steps.len(), 999);
    let step_of = |at| screens.screens.iter().find(|screen| screen.at == at).unwrap().step;
    assert_eq!((step_of(59_910.0), step_of(60_000.0)), (Some(998), None));
    let problem =
        "agent/trajectory.json: the steps after the first 1000 are left out, because they are too many";
    assert_eq!(screens.problems, [problem]);
}

#[test]
fn fuzz_terminal_recording() {
    rolltap_testing::fuzz!("terminal_recording", |bytes| {
        let read = cast::read(bytes, 10, MOST_TEXT);
        assert!(read.screens.len() <= 10 && read.screens.iter().all(|(_, text)| !text.contains('\x1b')));
        // The header is rare among random bytes.
        cast::read(&[HEADER.as_bytes(), b"\n", bytes].concat(), 10, MOST_TEXT);
    });
}

#[test]
fn fuzz_terminal_steps() {
    rolltap_testing::fuzz!("terminal_steps", |bytes| {
        assert!(trajectory::read(bytes, 10).steps.len() <= 10);
        let steps = [br#"{"agent": {"name": "terminal"}, "steps": ["#, bytes].concat();
        assert!(trajectory::read(&steps, 10).steps.len() <= 10);
    });
}

proptest! {
    #[test]
    fn any_output_gives_bounded_screens_without_escape_sequences(
        events in prop::collection::vec((any::<f64>(), "[oirm]", any::<String>()), 0..40),
        (width, height) in any::<(u16, u16)>(),
        most in 1..10_usize,
    ) {
        let header = json!({"version": 2, "width": width, "height": height}).to_string();
        let events = events.iter().map(|event| json!(event).to_string());
        let cast: Vec<String> = std::iter::once(header).chain(events).collect();
        let read = cast::read(cast.join("\n").as_bytes(), most, MOST_TEXT);
        prop_assert!(read.screens.len() <= most);
        prop_assert!(read.screens.is_sorted_by(|one, other| one.0 <= other.0));
        prop_assert!(read.screens.iter().all(|(_, text)| !text.contains('\x1b')));
    }
}
