use proptest::prelude::*;

use super::*;

fn screen() -> Screen {
    Screen::new(TerminalSize { rows: 5, cols: 20 })
}

fn new_output(screen: &mut Screen) -> String {
    match screen.observe() {
        Observation::NewOutput(text) => text,
        Observation::Screen(text) => panic!("expected new output, got the screen: {text}"),
    }
}

#[test]
fn the_first_observation_is_the_screen() {
    let mut screen = screen();
    screen.feed(b"hello\r\n$ ");
    assert_eq!(screen.observe(), Observation::Screen("hello\n$".into()));
}

#[test]
fn the_next_observation_begins_with_the_prompt_line() {
    let mut screen = screen();
    screen.feed(b"welcome\r\n$ ");
    screen.observe();
    screen.feed(b"ls\r\na b\r\n$ ");
    assert_eq!(new_output(&mut screen), "$ ls\na b\n$");
}

#[test]
fn without_output_the_screen_is_shown_again() {
    let mut screen = screen();
    screen.feed(b"welcome\r\n$ ");
    screen.observe();
    assert_eq!(screen.observe(), Observation::Screen("welcome\n$".into()));
}

#[test]
fn lines_that_scrolled_off_are_part_of_the_new_output() {
    let mut screen = screen();
    screen.feed(b"one\r\n$ ");
    screen.observe();
    screen.feed(b"seq 20\r\n");
    let lines: String = (1..=20).map(|n| format!("{n}\r\n")).collect();
    screen.feed(lines.as_bytes());
    screen.feed(b"$ ");
    let expected: String = (1..=20).map(|n| format!("{n}\n")).collect();
    assert_eq!(new_output(&mut screen), format!("$ seq 20\n{expected}$"));
    assert_eq!(screen.observe(), Observation::Screen("17\n18\n19\n20\n$".into()));
}

#[test]
fn a_line_wider_than_the_screen_is_one_line_also_after_it_scrolled_off() {
    let mut screen = screen();
    screen.feed(b"$ ");
    screen.observe();
    let long = "0123456789".repeat(7);
    screen.feed(format!("\r\n{long}\r\na\r\nb\r\nc\r\n$ ").as_bytes());
    assert_eq!(new_output(&mut screen), format!("$ \n{long}\na\nb\nc\n$"));
}

#[test]
fn a_screen_that_was_cleared_is_shown_whole() {
    let mut screen = screen();
    screen.feed(b"one\r\ntwo\r\n$ ");
    screen.observe();
    screen.feed(b"clear\r\n\x1b[H\x1b[2J$ ");
    assert_eq!(screen.observe(), Observation::Screen("$".into()));
}

#[test]
fn a_full_screen_program_shows_its_screen_and_leaves_the_history_alone() {
    let mut screen = screen();
    screen.feed(b"one\r\n$ ");
    screen.observe();
    screen.feed(b"vim\r\n\x1b[?1049h\x1b[H~\r\n~\r\n~\r\n~\r\n~\r\nINSERT");
    assert_eq!(screen.observe(), Observation::Screen("~\n~\n~\n~\nINSERT".into()));
    screen.feed(b"\x1b[?1049l$ ");
    assert_eq!(new_output(&mut screen), "$ vim\n$");
}

#[test]
fn colours_and_bad_utf8_leave_plain_text() {
    let mut screen = screen();
    screen.feed(b"\x1b[31mred\x1b[0m \xff\xfe caf\xc3\xa9");
    assert_eq!(screen.text(), "red  caf\u{e9}");
}

#[test]
fn a_flood_keeps_both_ends_in_little_memory() {
    let mut screen = screen();
    screen.feed(b"$ ");
    screen.observe();
    screen.feed(b"flood\r\n");
    for n in 0..50_000 {
        screen.feed(format!("line {n:06}\r\n").as_bytes());
    }
    let scrolled = &screen.emulator.callbacks().scrolled;
    assert!(scrolled.head.len() + scrolled.tail.len() < 4 * LIMIT);
    let text = new_output(&mut screen);
    assert!(text.starts_with("$ flood\nline 000000\n"), "{text}");
    assert!(text.ends_with("line 049999"), "{text}");
    let (first, rest) = text.split_once("\n[... ").unwrap();
    let (count, last) = rest.split_once(" bytes of output left out here ...]\n").unwrap();
    let total = "$ flood\n".len() + 50_000 * "line 000000\n".len() - 1;
    assert_eq!(count.parse::<usize>().unwrap(), total - first.len() - last.len());
}

#[test]
fn programs_get_the_answers_that_they_wait_for() {
    let mut screen = screen();
    assert_eq!(screen.feed(b"ab\r\ncd\x1b[6n"), b"\x1b[2;3R");
    assert_eq!(screen.feed(b"\x1b[5n"), b"\x1b[0n");
    assert_eq!(screen.feed(b"\x1b[c\x1b[>c"), b"\x1b[?1;2c\x1b[>0;0;0c");
    assert_eq!(screen.feed(b"\x1b[?6n\x1b[7n"), b"");
}

#[test]
fn output_that_breaks_the_emulator_costs_the_screen_and_nothing_else() {
    let mut screen = Screen::new(TerminalSize { rows: 5, cols: 1 });
    screen.feed("*\u{fe0f}".as_bytes());
    screen.feed(b"\r\nok");
    let text = screen.observe().text().replace('\n', "");
    assert!(text.ends_with("ok"), "{text}");
}

/// Generates bytes that are likely to reach the corner cases of the emulator: control sequences, wide and combining
/// characters, invalid UTF-8.
fn terminal_output() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        3 => "[ -~]{0,30}".prop_map(String::into_bytes),
        2 => Just(b"\r\n".to_vec()),
        2 => prop::sample::select(vec!["日", "🦀", "e\u{301}", "\u{200d}", "\u{fe0f}", "\u{1f1e9}"])
            .prop_map(|text| text.as_bytes().to_vec()),
        4 => ("[?>=!]?", prop::collection::vec(prop_oneof![0u32..50, Just(65535u32), Just(1049u32)], 0..4), "[@-~]")
            .prop_map(|(private, params, end)| {
                let params: Vec<_> = params.iter().map(u32::to_string).collect();
                format!("\x1b[{private}{}{end}", params.join(";")).into_bytes()
            }),
        1 => "\x1b[ -~]{1,2}".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..20),
    ];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_output_is_shown_without_panic(
        rows in 0u16..6, cols in 0u16..24, chunks in prop::collection::vec(terminal_output(), 1..4)
    ) {
        let mut screen = Screen::new(TerminalSize { rows, cols });
        for chunk in chunks {
            screen.feed(&chunk);
            let text = screen.observe().text().to_owned();
            prop_assert!(text.len() < LIMIT + 100);
            prop_assert!(!text.contains('\x1b'), "{text:?}");
        }
    }

    #[test]
    fn lines_arrive_complete_however_the_stream_is_cut(
        lines in prop::collection::vec("[a-z]{1,45}", 1..40), cut in 1usize..50
    ) {
        let mut screen = screen();
        screen.feed(b"$ ");
        screen.observe();
        let bytes = format!("go\r\n{}\r\n$ ", lines.join("\r\n"));
        bytes.as_bytes().chunks(cut).for_each(|chunk| { screen.feed(chunk); });
        prop_assert_eq!(new_output(&mut screen), format!("$ go\n{}\n$", lines.join("\n")));
    }
}

#[test]
fn a_character_that_is_cut_loses_no_text_behind_it() {
    let mut screen = screen();
    let bytes = "caf\u{e9} \u{e9}\u{1f980}$".as_bytes();
    // The cut is within the first character of two bytes.
    let (first, second) = bytes.split_at(4);
    screen.feed(first);
    assert_eq!(screen.text(), "caf");
    screen.feed(second);
    assert_eq!(screen.text(), "caf\u{e9} \u{e9}\u{1f980}$");
}

proptest! {
    #[test]
    fn pieces_end_at_characters_and_are_the_whole_output(text in ".{0,2000}", cut in 0usize..4) {
        let bytes = text.as_bytes();
        let pieces: Vec<_> = pieces(bytes).collect();
        prop_assert_eq!(pieces.concat(), bytes);
        prop_assert!(pieces.iter().all(|piece| piece.len() <= PIECE && std::str::from_utf8(piece).is_ok()));
        let cut = &bytes[..bytes.len().saturating_sub(cut)];
        let valid = std::str::from_utf8(cut).map_or_else(|error| error.valid_up_to(), str::len);
        prop_assert_eq!(cut.len() - unfinished(cut), valid);
    }
}

#[test]
fn fuzz_screen() {
    rolltap_testing::fuzz!("screen", |bytes| {
        let show = |pieces: &[&[u8]]| {
            let mut screen = screen();
            let replies: Vec<u8> = pieces.iter().flat_map(|piece| screen.feed(piece)).collect();
            (screen.text(), replies, screen.observe().text().to_owned())
        };
        let whole = show(&[bytes]);
        assert!(!whole.0.contains('\x1b'));
        // The emulator shows invalid UTF-8 by where it is cut, and fails on some wide characters.
        if std::str::from_utf8(bytes).is_ok_and(|text| text.chars().all(|char| char <= '\u{ff}')) {
            for pieces in rolltap_testing::fuzz::cuts(bytes) {
                assert_eq!(show(&pieces), whole);
            }
        }
    });
}
