use std::future::Future;

use rolltap_testing::limit;
use tokio::io::DuplexStream;

use super::super::Terminal;
use super::*;

/// Returns a terminal and the program's side of its stream.
fn terminal() -> (Terminal, DuplexStream) {
    let (ours, program) = tokio::io::duplex(1024);
    let (reader, writer) = tokio::io::split(ours);
    (Terminal::new(reader, writer, TerminalSize { rows: 5, cols: 40 }), program)
}

/// Waits until a condition is true. Fails after half a minute.
async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    in_time(what, async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(limit(30), future).await.unwrap_or_else(|_| panic!("waited for {what}"))
}

#[tokio::test]
async fn output_reaches_the_screen_and_keys_reach_the_program() {
    let (terminal, mut program) = terminal();
    program.write_all(b"name? ").await.unwrap();
    until("the question", async || terminal.screen().await == "name?").await;
    terminal.send_keys("Ada\n").await.unwrap();
    terminal.send_keys("C-c").await.unwrap();
    terminal.send_keys("").await.unwrap();
    let mut read = [0; 5];
    in_time("the keys", program.read_exact(&mut read)).await.unwrap();
    assert_eq!(&read, b"Ada\n\x03");
}

#[tokio::test]
async fn a_question_to_the_terminal_is_answered() {
    let (_terminal, mut program) = terminal();
    program.write_all(b"ab\x1b[6n").await.unwrap();
    let mut read = [0; 6];
    in_time("the answer", program.read_exact(&mut read)).await.unwrap();
    assert_eq!(&read, b"\x1b[1;3R");
}

#[tokio::test]
async fn the_end_of_the_stream_closes_the_terminal_and_leaves_the_screen() {
    let (terminal, mut program) = terminal();
    program.write_all(b"bye").await.unwrap();
    assert!(!terminal.is_closed());
    drop(program);
    in_time("the end", terminal.closed()).await;
    assert_eq!(terminal.observe().await.text(), "bye");
    assert_eq!(terminal.send_keys("x").await, Err(SendError::Closed));
}

#[tokio::test]
async fn dropping_the_terminal_ends_its_task() {
    let (terminal, mut program) = terminal();
    drop(terminal);
    let mut rest = Vec::new();
    in_time("the program's end of input", program.read_to_end(&mut rest)).await.unwrap();
    assert!(rest.is_empty());
}

#[tokio::test]
async fn unread_answers_to_questions_block_nothing() {
    let (terminal, mut program) = terminal();
    for _ in 0..2000 {
        in_time("the terminal to read", program.write_all(b"\x1b[6n")).await.unwrap();
    }
    program.write_all(b"done").await.unwrap();
    until("the last word", async || terminal.screen().await == "done").await;
}

#[tokio::test]
async fn a_program_that_reads_nothing_is_reported() {
    let (terminal, mut program) = terminal();
    tokio::time::pause();
    let big = "x".repeat(4096);
    let mut sent = 0;
    let refused = loop {
        match terminal.send_keys(&big).await {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
        assert!(sent <= QUEUED_KEYS + 2, "the queue is bounded");
    };
    assert_eq!(refused, SendError::NotReading);
    tokio::time::resume();
    let mut read = vec![0; sent * big.len()];
    in_time("all that was accepted", program.read_exact(&mut read)).await.unwrap();
}

#[tokio::test]
async fn a_flood_goes_through_while_others_run() {
    let (terminal, mut program) = terminal();
    let flood = tokio::spawn(async move {
        let block = b"y\r\n".repeat(1000);
        for _ in 0..200 {
            program.write_all(&block).await.unwrap();
        }
        program.write_all(b"END").await.unwrap();
        program
    });
    // On this single-threaded runtime, the observation below can only run if the pump yields to other tasks.
    until("the end of the flood", async || {
        terminal.observe().await;
        terminal.screen().await.ends_with("END")
    })
    .await;
    drop(flood.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn settling_waits_for_output_then_for_silence_but_not_for_ever() {
    let (terminal, mut program) = terminal();
    let start = tokio::time::Instant::now();
    terminal.settled(Duration::from_millis(100), Duration::from_secs(2)).await;
    assert_eq!(start.elapsed().as_secs(), 2, "no output at all");

    program.write_all(b"$ ").await.unwrap();
    terminal.settled(Duration::from_millis(100), Duration::from_secs(2)).await;
    assert_eq!(terminal.screen().await, "$");
    assert!(start.elapsed() < Duration::from_secs(3));

    drop(program);
    terminal.closed().await;
    let start = tokio::time::Instant::now();
    terminal.settled(Duration::from_millis(100), Duration::from_secs(2)).await;
    assert!(start.elapsed() < Duration::from_millis(10), "closed");
}
