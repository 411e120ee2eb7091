//! Full-screen programs, driven step by step.

use serde_json::json;

use super::server::{Env, Server, task};
use crate::harness::testbed;

/// Draws a box with a number in it. The key `+` increases the number.
const CURSES: &str = "import curses
def main(screen):
    curses.curs_set(0)
    count = 0
    while True:
        screen.erase(); screen.border(); screen.addstr(5, 10, f'count is {count}'); screen.refresh()
        key = screen.getkey()
        if key == 'q': break
        if key == '+': count += 1
curses.wrapper(main)
";

const TESTS: &str = "#!/bin/sh
edited=0; [ \"$(cat /app/notes.txt)\" = 'written in vim' ] && edited=1
calculated=0; [ \"$(cat /app/repl.txt)\" = 42 ] && calculated=1
echo $((edited && calculated)) > /logs/verifier/reward.txt
";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker: run ./scripts/test"]
async fn an_editor_a_pager_a_repl_and_a_curses_program_are_driven_by_steps() {
    drive("screen").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker: run ./scripts/test"]
async fn the_same_programs_are_driven_in_a_session_of_tmux() {
    drive("tmux").await;
}

async fn drive(terminal: &str) {
    let (server, dir) = (Server::start(), tempfile::tempdir().unwrap());
    let dockerfile = format!(
        "FROM {}\nRUN apt-get update && apt-get install -y --no-install-recommends vim-tiny less python3 tmux\n\
         COPY counter.py /app/\nWORKDIR /app\n",
        testbed("ROLLTAP_TESTBED_IMAGE")
    );
    let files = [
        ("task.toml", "[environment]\nbuild_timeout_sec = 600\n"),
        ("instruction.md", "Use programs."),
        ("environment/Dockerfile", &dockerfile),
        ("environment/counter.py", CURSES),
        ("tests/test.sh", TESTS),
    ];
    task(dir.path(), &files);
    let env = server.create_with(dir.path(), json!({"terminal": terminal})).await;
    env.begin().await;

    edits(&env).await;
    pages(&env).await;
    calculates(&env).await;
    redraws(&env).await;
    assert_eq!(env.complete().await, json!(1.0));
    assert_eq!(server.terminate(), Vec::<String>::new());
}

async fn edits(env: &Env<'_>) {
    env.type_and_see("vim.tiny notes.txt\n", &["\"notes.txt\" [New]", "~\n~\n"]).await;
    env.type_and_see("iwritten in vim", &["written in vim", "~\n~\n"]).await;
    env.type_and_see("Escape", &["written in vim"]).await;
    let after = env.type_and_see(":wq\n", &["/app#"]).await;
    assert!(!after.contains("~\n~\n"), "the shell's screen is back: {after}");
    env.type_and_see("cat notes.txt\n", &["cat notes.txt\nwritten in vim\n"]).await;
}

async fn pages(env: &Env<'_>) {
    env.type_and_see("seq 1 500 > numbers; less numbers\n", &["\n39\n", "numbers"]).await;
    let next = env.type_and_see("Space", &["\n78\n"]).await;
    assert!(!next.contains("\n39\n"), "the next page: {next}");
    env.type_and_see("G", &["\n500\n", "(END)"]).await;
    env.type_and_see("q", &["/app#"]).await;
}

async fn calculates(env: &Env<'_>) {
    env.type_and_see("python3\n", &["\n>>>\n"]).await;
    env.type_and_see("6 * 7\n", &["\n42\n>>>"]).await;
    env.type_and_see("for i in range(2):\n    print('line', i)\n\n", &["line 0\nline 1\n"]).await;
    env.type_and_see("open('repl.txt', 'w').write(str(6 * 7))\n", &["\n2\n>>>"]).await;
    env.type_and_see("1 / 0\n", &["ZeroDivisionError"]).await;
    env.type_and_see("exit()\n", &["/app#"]).await;
}

async fn redraws(env: &Env<'_>) {
    env.type_and_see("python3 counter.py\n", &["count is 0", "┌──"]).await;
    let drawn = env.type_and_see("++", &["count is 2", "┌──"]).await;
    assert!(!drawn.contains("count is 0"), "drawn anew: {drawn}");
    env.type_and_see("q", &["/app#"]).await;
}
