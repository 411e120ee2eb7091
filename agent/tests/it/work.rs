//! The work at a terminal: the keystrokes, the observations, and the end of a run.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::routing::post;
use axum::{Json, Router};
use rolltap_agent::{AgentError, AgentSettings, ChatError, Role, StopReason, run};
use rolltap_testing::limit;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::harness::{model, observing, run_in, serve, shell, typing};

#[tokio::test]
async fn a_file_is_made_and_completion_is_confirmed_twice() {
    let (shell, terminal) = shell();
    let settings = model(|turn, seen| match turn {
        0 => {
            assert!(seen.contains("Create hello.txt.") && seen.contains("Terminal screen:\n\n"), "{seen}");
            typing(&["echo 'Hello, world!' > hello.txt\n", "echo made-$((40+2))\n"], false)
        }
        _ if seen.contains("You said that the task is complete") => typing(&[], true),
        // Printed text appears once as new output, or else stays on the screen.
        _ if seen.contains("made-42") => typing(&[], true),
        _ => observing(),
    })
    .await;
    let report = run_in(settings, terminal).await.unwrap();

    assert_eq!(std::fs::read_to_string(shell.dir.path().join("hello.txt")).unwrap(), "Hello, world!\n");
    assert_eq!((report.stop, report.completed), (StopReason::Completed, true));
    let turns = report.turns as usize;
    assert!(turns >= 3);
    assert_eq!(
        (report.prompt_tokens, report.completion_tokens),
        (10 * u64::from(report.turns), 2 * u64::from(report.turns))
    );
    let roles: Vec<_> = report.transcript.iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant].repeat(turns));
    assert_eq!(report.transcript[2 * turns - 1].content, typing(&[], true));
}

#[tokio::test]
async fn a_completion_that_is_not_repeated_is_taken_back() {
    let (_shell, terminal) = shell();
    let settings = model(|turn, _| typing(&[], [true, false, true, true, true][turn])).await;
    let report = run_in(settings, terminal).await.unwrap();
    assert_eq!((report.turns, report.stop), (4, StopReason::Completed));
}

#[tokio::test]
async fn an_unreadable_answer_is_answered_with_the_error_and_does_not_undo_completion() {
    let (_shell, terminal) = shell();
    let settings = model(|turn, seen| match turn {
        0 => typing(&[], true),
        1 => "{\"analysis\": oops}".into(),
        2 => {
            assert!(seen.contains("could not be read") && seen.contains("line 1, column 14"), "{seen}");
            format!("Sorry.\n{}", typing(&[], true))
        }
        _ => unreachable!(),
    })
    .await;
    let report = run_in(settings, terminal).await.unwrap();
    assert_eq!((report.turns, report.stop), (3, StopReason::Completed));
    assert_eq!(report.transcript[5].content, format!("Sorry.\n{}", typing(&[], true)), "verbatim");
}

#[tokio::test]
async fn warnings_reach_the_model() {
    let (_shell, terminal) = shell();
    let settings = model(|turn, seen| match turn {
        0 => format!("Look: {}", typing(&[], false)),
        _ => {
            assert!(seen.starts_with("About your last answer:\n- There is text before"), "{seen}");
            typing(&[], true)
        }
    })
    .await;
    let mut settings = settings;
    settings.max_turns = 2;
    let report = run_in(settings, terminal).await.unwrap();
    assert_eq!((report.turns, report.stop, report.completed), (2, StopReason::MaxTurns, false));
    assert_eq!(report.transcript.len(), 5, "what came of the last commands is in the transcript too");
}

#[tokio::test]
async fn control_c_interrupts_a_program() {
    let (_shell, terminal) = shell();
    let settings = model(|turn, seen| {
        if turn == 0 {
            typing(&["sh -c 'echo started-$((1+1)); exec sleep 1000'\n"], false)
        } else if seen.contains("rc=130") || seen.contains("You said") {
            typing(&[], true)
        } else if seen.contains("started-2") && !seen.contains("rc=") {
            typing(&["C-c", "echo rc=$?\n"], false)
        } else {
            observing()
        }
    })
    .await;
    let report = run_in(settings, terminal).await.unwrap();
    assert_eq!(report.stop, StopReason::Completed);
}

#[tokio::test]
async fn leaving_the_shell_ends_the_run() {
    let (_shell, terminal) = shell();
    let long_wait =
        json!({"analysis": "", "plan": "", "commands": [{"keystrokes": "exit\n", "duration": 60}]});
    let settings = model(move |_, _| long_wait.to_string()).await;
    let report = run_in(settings, terminal).await.unwrap();
    assert_eq!((report.turns, report.stop), (1, StopReason::TerminalClosed));
}

#[tokio::test]
async fn an_answer_cut_off_by_its_length_is_recorded_and_not_executed() {
    let (shell, terminal) = shell();
    let cut = typing(&["touch never\n"], false);
    let settings = {
        let cut = cut.clone();
        serve(move |messages| {
            let (content, finish) =
                if messages.len() == 1 { (cut.clone(), "length") } else { (typing(&[], true), "stop") };
            async move { json!({"choices": [{"message": {"content": content}, "finish_reason": finish}]}) }
        })
        .await
    };
    let report = run_in(settings, terminal).await.unwrap();
    assert_eq!((report.turns, report.stop), (3, StopReason::Completed));
    assert_eq!(report.transcript[1].content, cut);
    assert!(report.transcript[2].content.contains("cut off"));
    assert!(!shell.dir.path().join("never").exists());
}

#[tokio::test]
async fn cancelling_ends_a_call_and_keeps_what_was_done() {
    let (_shell, terminal) = shell();
    let cancel = CancellationToken::new();
    let asked = cancel.clone();
    let settings = serve(move |_| {
        asked.cancel();
        std::future::pending()
    })
    .await;
    let run = run(settings, "Wait.", &terminal, cancel);
    let report = tokio::time::timeout(limit(60), run).await.unwrap().unwrap();
    assert_eq!((report.turns, report.stop, report.transcript.len()), (0, StopReason::Cancelled, 1));
}

#[tokio::test]
async fn cancelling_ends_the_wait_after_a_command() {
    let (shell, terminal) = shell();
    let waiting =
        json!({"analysis": "", "plan": "", "commands": [{"keystrokes": "touch here\n", "duration": 60}]});
    let settings = model(move |_, _| waiting.to_string()).await;
    let cancel = CancellationToken::new();
    let here = shell.dir.path().join("here");
    let cancelling = async {
        while !here.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        cancel.cancel();
    };
    let both = async { tokio::join!(run(settings, "Wait.", &terminal, cancel.clone()), cancelling) };
    // The limit is shorter than the command's own wait.
    let (report, ()) = tokio::time::timeout(limit(50), both).await.unwrap();
    let report = report.unwrap();
    assert_eq!((report.turns, report.stop, report.transcript.len()), (1, StopReason::Cancelled, 2));
}

#[tokio::test]
async fn a_model_that_is_not_there_is_an_error_with_its_address_and_the_report() {
    let (_shell, terminal) = shell();
    let port = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let mut settings = AgentSettings::new(format!("http://127.0.0.1:{port}/v1"), "key", "m");
    settings.retries = 1;
    let error = run_in(settings, terminal).await.unwrap_err();
    assert!(error.to_string().contains(&format!("http://127.0.0.1:{port}/v1")), "{error}");
    let AgentError::Model { source: ChatError::Unreachable { .. }, report } = error else {
        panic!("unexpected: {error}")
    };
    assert_eq!((report.turns, report.stop, report.transcript.len()), (0, StopReason::ModelFailed, 1));
}

#[tokio::test]
async fn a_full_context_ends_the_run_with_a_report() {
    let (_shell, terminal) = shell();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = AgentSettings::new(format!("http://{}/v1", listener.local_addr().unwrap()), "key", "m");
    let overflow =
        json!({"error": {"message": "This model's maximum context length is 512 tokens.", "code": 400}});
    let handler = move || {
        let overflow = overflow.clone();
        async move { (axum::http::StatusCode::BAD_REQUEST, Json(overflow)) }
    };
    let app = Router::new().route("/v1/chat/completions", post(handler));
    tokio::spawn(async move { axum::serve(listener, app).await });
    let report = run_in(settings, terminal).await.unwrap();
    assert_eq!((report.turns, report.stop), (0, StopReason::ContextExceeded));
}

#[tokio::test]
async fn a_flood_on_a_real_terminal_stays_short_and_can_be_interrupted() {
    let (_shell, terminal) = shell();
    let longest = Arc::new(Mutex::new(0));
    let longest_seen = Arc::clone(&longest);
    let settings = model(move |turn, seen| {
        let mut longest = longest_seen.lock().unwrap();
        *longest = (*longest).max(if turn == 0 { 0 } else { seen.len() });
        match turn {
            0 => typing(&["yes 'a rather long line that floods the terminal'\n"], false),
            _ if seen.contains("You said") || seen.contains("over-42") => typing(&[], true),
            1 => observing(),
            _ => typing(&["C-c", "echo over-$((40+2))\n"], false),
        }
    })
    .await;
    let report = run_in(settings, terminal).await.unwrap();
    assert_eq!(report.stop, StopReason::Completed);
    let longest = *longest.lock().unwrap();
    assert!(longest < 12_000, "{longest}");
    assert!(
        report.transcript.iter().any(|message| message.content.contains("bytes of output left out here"))
    );
}
