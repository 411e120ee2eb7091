//! The effect of keystrokes on programs on a real pseudo-terminal.

use std::time::Duration;

use rolltap_agent::answer::Command;
use rolltap_agent::terminal::{Observation, Terminal};
use rolltap_agent::type_commands;
use rolltap_testing::limit;

use crate::harness::shell;

/// Polls the screen until it contains this text. Fails after half a minute.
async fn until(terminal: &Terminal, text: &str) {
    let looking = async {
        while !terminal.screen().await.contains(text) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let in_time = tokio::time::timeout(limit(30), looking).await;
    assert!(in_time.is_ok(), "no {text:?} in:\n{}", terminal.screen().await);
}

#[tokio::test]
async fn a_megabyte_of_keystrokes_arrives_whole() {
    let (shell, terminal) = shell();
    type_commands::wait_for_prompt(&terminal).await;
    terminal.send_keys("cat > big; echo read-$((40+2))\n").await.unwrap();
    let line = format!("{}\n", "0123456789abcdef".repeat(8));
    let text = line.repeat((1 << 20) / line.len());
    terminal.send_keys(&text).await.unwrap();
    terminal.send_keys("C-d").await.unwrap();
    until(&terminal, "read-42").await;
    assert!(std::fs::read_to_string(shell.dir.path().join("big")).unwrap() == text);
    assert!(terminal.observe().await.text().len() < 10_200);
}

#[tokio::test]
async fn control_characters_are_typed_as_they_stand() {
    let (shell, terminal) = shell();
    type_commands::wait_for_prompt(&terminal).await;
    // The keys end a line, interrupt, and delete a word, as on a keyboard.
    terminal.send_keys("sh -c 'echo started-$((1+1)); exec sleep 1000'\n").await.unwrap();
    until(&terminal, "started-2").await;
    terminal.send_keys("\u{3}").await.unwrap();
    // An interrupt discards input that is typed before the prompt is there again.
    until(&terminal, "^C\n$").await;
    terminal.send_keys("echo not-this\u{17}this > out\r").await.unwrap();
    terminal.send_keys("echo end-$((1+1))\n").await.unwrap();
    until(&terminal, "end-2").await;
    assert_eq!(std::fs::read_to_string(shell.dir.path().join("out")).unwrap(), "this\n");
}

#[tokio::test]
async fn an_observation_is_what_came_since_the_last_one_or_else_the_screen() {
    let (_shell, terminal) = shell();
    type_commands::wait_for_prompt(&terminal).await;
    assert_eq!(terminal.observe().await, Observation::Screen("$".into()));
    terminal.send_keys("echo one\n").await.unwrap();
    until(&terminal, "\none\n$").await;
    assert_eq!(terminal.observe().await, Observation::NewOutput("$ echo one\none\n$".into()));
    assert_eq!(terminal.observe().await, Observation::Screen("$ echo one\none\n$".into()));
    terminal.send_keys("seq 3000\n").await.unwrap();
    until(&terminal, "\n3000\n$").await;
    let Observation::NewOutput(many) = terminal.observe().await else { panic!("no new output") };
    assert!(many.starts_with("$ seq 3000\n1\n2\n") && many.ends_with("3000\n$"), "{many}");
    assert!(many.contains("bytes of output left out here"), "{many}");
}

#[tokio::test]
async fn commands_are_waited_for_as_long_as_their_duration() {
    let (_shell, terminal) = shell();
    type_commands::wait_for_prompt(&terminal).await;
    let start = tokio::time::Instant::now();
    let commands = [Command::new("", 0.5), Command::new("", -1.0), Command::new("true\n", 0.5)];
    assert_eq!(type_commands::carry_out(&terminal, &commands).await, Vec::<String>::new());
    assert!(start.elapsed() >= Duration::from_secs(1), "{:?}", start.elapsed());
}
