//! Full-screen and interactive programs.

use crate::side_by_side::script::{Answer, Script, Setting, done, text, types};

/// Counts the presses of the up arrow, at a different place on the screen each time.
const COUNTER: &str = r#"cat > counter.py <<'END'
import curses
def main(screen):
    curses.curs_set(0)
    count = 0
    while True:
        screen.erase()
        screen.border()
        screen.addstr(2 + count, 4, f"count is {count}")
        key = screen.getch()
        if key == ord("q"):
            return count
        count += key == curses.KEY_UP
print("left at", curses.wrapper(main))
END
clear; python3 counter.py; echo over >> out
"#;

pub(in crate::side_by_side) fn scripts() -> Vec<Script> {
    let once = |shown, keys: &[&str]| {
        Answer::Once(shown, text(&keys.iter().map(|keys| (*keys, 0.1)).collect::<Vec<_>>(), None))
    };
    let script = |name, check: &str, answers: Vec<Answer>| Script {
        setting: Setting::FullScreen,
        ..Script::json(name, check, [answers, vec![done(), done()]].concat())
    };
    vec![
        script(
            "vim",
            "test \"$(cat notes.txt)\" = \"$(printf 'changed line\\nlast line')\"",
            vec![
                types(&[(
                    "printf 'first line\\nlast line\\n' > notes.txt; vim notes.txt; echo left vim\n",
                    0.5,
                )]),
                once("\nlast line", &["O"]),
                once("-- INSERT --", &["a line too many", "Escape", "dd"]),
                once("first line\nlast line\n~", &[":s/first/changed/\n"]),
                once("changed line", &[":wq\n"]),
                once("\nleft vim", &[]),
            ],
        ),
        script(
            "less",
            "test \"$(cat out)\" = over",
            vec![
                types(&[("clear; seq -f 'line %03g' 1 500 > lines; less lines; echo over >> out\n", 0.5)]),
                once("line 039\nlines", &["Space"]),
                once("line 040\n", &["/line 25\n"]),
                once("line 250\n", &["G"]),
                once("line 500\n", &["q"]),
            ],
        ),
        script(
            "python",
            "test \"$(cat out)\" = 'from python'",
            vec![
                types(&[("python3\n", 0.5)]),
                once("\n>>>", &["6 * 7\n"]),
                once("\n42\n", &["def next(x):\n    return x + 1\n\n", "print(next(1000))\n"]),
                once("\n1001\n", &["open('out', 'w').write('from ' + 'python')\n"]),
                once("\n11\n", &["C-d"]),
            ],
        ),
        script(
            "curses",
            "test \"$(cat out)\" = over",
            vec![
                types(&[(COUNTER, 0.5)]),
                once("count is 0", &["Up"]),
                once("count is 1", &["Up", "Up"]),
                once("count is 3", &["q"]),
                once("\nleft at 3", &[]),
            ],
        ),
    ]
}
