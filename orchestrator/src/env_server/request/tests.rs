use proptest::prelude::*;
use serde_json::json;

use super::*;

fn create(body: Value) -> Result<Create, GymError> {
    Create::read(body.to_string().as_bytes())
}

fn action(action: Value) -> Result<Action, GymError> {
    Action::read(json!({"action": action}).to_string().as_bytes())
}

fn refused<T: std::fmt::Debug>(read: Result<T, GymError>) -> String {
    match read {
        Err(GymError::BadRequest(message)) => message,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn a_task_is_enough_and_everything_can_be_set() {
    let least = create(json!({"task": "/t"})).unwrap();
    assert_eq!((least.task.path, least.size, least.lease), ("/t".into(), TerminalSize::default(), None));
    assert_eq!(least.terminal, TerminalKind::Screen);
    assert_eq!((least.format, least.environment, least.max_steps), (AnswerFormat::Json, None, None));
    let root = create(json!({"task": {"git_url": "u"}})).unwrap();
    assert_eq!((root.task.path, root.task.git_url), ("".into(), Some("u".into())));
    let most = create(json!({
        "task": {"path": "t", "git_url": "u", "git_commit_id": "c"}, "environment": "local", "terminal": "tmux",
        "width": 80, "height": 24, "lease_seconds": 2.5, "max_steps": 3, "format": "xml", "confirm_completion": true,
    }));
    let expected = Create {
        task: TaskPlace { path: "t".into(), git_url: Some("u".into()), git_commit_id: Some("c".into()) },
        environment: Some(EnvironmentKind::Local),
        terminal: TerminalKind::Tmux,
        size: TerminalSize { rows: 24, cols: 80 },
        lease: Some(Duration::from_millis(2500)),
        max_steps: Some(3),
        format: AnswerFormat::Xml,
        confirm_completion: true,
    };
    assert_eq!(most, Ok(expected));
}

#[test]
fn what_is_wrong_is_named_with_what_could_be_there() {
    for (body, said) in [
        (json!([]), "the request's body is a list; expected an object"),
        (json!({}), "missing field `task`"),
        (
            json!({"task": "t", "max_step": 3}),
            "the request has an unknown field \"max_step\"; did you mean \"max_steps\"?",
        ),
        (json!({"task": "t", "colour": 3}), "it may have task, environment, terminal"),
        (json!({"task": {}}), "task has no path"),
        (json!({"task": {"path": "t", "git_commit_id": "c"}}), "goes with task.git_url"),
        (json!({"task": {"path": "t", "branch": "x"}}), "task has an unknown field \"branch\""),
        (
            json!({"task": "t", "environment": "dokcer"}),
            "environment is \"dokcer\"; expected docker or local (did you mean \"docker\"?)",
        ),
        (json!({"task": "t", "environment": "harbor"}), "expected docker or local"),
        (json!({"task": "t", "terminal": "scren"}), "did you mean \"screen\"?"),
        (json!({"task": "t", "format": "yaml"}), "format is \"yaml\"; expected json or xml"),
        (json!({"task": "t", "width": "wide"}), "width: invalid type"),
        (json!({"task": "t", "width": 65_535}), "width is 65535; expected a number from 10 to 1000"),
        (json!({"task": "t", "height": 0}), "height is 0; expected a number from 2 to 500"),
        (json!({"task": "t", "height": -1}), "height: invalid value"),
        (json!({"task": "t", "max_steps": 0}), "max_steps is 0"),
        (json!({"task": "t", "lease_seconds": 0.5}), "lease_seconds is 0.5; expected seconds"),
        (json!({"task": "t", "lease_seconds": -1}), "lease_seconds is -1"),
        (json!({"task": "t", "lease_seconds": 1e300}), "lease_seconds"),
        (json!({"task": "t", "confirm_completion": "yes"}), "confirm_completion: invalid type"),
    ] {
        let message = refused(create(body.clone()));
        assert!(message.contains(said), "{body}: {message}");
    }
}

#[test]
fn actions_are_answers_keystrokes_or_commands() {
    assert_eq!(action(json!("text")), Ok(Action::Answer("text".into())));
    let one = Action::Commands { commands: vec![Command::new("ls\n", 1.0)], task_complete: false };
    assert_eq!(action(json!({"keystrokes": "ls\n"})), Ok(one));
    let two = vec![Command::new("a", 0.5), Command::new("", 1.0)];
    let commands = json!([{"keystrokes": "a", "duration": 0.5}, {"keystrokes": ""}]);
    assert_eq!(
        action(json!({"commands": commands, "task_complete": true})),
        Ok(Action::Commands { commands: two, task_complete: true })
    );
}

#[test]
fn a_duration_is_held_to_what_a_step_may_wait() {
    for (given, waits) in [(-5.0, 0), (0.0, 0), (60.5, 60), (1e308, 60)] {
        let Ok(Action::Commands { commands, .. }) = action(json!({"keystrokes": "", "duration": given}))
        else {
            panic!("{given}");
        };
        assert_eq!(commands[0].wait, Duration::from_secs(waits), "{given}");
    }
    for given in ["NaN", "Infinity", "-Infinity", "1e999", "\"1\"", "true", "[1]"] {
        let body = format!("{{\"action\": {{\"keystrokes\": \"\", \"duration\": {given}}}}}");
        refused(Action::read(body.as_bytes()));
    }
}

#[test]
fn wrong_actions_are_named() {
    for (given, said) in [
        (json!(null), "action is null; expected a model's answer"),
        (json!([]), "action is a list"),
        (json!({}), "missing field `commands`"),
        (json!({"keystroke": "x"}), "did you mean \"keystrokes\"?"),
        (json!({"comands": []}), "did you mean \"commands\"?"),
        (json!({"keystrokes": 3}), "action.keystrokes: invalid type"),
        (json!({"keystrokes": "x", "wait": 1}), "unknown field \"wait\""),
        (json!({"keystrokes": "x", "task_complete": true}), "unknown field \"task_complete\""),
        (json!({"commands": "ls"}), "action.commands: invalid type"),
        (json!({"commands": ["ls"]}), "action.commands[0] is a string; expected an object"),
        (json!({"commands": [{"keystrokes": "a"}, {"duration": 1}]}), "action.commands[1]: missing field"),
        (json!({"commands": [], "task_complete": "true"}), "action.task_complete: invalid type"),
    ] {
        let message = refused(action(given.clone()));
        assert!(message.contains(said), "{given}: {message}");
    }
    assert!(refused(Action::read(b"{}")).contains("missing field `action`"));
    assert!(refused(nothing(b"{\"seed\": 1}")).contains("unknown field \"seed\"; it takes none"));
    assert_eq!((nothing(b""), nothing(b" {} ")), (Ok(()), Ok(())));
}

/// Generates JSON of any shape, in which the server's own names occur now and then.
fn any_json() -> impl Strategy<Value = Value> {
    let name = || "(action|commands|keystrokes|duration|task|path|width|[a-z]{0,3})";
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name(), inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_body_panics(body in any::<Vec<u8>>(), value in any_json()) {
        for body in [body, value.to_string().into_bytes()] {
            let _ = Create::read(&body);
            let _ = Action::read(&body);
            let _ = nothing(&body);
        }
    }

    #[test]
    fn every_command_of_an_action_is_read(keystrokes in prop::collection::vec("\\PC{0,6}|[\u{0}-\u{1f}]{1,3}", 0..5)) {
        let commands: Vec<_> = keystrokes.iter().map(|keys| json!({"keystrokes": keys})).collect();
        let read = action(json!({"commands": commands})).unwrap();
        let expected = keystrokes.iter().map(|keys| Command::new(keys.as_str(), 1.0)).collect();
        prop_assert_eq!(read, Action::Commands { commands: expected, task_complete: false });
    }
}

#[test]
fn fuzz_env_request() {
    rolltap_testing::fuzz!("env_request", |body| {
        let _ = Create::read(body);
        let _ = Action::read(body);
        let _ = nothing(body);
    });
}
